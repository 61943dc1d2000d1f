// Hermetic archives, and objects that move between interpreters.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "export.h"
#include "session.h"
#include "value.h"

namespace interpool {

class Movable;
class OpenPackage;

// An object that is materialised in each interpreter when it is first needed there. Handles are cheap to
// copy; the object goes from all interpreters with the last one. From create_movable: tensors share one
// memory in all interpreters, and a write in one is seen by all. From a Package: weights share pages until
// one interpreter writes to them, and only that one sees the write.
class INTERPOOL_PUBLIC MovableObject {
 public:
  explicit MovableObject(std::shared_ptr<Movable> movable) : movable_(std::move(movable)) {}

  // Calls it in a free interpreter, one that has it already first, and brings the
  // result back. As PyObj::call; the calling thread waits for an interpreter.
  Value operator()(const std::vector<Value>& args = {}) const { return call_kwargs(args, {}); }
  Value call(const std::vector<Value>& args = {}) const { return call_kwargs(args, {}); }
  Value call_kwargs(const Keywords& keywords) const { return call_kwargs({}, keywords); }
  Value call_kwargs(const std::vector<Value>& args, const Keywords& keywords) const;

  // A session whose self() is this object. Throws LeaseTimeoutError after `timeout` seconds.
  InterpreterSession acquire_session(std::optional<double> timeout = std::nullopt) const;

  // Drops the copy in that interpreter, or all copies. The next need makes a
  // new one, as the object was at first.
  void unload(int interpreter_id) const;
  void unload() const;

  const std::shared_ptr<Movable>& movable() const { return movable_; }

 private:
  std::shared_ptr<Movable> movable_;
};

// An opened hermetic archive: the file as it was when it was opened.
class INTERPOOL_PUBLIC Package {
 public:
  explicit Package(std::shared_ptr<OpenPackage> package) : package_(std::move(package)) {}

  // Unpickled in one interpreter now, so that what is wrong with it shows here. Throws
  // ArchiveError when there is no such resource, RemoteError when unpickling raises.
  MovableObject load_pickle(const std::string& package, const std::string& resource) const;
  // A resource's bytes; as text, UTF-8.
  std::string load_binary(const std::string& package, const std::string& resource) const;
  std::string load_text(const std::string& package, const std::string& resource) const;
  // A session whose self() is the archive's torch.package.PackageImporter.
  InterpreterSession acquire_session(std::optional<double> timeout = std::nullopt) const;

 private:
  std::shared_ptr<OpenPackage> package_;
};

}  // namespace interpool
