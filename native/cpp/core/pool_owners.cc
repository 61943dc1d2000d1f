// Interpreters that one model has to itself, and callers that keep to one interpreter.
#include "model_thread.h"
#include "pool.h"

namespace interpool {

void Pool::give_to(Slot& slot, const std::string& owner) {
  if (!slot.owner.empty()) {
    return;
  }
  Flow& flow = isolated(owner);
  --active_;
  ++own_;
  ++flow.own->have;
  slot.owner = owner;
  std::erase_if(slot.affinities, [&](const auto& entry) { return entry.first != owner; });
  wake_all();  // a caller may wait for this very one
  started_.notify_all();
  if (options_.start == nullptr && active_ == 0) {
    failure_ = "this pool starts none.";
  } else if (options_.start != nullptr && !closed_) {
    wake_autoscaler();
  }
}

void Pool::enlist(Slot& slot, const std::string& owner) {
  slot.state = State::kFree;
  const auto found = queue_.flows().find(owner);
  if (owner.empty() || found == queue_.flows().end() || !found->second.own.has_value()) {
    ++active_;
    return;
  }
  slot.owner = owner;
  ++own_;
  ++queue_.flow(owner).own->have;
}

bool Pool::has_lost_owner(const Slot& slot) const {
  const auto found = queue_.flows().find(slot.owner);
  return slot.was_forgotten ||
         (!slot.owner.empty() && (found == queue_.flows().end() || !found->second.own.has_value()));
}

void Pool::lose(Slot& slot) {
  if (slot.owner.empty()) {
    --active_;
  } else {
    --own_;
    if (!has_lost_owner(slot)) {
      --queue_.flow(slot.owner).own->have;
    }
  }
  slot.state = State::kRetired;
  slot.interpreter->abandon();
  slot.affinities.clear();
}

Pool::Flow& Pool::isolated(const std::string& affinity) {
  Flow& flow = queue_.flow(affinity);
  if (!flow.own.has_value()) {
    flow.own.emplace();
    ++owners_;
  }
  return flow;
}

void Pool::want_more(Flow& flow, size_t most) {
  if (flow.own->have < most && flow.own->have < flow.share) {
    flow.own->wanted = std::max(flow.own->wanted, flow.own->have + 1);
  }
  if (lacking() != nullptr && options_.start != nullptr && !closed_) {
    wake_autoscaler();
  }
}

bool Pool::is_isolated(const std::string& affinity) const {
  if (owners_ == 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto found = queue_.flows().find(affinity);
  return found != queue_.flows().end() && found->second.own.has_value();
}

void Pool::isolate(const std::string& affinity) {
  if (affinity.empty()) {
    throw ArgumentError("leases without an affinity cannot have interpreters of their own");
  }
  const Locked locked(*this);
  isolated(affinity);
  dispatch();
}

std::optional<int> Pool::assign(const std::string& affinity, bool alone) {
  std::unique_lock lock(mutex_);
  if (is_filling() && growing_ == 0) {
    wake_autoscaler();  // for want of a thread it may not run
  }
  Slot* best = nullptr;
  started_.wait(lock, [&] {
    best = nullptr;
    Flow& flow = queue_.flow(affinity);
    for (Slot& slot : slots_) {
      if (is_active(slot) && may_take(slot, flow, std::nullopt) &&
          (best == nullptr || slot.residents < best->residents)) {
        best = &slot;
      }
    }
    if (best != nullptr && best->residents == 0) {
      return true;
    }
    if (!flow.own.has_value()) {
      return !is_filling();
    }
    want_more(flow, alone ? SIZE_MAX : min_size_.load());
    return flow.own->have >= flow.own->wanted || !may_add() || closed_;
  });
  if (best == nullptr) {
    return std::nullopt;
  }
  ++best->residents;
  return best->interpreter->id();
}

void Pool::unassign(int interpreter) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.interpreter->id() == interpreter) {
      --slot.residents;
    }
  }
}

void Pool::forget(const std::string& affinity, std::optional<int> only) {
  std::vector<Interpreter*> interpreters;
  std::vector<Interpreter*> ended;
  {
    const Locked locked(*this);
    for (Slot& slot : slots_) {
      if (slot.state != State::kGivenUp && (!only.has_value() || slot.interpreter->id() == *only)) {
        slot.affinities.erase(affinity);
        interpreters.push_back(slot.interpreter);
      }
    }
    if (!only.has_value()) {
      const auto flow = queue_.flows().find(affinity);
      owners_ -= flow != queue_.flows().end() && flow->second.own.has_value() ? 1 : 0;
      counters_.erase(affinity);
      queue_.forget(affinity);
      for (Slot& slot : slots_) {
        slot.was_forgotten = slot.was_forgotten ||
                             (slot.state == State::kLeased && !slot.owner.empty() && slot.owner == affinity);
        if (slot.state == State::kFree && has_lost_owner(slot)) {  // those that are leased: see release()
          lose(slot);
          ended.push_back(slot.interpreter);
        }
      }
      dispatch();  // it has no share any more
      started_.notify_all();
    }
  }
  if (!ended.empty()) {
    free_what_can_be_made_again(ended);
  }
  for (Interpreter* interpreter : interpreters) {
    ModelThread::forget(*interpreter, affinity);
    interpreter->forget_model(affinity, !only.has_value());
  }
}

}  // namespace interpool
