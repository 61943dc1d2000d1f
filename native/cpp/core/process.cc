#include "process.h"

#include <dlfcn.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <system_error>

#include "../seam/guest_modules.h"
#include "../seam/thread.h"
#include "../upstream/torch_words.h"
#include "allocator.h"
#include "code_pages.h"
#include "prepared.h"

namespace interpool {
namespace {

constexpr double kPatience = 2.0;               // seconds, for an interpreter to run its exit functions
constexpr double kProvisioningPatience = 10.0;  // and for copies that are being made

void* load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw InterpreterStartError(path + " cannot be loaded: " + dlerror() +
                                ". Run `interpool doctor` to see what is missing.");
  }
  return handle;
}

template <typename Function>
Function find(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == nullptr) {
    throw InterpreterStartError(std::string("a library of interpool's lacks ") + name +
                                "; reinstall interpool.");
  }
  return reinterpret_cast<Function>(found);
}

// If the process has nearly as many mappings as it may have: that, and what to do. An interpreter's
// libraries take some 300, and those of one that failed are gone again when this is asked.
std::string why_no_room() {
  constexpr size_t kNeeded = 600;
  size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  std::ifstream maps("/proc/self/maps");
  const auto count = static_cast<size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
  if (count + kNeeded < most) {
    return "";
  }
  return "\nThis process has " + std::to_string(count) + " memory mappings, of the " + std::to_string(most) +
         " that vm.max_map_count allows, and an interpreter takes some 300: raise that, or have fewer "
         "interpreters.";
}

void import_into(Interpreter& interpreter, const std::vector<std::string>& modules) {
  if (modules.empty()) {
    return;
  }
  const Entered entered(interpreter);
  for (const std::string& module : modules) {
    try {
      interpreter.release(interpreter.global(module, "__name__"));
    } catch (const RemoteError& error) {
      throw InterpreterStartError("interpreter " + std::to_string(interpreter.id()) + " cannot import " +
                                  module + ": " + error.what() + "\n" + error.traceback_text);
    }
  }
}

}  // namespace

