// An object that every interpreter of a pool can have a copy of.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../seam/guest_modules.h"
#include "pool.h"

namespace interpool {

// How an interpreter makes its copy: `make(*args)`.
struct Recipe {
  guest::Name make;
  std::vector<Value> args;
};

// Behind MovableObject. `mutex_` guards `made_` and is a leaf lock; that of the list of
// all (movable.cc) is taken before it. Any thread; only in() needs an interpreter
// entered. May be destroyed under any GIL.
class INTERPOOL_PUBLIC Movable {
 public:
  // `keeps`: what has to live as long as the object can be made. Without an
  // `affinity` it is one of its own.
  Movable(std::shared_ptr<Pool> pool, std::string affinity, Recipe recipe,
          std::vector<std::shared_ptr<void>> keeps);
  ~Movable();

  // From what guest::kDump returned, in an interpreter or in the host: (pickle,
  // tensors, archives that it needs).
  static std::shared_ptr<Movable> from_dump(std::shared_ptr<Pool> pool, Value dump);

  // The copy in `interpreter`, made now if there is none; borrowed: good as long as
  // the GIL is not released. The calling thread has entered the interpreter and leases it.
  void* in(Interpreter& interpreter);

  // Of that interpreter, or of all.
  void unload(std::optional<int> interpreter_id);

  // Of all objects, in an interpreter that is not needed any more.
  static void unload_all(int interpreter_id);

  const std::shared_ptr<Pool>& pool() const { return pool_; }
  const std::string& affinity() const { return affinity_; }

 private:
  const std::shared_ptr<Pool> pool_;
  const bool has_own_affinity_;
  const std::string affinity_;
  const Recipe recipe_;
  const std::vector<std::shared_ptr<void>> keeps_;
  std::mutex mutex_;
  std::map<Interpreter*, void*> made_;
};

}  // namespace interpool
