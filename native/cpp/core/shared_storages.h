// Storages that several interpreters have in common, although each has loaded them for itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../seam/shared_part.h"

namespace interpool {

// Any thread; it waits for no GIL. The caller of place() holds its own, so that no other thread frees what
// the pieces point to. So it is not to wait there for long. `mutex_` is a leaf lock: nothing is copied under
// it. A part lives as long as it is mapped.
class SharedStorages {
 public:
  // Where each of `pieces` lies. A piece is found in what was placed under `key` before and is still mapped.
  // What is not there goes into a new part, made of the pieces themselves. No two pieces get the same place.
  // A key is placed by one caller at a time. Returns nullopt if another one was at it all through `patience`.
  // That is a short time, so that a caller that is to be interrupted can be. Without pieces it only waits,
  // and the caller holds no GIL. Throws std::system_error if there is no memory for a new part.
  std::optional<std::vector<Placement>> place(const std::string& key, const std::vector<Piece>& pieces,
                                              std::chrono::milliseconds patience);

  // What was placed under `model`, or under a key that continues it after a '/' or '#', is found no
  // more. It stays as long as it is mapped.
  void forget(const std::string& model);

 private:
  struct Group {
    bool busy = false;
    std::vector<std::weak_ptr<const SharedPart>> parts;
  };
  class Turn;

  void purge();  // what no interpreter maps any more; under the mutex

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Group>> groups_;
};

}  // namespace interpool
