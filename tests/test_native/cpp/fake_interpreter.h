// An interpreter without Python, for tests of what stands on the pool's side of the seam.
//
// It has a GIL and objects, and checks what the seam asks of its callers. A thread that does not hold the GIL
// gets nothing, and no thread holds two. Each object is released once, before its interpreter goes. A breach
// aborts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seam/interpreter.h"
#include "seam/object_ref.h"

namespace interpool::testing {

// Of interpreters, by this thread: at most one.
inline thread_local int gils_held = 0;

// What this thread calls in; any pointer will do, as no code looks into it.
inline thread_local CallerModes modes_here;

class FakeInterpreter final : public Interpreter {
 public:
  // What a function of its "Python" does with what it is called with.
  using Function = std::function<Value(const std::vector<Value>& args)>;
  using Service = std::function<Answer(const std::string& worker, const std::string& load_command,
                                       const std::string& frame)>;

  explicit FakeInterpreter(int id) : id_(id), main_thread_([this] { run_main_thread(); }) {}
  // Does what was left for later first; a closed one leaves it, and what it would have released, as a
  // process that ends does.
  ~FakeInterpreter() {
    {
      const std::lock_guard lock(queue_mutex_);
      leaving_ = true;
    }
    wake_.notify_all();
    main_thread_.join();
    demand(closed_ || objects_.empty(), "objects are left that were not released");
    for (Object* object : objects_) {
      delete object;
    }
  }
  FakeInterpreter(const FakeInterpreter&) = delete;
  FakeInterpreter& operator=(const FakeInterpreter&) = delete;

  // Before a pool uses it: what `global(module, name)` gives.
  void define(const std::string& module, const std::string& name, Function function) {
    functions_[{module, name}] = std::move(function);
  }
  void serve(const std::string& module, const std::string& name, Service service) {
    services_[{module, name}] = std::move(service);
  }

  // Objects that were made and not yet released.
  size_t alive() const {
    const std::lock_guard lock(gil_);
    return objects_.size();
  }
  int visits() const { return visits_.load(); }

  // Models that it had to forget, each with whether it is gone everywhere. Read it when no model is
  // forgotten.
  std::vector<std::pair<std::string, bool>> forgotten;

  int id() const override { return id_; }

  void enter() override {
    demand(gils_held == 0, "a thread takes a second GIL");
    gil_.lock();
    ++gils_held;
    holder_ = std::this_thread::get_id();
    ++visits_;
  }
  void leave() noexcept override {
    demand_gil();
    holder_ = std::thread::id();
    --gils_held;
    gil_.unlock();
  }

  // What the object's own code has run in, in order.
  std::vector<CallerModes> modes_seen;

  CallerModes modes() const override { return modes_here; }

  void* global(const std::string& module, const std::string& name) override {
    demand_gil();
    const Name key{module, name};
    if (functions_.count(key) == 0 && services_.count(key) == 0) {
      throw RemoteError("AttributeError", module + " has no " + name, "");
    }
    return keep({Value(), key});
  }
  void* call(void* callable, const std::vector<Value>& args, const Keywords& /*keywords*/,
             const CallerModes& caller) override {
    modes_seen.push_back(caller);
    const Name function = object(callable).function;
    std::vector<Value> arguments;
    for (const Value& argument : args) {
      const auto* reference = std::get_if<ObjectRef>(&argument.data);
      arguments.push_back(reference != nullptr ? object(object_in(*reference, id_)).value : argument);
    }
    return keep({functions_.at(function)(arguments), {}});
  }
  void* attribute(void* of, const std::string& name, const CallerModes& caller) override {
    modes_seen.push_back(caller);
    return keep({name + " of " + object(of).value.as<std::string>(), {}});
  }
  bool has_attribute(void* of, const std::string& name, const CallerModes& caller) override {
    modes_seen.push_back(caller);
    return !name.empty() && object(of).value.is<std::string>();
  }
  // Of a list.
  void* item(void* of, const Value& key, const CallerModes& caller) override {
    modes_seen.push_back(caller);
    return keep({object(of).value.as<List>().items.at(static_cast<size_t>(key.as<int64_t>())), {}});
  }
  void* from_value(const Value& value) override {
    demand_gil();
    if (const auto* reference = std::get_if<ObjectRef>(&value.data)) {
      return retain(object_in(*reference, id_));
    }
    return keep({value, {}});
  }
  Value to_value(void* of) override { return object(of).value; }
  void* retain(void* of) noexcept override { return keep(object(of)); }
  void release(void* gone) noexcept override {
    demand_gil();
    demand(objects_.erase(static_cast<Object*>(gone)) == 1, "an object is released that is none of its own");
    delete static_cast<Object*>(gone);
  }
  void* serve(void* factory, const std::string& worker, const std::string& load_command) override {
    return keep({List{{Value(worker), Value(load_command)}}, object(factory).function});
  }
  Answer answer(void* service, const Message& message) override {
    const Object& answering = object(service);
    const std::vector<Value>& given = answering.value.as<List>().items;
    return services_.at(answering.function)(given[0].as<std::string>(), given[1].as<std::string>(),
                                            std::string(message.bytes));
  }

