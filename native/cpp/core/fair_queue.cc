#include "fair_queue.h"

#include <algorithm>

namespace interpool {
namespace {

constexpr size_t kRemembered = 1024;  // flows; beyond this, those without a state are dropped
constexpr double kLeast = 1e-5;       // seconds that each lease counts, however short it was

// Seconds by which a flow's tag may exceed the virtual time and the flow still counts as behind. So a flow
// of many short leases is not taken for a greedy one.
constexpr double kSlack = 0.005;

}  // namespace

FairQueue::Flow& FairQueue::flow(const std::string& name) {
  const auto found = flows_.find(name);
  if (found != flows_.end()) {
    found->second.forgotten = false;
    return found->second;
  }
  if (flows_.size() >= kRemembered) {
    purge();
  }
  return flows_.try_emplace(name, name).first->second;
}

// Drops flows that would start at the virtual time anyway.
void FairQueue::purge() {
  std::erase_if(flows_, [this](const auto& entry) {
    const Flow& flow = entry.second;
    return flow.running == 0 && flow.waiters.empty() && flow.share == SIZE_MAX && !flow.own.has_value() &&
           flow.tag <= virtual_time_;
  });
}

void FairQueue::forget(const std::string& name) {
  const auto found = flows_.find(name);
  if (found == flows_.end()) {
    return;
  }
  found->second.share = SIZE_MAX;
  found->second.own.reset();
  found->second.forgotten = true;
  drop_if_forgotten(found->second);
}

void FairQueue::drop_if_forgotten(const Flow& flow) {
  if (flow.forgotten && flow.running == 0 && flow.waiters.empty()) {
    flows_.erase(flows_.find(flow.name));
  }
}

double FairQueue::tag_of(const Flow& flow, double now) const {
  return flow.tag + static_cast<double>(flow.running) * now - flow.began;
}

// Flows that may have no more do not count: others need not wait for them.
double FairQueue::virtual_time(const Flow& except, double now) const {
  std::optional<double> least;
  for (const Flow* flow : waiting_) {
    if (flow != &except && !flow->is_held_back()) {
      const double tag = tag_of(*flow, now);
      least = std::min(least.value_or(tag), tag);
    }
  }
  double time = virtual_time_;
  if (least.has_value()) {
    return std::max(time, *least);
  }
  for (const Flow* flow : running_) {
    if (flow != &except) {
      time = std::max(time, tag_of(*flow, now));
    }
  }
  return time;
}

bool FairQueue::is_behind(const Flow& flow, double now) const {
  if (flow.running != 0) {
    return false;
  }
  if (flow.waiters.empty()) {
    return flow.tag <= virtual_time(flow, now) + kSlack;
  }
  const auto since = (flow.waiters.front()->since + kLongWait).time_since_epoch();
  return flow.behind || in_seconds(since) <= now;
}

// The flow wanted nothing until now, or was held back by its share: time that it did not use is lost.
void FairQueue::enter(Flow& flow, double now) {
  virtual_time_ = virtual_time(flow, now);
  flow.tag += std::max(0.0, virtual_time_ - tag_of(flow, now));
}

void FairQueue::wait(Waiter& waiter, double now) {
  Flow& flow = waiter.flow;
  if (flow.waiters.empty()) {
    if (flow.running == 0) {
      flow.behind = is_behind(flow, now);
      enter(flow, now);
    }
    waiting_.push_back(&flow);
  }
  flow.waiters.push_back(&waiter);
  ++size_;
}

void FairQueue::stop_waiting(Waiter& waiter) {
  Flow& flow = waiter.flow;
  flow.waiters.remove(&waiter);
  --size_;
  if (flow.waiters.empty()) {
    std::erase(waiting_, &flow);
    drop_if_forgotten(flow);
  }
}

void FairQueue::begin(Flow& flow, double now) {
  if (flow.running == 0 && flow.waiters.empty()) {
    enter(flow, now);
  }
  virtual_time_ = std::max(virtual_time_, tag_of(flow, now));
  if (flow.running == 0) {
    running_.push_back(&flow);
  }
  ++flow.running;
  flow.began += now;
  flow.behind = false;
}

void FairQueue::end(Flow& flow, double began, double now) {
  const bool was_held_back = flow.is_held_back();
  --flow.running;
  flow.began = flow.running == 0 ? 0 : flow.began - began;
  flow.tag += std::max(now - began, kLeast);
  if (was_held_back) {
    enter(flow, now);
  }
  if (flow.running == 0) {
    std::erase(running_, &flow);
    flow.behind = flow.tag <= virtual_time(flow, now) + kSlack;
    drop_if_forgotten(flow);
  }
}

FairQueue::Flow* FairQueue::next(double now, const std::function<bool(const Flow&)>& may) const {
  Flow* best = nullptr;
  double least = 0;
  for (Flow* flow : waiting_) {
    const double tag = tag_of(*flow, now);
    // If two have had the same, the one that came first.
    const bool sooner = best == nullptr || tag < least ||
                        (tag == least && flow->waiters.front()->since < best->waiters.front()->since);
    if (sooner && may(*flow)) {
      best = flow;
      least = tag;
    }
  }
  return best;
}

}  // namespace interpool
