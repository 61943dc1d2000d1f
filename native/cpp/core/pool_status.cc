// What a pool says of itself.
#include "pool.h"

namespace interpool {

std::vector<Pool::Status> Pool::status() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<Status> all;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kGivenUp) {
      continue;
    }
    const double since = in_seconds(now - slot.leased_at);
    Status& one = all.emplace_back(Status{slot.interpreter,
                                          slot.state,
                                          slot.leases,
                                          {},
                                          {},
                                          slot.model,
                                          slot.owner,
                                          slot.thread,
                                          since,
                                          slot.holder});
    for (const auto& [affinity, served] : slot.affinities) {
      const bool is_served = slot.flow != nullptr && slot.flow->name == affinity;
      one.affinities.push_back(affinity);
      one.idle.push_back(is_served ? 0 : in_seconds(now - served));
    }
  }
  return all;
}

std::map<std::string, Pool::ModelStatus> Pool::models() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::map<std::string, ModelStatus> all;
  for (const auto& [model, counters] : counters_) {
    all[model].counters = counters;
  }
  for (const auto& [name, flow] : queue_.flows()) {
    if (flow.running == 0 && flow.waiters.empty() && all.count(name) == 0) {
      continue;  // forgotten
    }
    ModelStatus& model = all[name];
    model.running = flow.running;
    model.waiting = flow.waiters.size();
    model.share = flow.share == SIZE_MAX ? std::nullopt : std::optional(flow.share);
    if (!flow.waiters.empty()) {
      model.longest = in_seconds(now - flow.waiters.front()->since);
    }
  }
  return all;
}

uint64_t Pool::failed_starts() const {
  const std::lock_guard lock(mutex_);
  return failed_starts_;
}

std::vector<int> Pool::instances() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  for (const Slot& slot : slots_) {
    if (!is_gone(slot)) {
      all.push_back(slot.interpreter->id());
    }
  }
  return all;
}

bool Pool::has(int interpreter) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(), [interpreter](const Slot& slot) {
    return slot.interpreter->id() == interpreter && slot.state != State::kGivenUp;
  });
}

size_t Pool::size() const {
  const std::lock_guard lock(mutex_);
  return active_;
}

size_t Pool::reserve() const {
  const std::lock_guard lock(mutex_);
  return surplus();
}

size_t Pool::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

bool Pool::is_growing() const {
  const std::lock_guard lock(mutex_);
  return growing_ > 0;
}

bool Pool::is_idle() const {
  const std::lock_guard lock(mutex_);
  return leased_ + own_leased_ == 0 && growing_ == 0;
}

std::string Pool::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace interpool
