// Archives as the process maps them: private copies that no writer can reach.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "../seam/interpreter.h"

namespace interpool {

// One snapshot per file (device, inode, size, time of change), alive as long as
// somebody maps it. Any thread; `mutex_` is held while a file is copied, so that
// interpreters which need the same archive at once copy it once. No GIL may be
// held by the caller.
class Snapshots {
 public:
  // Throws ArchiveError when `path` is missing, unreadable or not a plain file.
  std::shared_ptr<const Snapshot> open(const std::string& path);

 private:
  using Identity = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;

  std::mutex mutex_;
  std::map<Identity, std::weak_ptr<const Snapshot>> known_;
};

}  // namespace interpool