// While it lives, one more of what `count` counts is under way.
class Process::Counted {
 public:
  // With the process's lock held.
  Counted(Process& process, int Process::* count) : process_(process), count_(count) { ++(process_.*count_); }
  ~Counted() {
    const std::lock_guard lock(process_.mutex_);
    --(process_.*count_);
    process_.provisioned_.notify_all();
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Process& process_;
  int Process::* const count_;
};

template <typename Work>
auto Process::provision(const Work& work) {
  std::unique_lock lock(mutex_);
  // The provisioner's Python is about to end, and would end this thread with it.
  forever_.wait(lock, [this] { return !leaving_; });
  const Counted counted(*this, &Process::provisioning_);
  lock.unlock();
  return work();
}

Process& Process::get() {
  static auto* const process = new Process;
  return *process;
}

const Process::Prepared& Process::prepared() const {
  const Prepared* prepared = prepared_.load(std::memory_order_acquire);
  if (prepared == nullptr) {
    throw InterpreterStartError("interpreters cannot be started before the process was prepared for them.");
  }
  return *prepared;
}

bool Process::prepare(Installation installation, Provisioner provisioner) {
  const std::lock_guard lock(preparing_);
  if (prepared_.load(std::memory_order_relaxed) != nullptr) {
    return false;
  }
  // By path, and local: the host may bring its own torch extension modules, and
  // all find these by SONAME.
  for (const char* name : kSharedLibraries) {
    load(installation.torch_lib + "/" + name);
  }
  load(installation.interposer);
  keep_freed_memory();
  prepared_.store(new Prepared{std::move(installation), std::move(provisioner), ::getpid()},
                  std::memory_order_release);
  return true;
}

void Process::prepare_from(const std::string& file) {
  if (prepared_.load(std::memory_order_acquire) != nullptr) {
    return;
  }
  auto [installation, provisioner] = read_prepared(file);
  require_no_other_torch(installation.torch_lib);
  if (prepare(std::move(installation), std::move(provisioner))) {
    // Before static destructors, which are registered earlier.
    std::atexit([] { Process::get().prepare_end(); });
  }
}

void Process::remember(const std::shared_ptr<Pool>& pool) {
  const std::lock_guard lock(mutex_);
  pools_.push_back(pool);
}

std::vector<std::shared_ptr<Pool>> Process::pools() {
  const std::lock_guard lock(mutex_);
  return pools_;
}

bool Process::is_forked() const {
  return prepared().process != ::getpid();
}

void Process::end_interpreters() {
  for (const auto& pool : pools()) {
    pool->close_for_good();
    pool->tell_all(guest::kAtProcessEnd.module, guest::kAtProcessEnd.name, Value{None{}}, kPatience);
  }
  std::unique_lock lock(mutex_);
  leaving_ = true;
  provisioned_.wait_for(lock, std::chrono::duration<double>(kProvisioningPatience),
                        [this] { return provisioning_ == 0; });
}

// Is nothing under way in any interpreter? Nothing begins in there then any more.
bool Process::close_if_idle() {
  const auto all = pools();
  {
    const std::lock_guard lock(mutex_);
    if (starting_ > 0 || provisioning_ > 0) {
      return false;
    }
  }
  return std::ranges::all_of(all, [](const std::shared_ptr<Pool>& pool) {
    return pool->is_idle() && std::ranges::all_of(pool->status(), [](const Pool::Status& each) {
             return each.interpreter->close_if_idle();
           });
  });
}

void Process::prepare_end() {
  if (left_.exchange(true)) {
    return;
  }
  if (!is_forked()) {
    end_interpreters();
  }
  on_exit([](int status, void*) { end(status); }, nullptr);  // registered last, hence run first
}

// An exit function. Interpreters are not finalised: with torch inside, the end of the process is the one safe
// end. Private copies have no static destructors, but the libraries that they have in common do. With a
// thread still at work in there, these would pull its memory away. Then the process ends here; else it goes
// on with the exit functions of its own program, as any other.
void Process::end(int status) {
  if (get().is_forked()) {  // none of the threads that the rest needs is in the child
    std::fflush(nullptr);
    _exit(status);
  }
  try {
    if (get().close_if_idle()) {
      return;
    }
    // A thread that reads from a terminal holds stdin's lock until there is a line: it is not waited for.
    auto flushed = std::make_shared<std::promise<void>>();
    std::future<void> over = flushed->get_future();
    start_model_thread([flushed] {
      std::fflush(nullptr);
      flushed->set_value();
    });
    over.wait_for(std::chrono::duration<double>(kPatience));
  } catch (const std::exception&) {  // no more threads, no memory
    std::fflush(nullptr);
  }
  _exit(status);
}

Interpreter& Process::host() {
  // The host's GIL, which the caller holds, guards host_.
  if (host_ == nullptr) {
    StartOptions options;
    options.services = this;
    host_ = find<OpenInterpreter>(load(installation().slot_library), kOpenInterpreter)(options);
  }
  return *host_;
}

std::vector<std::string> Process::private_copy(const std::string& path, int slot) {
  const auto key = std::make_pair(path, slot);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = copies_.find(key); known != copies_.end()) {
      return known->second;
    }
  }
  auto files = provision([&] { return prepared().provisioner.private_copy(path, slot); });
  const std::lock_guard lock(mutex_);
  return copies_[key] = std::move(files);
}

void Process::loaded(void* handle) {
  {
    const std::lock_guard lock(mutex_);
    if (!loaded_.insert(handle).second) {
      return;
    }
  }
  share_code_pages(handle);
}

std::optional<Services::ModuleSource> Process::module_source(const std::string& name, int slot) {
  for (const auto& pool : pools()) {
    if (pool->has(slot)) {
      return pool->module_sources().find(name);
    }
  }
  return std::nullopt;
}

std::string Process::import_note() {
  const std::lock_guard lock(mutex_);
  return import_note_;
}

void Process::keep_import_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  import_note_ = note;
}

std::string Process::notes_folder() {
  return installation().notes;
}

Process::Copies Process::copies() {
  const std::lock_guard lock(mutex_);
  return copies_;
}

std::shared_ptr<const Snapshot> Process::open_archive(const std::string& path, uint64_t number) {
  return number == 0 ? snapshots_.open(path) : snapshots_.find(number, path);
}

std::shared_ptr<const Snapshot> Process::take_archive(const std::string& path) {
  return snapshots_.take(path);
}

std::optional<std::vector<Placement>> Process::place_storages(const std::string& key,
                                                              const std::vector<Piece>& pieces,
                                                              std::chrono::milliseconds patience) {
  return shared_storages_.place(key, pieces, patience);
}

void Process::forget_storages(const std::string& model) {
  shared_storages_.forget(model);
}

