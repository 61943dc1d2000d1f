// A hermetic archive as the interpreters of one pool have it open.
#pragma once

#include <memory>
#include <string>

#include "movable.h"
#include "pool.h"

namespace interpool {

class Session;  // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final

// Behind Package: all packages of one state of one file share one. When it goes, the
// interpreters close the archive. Any thread, no GIL held, except the destructor.
class INTERPOOL_PUBLIC OpenPackage : public std::enable_shared_from_this<OpenPackage> {
 public:
  // The file as it is now. Nothing in it has been looked at yet. Throws ArchiveError.
  static std::shared_ptr<OpenPackage> open(const std::shared_ptr<Pool>& pool, const std::string& path);
  // A state of the file that is open already.
  static std::shared_ptr<OpenPackage> hold(const std::shared_ptr<Pool>& pool, const std::string& path,
                                           uint64_t snapshot);
  ~OpenPackage();

  // Reads its structure in an interpreter, running nothing of it. Throws ArchiveError.
  void check();
  std::shared_ptr<Movable> load_pickle(const std::string& package, const std::string& resource);
  std::string load_binary(const std::string& package, const std::string& resource);
  // Its self() is the archive's importer.
  std::shared_ptr<Session> acquire(std::optional<double> timeout);

  const Snapshot& snapshot() const { return *snapshot_; }

 private:
  OpenPackage(std::shared_ptr<Pool> pool, std::string path, std::shared_ptr<const Snapshot> snapshot)
      : pool_(std::move(pool)), path_(std::move(path)), snapshot_(std::move(snapshot)) {}
  static std::shared_ptr<OpenPackage> known(const std::shared_ptr<Pool>& pool, const std::string& path,
                                            std::shared_ptr<const Snapshot> snapshot);
  Value number() const { return static_cast<int64_t>(snapshot_->number); }

  const std::shared_ptr<Pool> pool_;
  const std::string path_;
  const std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace interpool
