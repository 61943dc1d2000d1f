// Archives as the process maps them: private copies that no writer can reach.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "../seam/interpreter.h"

namespace interpool {

// Any thread; no GIL may be held by the caller. `mutex_` guards all state and is a leaf lock: no file is
// copied under it. If several interpreters need the same archive at once, one copies it and the others wait.
// Interpreters that need other archives do not.
class Snapshots {
 public:
  // The file as it is now; one snapshot per state of it (device, inode, size, time
  // of change). Throws ArchiveError when `path` is missing, unreadable or not a
  // plain file.
  std::shared_ptr<const Snapshot> take(const std::string& path);

  // The snapshot that `path` meant last, as long as it is mapped; else take(). So all interpreters have the
  // same, also if the file has changed or gone since.
  std::shared_ptr<const Snapshot> open(const std::string& path);

  // Throws ArchiveError when it is gone; `path` is for the message.
  std::shared_ptr<const Snapshot> find(uint64_t number, const std::string& path);

 private:
  using Identity = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;

  class Copying;

  std::mutex mutex_;
  std::condition_variable copied_;
  std::set<Identity> copying_;  // that a thread is copying
  uint64_t last_number_ = 0;
  std::map<Identity, std::weak_ptr<const Snapshot>> by_file_;
  std::map<std::string, std::weak_ptr<const Snapshot>> by_path_;
  std::map<uint64_t, std::weak_ptr<const Snapshot>> by_number_;
};

}  // namespace interpool
