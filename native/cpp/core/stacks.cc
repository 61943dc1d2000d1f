#include "stacks.h"

#include <map>
#include <memory>
#include <mutex>

#include "visits.h"

namespace interpool {
namespace {

// Visits those and keeps what `look` returns, by interpreter, as far as it comes in time.
template <typename Result, typename Look>
std::map<int, Result> gather(const std::vector<Interpreter*>& interpreters, double patience, Look look) {
  struct Found {
    std::mutex mutex;  // guards `all`; a leaf lock, though an interpreter is entered
    std::map<int, Result> all;
  };
  auto found = std::make_shared<Found>();
  visit_each(
      interpreters,
      [found, look](Interpreter& interpreter) {
        Result result = look(interpreter);
        const std::lock_guard lock(found->mutex);
        found->all.emplace(interpreter.id(), std::move(result));
      },
      patience);
  const std::lock_guard lock(found->mutex);
  return found->all;
}

std::vector<ThreadStack> threads_of(const Value& value) {
  std::vector<ThreadStack> threads;
  for (const Value& item : std::get<List>(value.data).items) {
    const auto& fields = std::get<Tuple>(item.data).items;
    ThreadStack thread;
    thread.thread = static_cast<int>(std::get<int64_t>(fields[0].data));
    thread.name = std::get<std::string>(fields[1].data);
    for (const Value& frame : std::get<List>(fields[2].data).items) {
      thread.frames.push_back(std::get<std::string>(frame.data));
    }
    threads.push_back(std::move(thread));
  }
  return threads;
}

}  // namespace

std::vector<InterpreterStacks> stacks_of(const Pool& pool, double patience) {
  const auto slots = pool.status();
  std::vector<Interpreter*> asked;
  for (const Pool::Status& slot : slots) {
    if (slot.state != Pool::State::kRetired) {
      asked.push_back(slot.interpreter);
    }
  }
  const auto found = gather<std::vector<ThreadStack>>(
      asked, patience, [](Interpreter& interpreter) { return threads_of(interpreter.stacks()); });
  std::vector<InterpreterStacks> all;
  for (const Pool::Status& slot : slots) {
    const auto answer = found.find(slot.interpreter->id());
    all.push_back({slot, slot.interpreter->inside(), answer != found.end(),
                   answer != found.end() ? answer->second : std::vector<ThreadStack>()});
  }
  return all;
}

std::vector<OpenLease> open_leases(const Pool& pool, double patience) {
  std::vector<OpenLease> leases;
  std::vector<Interpreter*> asked;
  // Kept: the last reference to a session must not go with its interpreter entered.
  std::map<Interpreter*, std::shared_ptr<Leaseholder>> holders;
  for (const Pool::Status& slot : pool.status()) {
    if (slot.state != Pool::State::kLeased) {
      continue;
    }
    auto holder = slot.holder.lock();
    OpenLease lease{slot, false, holder != nullptr, {}};
    if (lease.session) {
      asked.push_back(slot.interpreter);
      holders.emplace(slot.interpreter, std::move(holder));
    }
    leases.push_back(std::move(lease));
  }
  if (leases.empty()) {
    return leases;
  }
  const auto found = gather<std::vector<std::string>>(asked, patience, [holders](Interpreter& interpreter) {
    return holders.at(&interpreter)->holds(interpreter);
  });
  for (OpenLease& lease : leases) {
    if (const auto answer = found.find(lease.status.interpreter->id()); answer != found.end()) {
      lease.answered = true;
      lease.labels = answer->second;
    }
  }
  return leases;
}

}  // namespace interpool
