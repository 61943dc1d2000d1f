#include "answered_requests.h"

#include <utility>

namespace interpool {

AnsweredRequests& AnsweredRequests::of_process() {
  static auto* const all = new AnsweredRequests();  // connections' threads may outlive static objects
  return *all;
}

void AnsweredRequests::add(const Ids& ids) {
  const std::lock_guard lock(mutex_);
  for (const std::string& id : ids) {
    has_ended_.try_emplace(id, false);
  }
}

void AnsweredRequests::remove(const Ids& ids) {
  const std::lock_guard lock(mutex_);
  erase(ids);
}

// With `mutex_` held.
void AnsweredRequests::erase(const Ids& ids) {
  for (const std::string& id : ids) {
    const auto found = has_ended_.find(id);
    if (found != has_ended_.end() && !found->second) {
      has_ended_.erase(found);
      changed_.notify_all();
    }
  }
}

void AnsweredRequests::end(Ids ids) {
  {
    const std::lock_guard lock(mutex_);
    for (std::string& id : ids) {
      const auto found = has_ended_.find(id);
      if (found == has_ended_.end() || std::exchange(found->second, true)) {
        continue;
      }
      ended_.push_back(std::move(id));
      if (ended_.size() > kKept) {
        has_ended_.erase(ended_.front());
        ended_.pop_front();
      }
    }
  }
  changed_.notify_all();
}

bool AnsweredRequests::repeats(const std::vector<std::string_view>& ids, const Ids& before,
                               std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  erase(before);
  Where found = where(ids);
  if (found == Where::kLiving) {
    changed_.wait_for(lock, patience, [&] {
      found = where(ids);
      return found != Where::kLiving;
    });
  }
  return found == Where::kEnded;
}

// With `mutex_` held.
AnsweredRequests::Where AnsweredRequests::where(const std::vector<std::string_view>& ids) const {
  Where found = Where::kNowhere;
  for (const std::string_view id : ids) {
    const auto known = has_ended_.find(id);
    if (known != has_ended_.end()) {
      if (known->second) {
        return Where::kEnded;
      }
      found = Where::kLiving;
    }
  }
  return found;
}

}  // namespace interpool