Interpreter* Process::start_one(int slot, const std::vector<std::string>& search_path) {
  if (dlsym(RTLD_DEFAULT, kTorchPythonClass) != nullptr) {
    throw InterpreterStartError(
        "this program's own libtorch_python is in its global scope, where private interpreters would find "
        "it instead of theirs. Import torch without sys.setdlopenflags(os.RTLD_GLOBAL) and without "
        "TORCH_USE_RTLD_GLOBAL in the environment.");
  }
  const auto& [installation, provisioner, _] = prepared();
  StartOptions options;
  options.id = slot;
  options.executable = installation.executable;
  options.home = installation.home;
  options.search_path = search_path;
  options.symbol_prefix = installation.symbol_prefix;
  options.loader = installation.loader;
  options.services = this;
  options.libpython =
      provision([&provisioner = provisioner, slot] { return provisioner.libpython_copy(slot); });
  loaded(load(options.libpython));
  void* library = nullptr;
  for (const std::string& file : private_copy(installation.slot_library, slot)) {
    library = load(file);
    loaded(library);
  }
  return find<OpenInterpreter>(library, kOpenInterpreter)(options);
}

size_t Process::startable() {
  const size_t slots = prepared().provisioner.slots;
  const std::lock_guard lock(mutex_);
  return slots - std::min(slots, static_cast<size_t>(slots_));
}

Origin Process::origin(const std::vector<std::string>& search_path, const std::vector<std::string>& preload) {
  Origin origin{search_path, preload, {}};
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    origin.environment.emplace_back(*variable);
  }
  std::sort(origin.environment.begin(), origin.environment.end());
  const auto repeated = std::ranges::unique(origin.environment);  // as interpose/environment.cc leaves them
  origin.environment.erase(repeated.begin(), repeated.end());
  return origin;
}

void Process::keep(std::vector<Interpreter*> interpreters, const Origin& origin) {
  if (interpreters.empty()) {
    return;
  }
  PoolOptions options;
  options.origin = origin;
  const auto spare = std::make_shared<Pool>(std::move(interpreters), std::move(options));
  spare->close();
  remember(spare);
}

std::vector<Interpreter*> Process::start(size_t count, const std::vector<std::string>& search_path,
                                         const std::vector<std::string>& preload) {
  prepared();  // or throws, before a number is used up
  std::unique_lock counting(mutex_);
  const Counted counted(*this, &Process::starting_);
  counting.unlock();
  std::vector<Interpreter*> started;
  const Origin wanted = origin(search_path, preload);
  for (const auto& pool : pools()) {
    for (Interpreter* interpreter : pool->give_up(wanted, count - started.size())) {
      started.push_back(interpreter);
    }
  }
  const size_t given = started.size();
  started.resize(count);
  std::vector<std::exception_ptr> failures(count);
  // On a thread with a model's stack, and not the caller's: imports go deep.
  const auto begin = [&](size_t i, int slot) {
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> over = done->get_future();
    try {
      start_model_thread([&, i, slot, done] {
        try {
          Interpreter* const ready = start_one(slot, search_path);
          import_into(*ready, preload);
          started[i] = ready;
        } catch (const InterpreterStartError& error) {
          failures[i] = std::make_exception_ptr(InterpreterStartError(error.what() + why_no_room()));
        } catch (const Error&) {
          failures[i] = std::current_exception();
        } catch (const std::exception& error) {  // no memory, no threads, what torch says
          failures[i] = std::make_exception_ptr(InterpreterStartError(
              "interpreter " + std::to_string(slot) + " did not start: " + error.what() + why_no_room()));
        }
        done->set_value();
      });
    } catch (const std::system_error& error) {
      failures[i] = std::make_exception_ptr(
          InterpreterStartError("interpreter " + std::to_string(slot) + ": " + error.what() +
                                ". What the system allows this process is used up: see ulimit -u, "
                                "vm.max_map_count and the control group's pids.max."));
      done->set_value();
    }
    return over;
  };
  std::vector<std::future<void>> starting;
  for (size_t i = given; i < count; ++i) {
    int slot = 0;
    {
      const std::lock_guard lock(mutex_);
      slot = ++slots_;
    }
    // The process's first goes alone: it makes the templates and registers torch's
    // operators, of which the others find everything done.
    starting.push_back(begin(i, slot));
    if (slot == 1) {
      starting.back().wait();
    }
  }
  for (std::future<void>& over : starting) {
    over.wait();
  }
  for (size_t i = given; i < count; ++i) {
    if (started[i] == nullptr && !failures[i]) {  // there was not even memory to say why
      failures[i] = std::make_exception_ptr(
          InterpreterStartError("an interpreter did not start, as there is no memory left."));
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::erase(started, nullptr);
      keep(std::move(started), wanted);
      std::rethrow_exception(failure);
    }
  }
  return started;
}

}  // namespace interpool
