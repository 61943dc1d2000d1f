// Requests that were answered, for as long as TorchServe may send them to another worker.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace interpool {

// When a worker is scaled down or unregistered, TorchServe's frontend closes its connection. It puts the
// requests that the worker is at back into the model's queue. It does not ask whether their answer is just
// being handed to the client. So another worker can get a request whose answer was sent. The client then gets
// a second answer, and takes it for that of its next request. So it must be known which requests were
// answered on a connection that has ended since. TorchServe numbers requests with UUIDs: one of these for a
// process.
//
// A connection has in here what its last message asked for, once that was answered. From its next message on,
// TorchServe has taken the answer in. `mutex_` is a leaf lock; any thread may call, with no GIL held.
class AnsweredRequests {
 public:
  using Ids = std::vector<std::string>;

  static constexpr std::chrono::milliseconds kPatience{500};

  static AnsweredRequests& of_process();

  // They are about to be answered on a connection that lives.
  void add(const Ids& ids);
  // Their answer could not be sent, or was not read.
  void remove(const Ids& ids);
  // Their connection has ended. The last kKept such are kept: one may wait long in a model's queue.
  void end(Ids ids);

  // A connection has its next message, which asks for `ids`: TorchServe has taken in the answers to
  // `before`. Whether one of `ids` was answered on a connection that has ended. Waits for a while for the end
  // of one that lives: TorchServe closes it first, but that may be seen later than the request.
  bool repeats(const std::vector<std::string_view>& ids, const Ids& before = {},
               std::chrono::milliseconds patience = kPatience);

  static constexpr size_t kKept = 4096;

 private:
  void erase(const Ids& ids);
  enum class Where { kNowhere, kLiving, kEnded };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view id) const { return std::hash<std::string_view>()(id); }
  };

  Where where(const std::vector<std::string_view>& ids) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::string, bool, Hash, std::equal_to<>>
      has_ended_;                  // by id: whether its connection has
  std::deque<std::string> ended_;  // of these, oldest first
};

}  // namespace interpool