  // What a test has put here is called when a lease begins. Before a pool uses it.
  std::function<void(const std::string& model)> on_lease = [](const std::string&) {};
  void begin_lease(const std::string& model) override { on_lease(model); }
  void forget_model(const std::string& model, bool everywhere) noexcept override {
    const std::lock_guard lock(forgotten_mutex_);
    forgotten.emplace_back(model, everywhere);
  }
  std::string label(void* of) override { return object(of).function.second; }
  Value stacks() override { return List{}; }

  // It runs no Python that could be interrupted: what a test has put here is called. Before a pool uses it.
  using Report = std::function<void(Interruption)>;
  std::function<void(uint64_t call, Report report)> on_interrupt = [](uint64_t, const Report&) {};

  void begin_interruptible(uint64_t /*call*/, bool /*shielded*/) override { demand_gil(); }
  void end_interruptible(uint64_t /*call*/) noexcept override { demand_gil(); }
  void interrupt(uint64_t call, Report report) override { on_interrupt(call, std::move(report)); }
  bool wants_to_retire() const noexcept override { return false; }
  // For whom it is claimed. For the thread that has leased it.
  std::optional<std::string> claim = std::nullopt;
  std::optional<std::string> take_claim() override { return std::exchange(claim, std::nullopt); }
  int inside() const override { return 0; }

  // Has later() find no memory. Any thread.
  std::atomic<bool> no_memory{false};

  void later(std::function<void()> work) override {
    if (no_memory) {
      throw std::bad_alloc();
    }
    {
      const std::lock_guard lock(queue_mutex_);
      work_.push_back(std::move(work));
    }
    wake_.notify_all();
  }
  void abandon() noexcept override {}
  void close() override {
    std::unique_lock lock(queue_mutex_);
    closed_ = true;
    idle_.wait(lock, [this] { return !busy_; });
  }
  bool close_if_idle() override {
    const std::lock_guard lock(queue_mutex_);
    const bool idle = work_.empty() && !busy_;
    closed_ = closed_ || idle;
    return idle;
  }
  void adopt_torch(const std::string& /*libtorch_python*/) override {}

 private:
  using Name = std::pair<std::string, std::string>;
  struct Object {
    Value value;
    Name function;
  };

  static void demand(bool holds, const char* otherwise) noexcept {
    if (!holds) {
      std::fprintf(stderr, "fake interpreter: %s\n", otherwise);
      std::abort();
    }
  }
  void demand_gil() const noexcept {
    demand(holder_.load() == std::this_thread::get_id(), "used without its GIL");
  }
  void* keep(Object made) {
    auto* object = new Object(std::move(made));
    objects_.insert(object);
    return object;
  }
  Object& object(void* pointer) {
    demand_gil();
    demand(objects_.count(static_cast<Object*>(pointer)) == 1, "an object is used that is none of its own");
    return *static_cast<Object*>(pointer);
  }
  void run_main_thread() {
    std::unique_lock lock(queue_mutex_);
    for (;;) {
      const auto may_work = [this] { return !work_.empty() && !closed_; };
      wake_.wait(lock, [&] { return leaving_ || may_work(); });
      if (!may_work()) {
        return;
      }
      const auto work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      lock.lock();
      busy_ = false;
      idle_.notify_all();
    }
  }

  const int id_;
  std::map<Name, Function> functions_;
  std::map<Name, Service> services_;

  mutable std::mutex gil_;  // guards objects_
  std::atomic<std::thread::id> holder_;
  std::set<Object*> objects_;
  std::atomic<int> visits_{0};

  std::mutex forgotten_mutex_;

  std::mutex queue_mutex_;  // guards what follows; a leaf lock
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool closed_ = false;
  bool leaving_ = false;
  std::thread main_thread_;  // last: it uses the others
};

// Interpreters 1 to n.
class Fakes {
 public:
  explicit Fakes(int count, int first = 1) {
    for (int id = first; id < first + count; ++id) {
      fakes_.push_back(std::make_unique<FakeInterpreter>(id));
    }
  }
  FakeInterpreter& operator[](size_t i) { return *fakes_[i]; }
  size_t size() const { return fakes_.size(); }
  std::vector<Interpreter*> all() const {
    std::vector<Interpreter*> pointers;
    for (const auto& fake : fakes_) pointers.push_back(fake.get());
    return pointers;
  }
  auto begin() { return fakes_.begin(); }
  auto end() { return fakes_.end(); }

 private:
  std::vector<std::unique_ptr<FakeInterpreter>> fakes_;
};

}  // namespace interpool::testing
