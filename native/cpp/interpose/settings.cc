#include "settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "../upstream/torch_layouts.h"
#include "../upstream/torch_symbols.h"
#include "../upstream/torch_words.h"
#include "at_work.h"
#include "entered.h"
#include "generators.h"
#include "got_patching.h"
#include "per_interpreter.h"
#include "thread_attributes.h"

namespace interpool {
namespace {

// What a Context keeps in a map, of which its own bytes say nothing. An entry that is NONE is answered by a
// more general one. So a Context that answers as a new one does, has a new one's entries.
std::array<at::Float32Precision, 9> precisions(const at::Context& context) {
  using Backend = at::Float32Backend;
  using Op = at::Float32Op;
  std::array<at::Float32Precision, 9> found{context.float32Precision(Backend::GENERIC, Op::ALL)};
  size_t next = 1;
  for (const Backend backend : {Backend::CUDA, Backend::MKLDNN}) {
    for (const Op op : {Op::ALL, Op::CONV, Op::RNN, Op::MATMUL}) {
      found.at(next++) = context.float32Precision(backend, op);
    }
  }
  return found;
}

using Clock = std::chrono::steady_clock;

// An operator refers to a Context as long as it runs, which is less.
constexpr std::chrono::minutes kLongestOperator{10};

struct Settings {
  Settings() { std::memcpy(born.data(), static_cast<const void*>(&context), born.size()); }

  // Has no code changed anything? Then the next that wants fresh ones may have these. A Context has no
  // operator==; one that has looked at its devices counts as changed.
  bool untouched() const {
    return std::memcmp(born.data(), &context, born.size()) == 0 && precisions(context) == born_precisions &&
           default_dtype == c10::ScalarType::Float && !flush_denormal && threads == 0 && !warned;
  }

  // Remembers, too, that devices were initialised: libtorch_cuda then looks at its
  // devices once for each Context, which changes nothing the second time.
  at::Context context;
  std::atomic<c10::ScalarType> default_dtype{c10::ScalarType::Float};
  std::atomic<bool> flush_denormal{false};
  std::atomic<int> threads{0};  // 0: the process's
  std::atomic<bool> warned{false};
  std::optional<GeneratorState> generator;  // while another model has its turn
  Clock::time_point retired_at;
  std::shared_ptr<Settings> retired_next;
  std::array<std::byte, kContextBytes> born;
  const std::array<at::Float32Precision, 9> born_precisions = precisions(context);
};

struct InterpreterSettings {
  std::mutex mutex;  // guards all below, and writes to the interpreter's place in `in_force`
  std::string model;
  std::shared_ptr<Settings> current;
  uint64_t fresh_seed = 0;  // the system's, not a model's
  std::map<std::string, std::shared_ptr<Settings>> models;
  std::shared_ptr<Settings> retired;  // the first of them, which has the next one
  Settings* retired_last = nullptr;
};

// Read by most operators, without a lock.
std::array<std::atomic<Settings*>, kMaxInterpreters> in_force;

InterpreterSettings& settings_of(InterpreterId id) {
  static PerInterpreter<InterpreterSettings> all;
  return all.of(id, [] { return new InterpreterSettings; });
}

// Its lock is held.
void retire(InterpreterSettings& own, std::shared_ptr<Settings> settings, Clock::time_point now) noexcept {
  settings->retired_at = now;
  Settings* const last = settings.get();
  (own.retired != nullptr ? own.retired_last->retired_next : own.retired) = std::move(settings);
  own.retired_last = last;
}

// Frees what is retired, if no thread can be looking at it: an operator refers to a Context as long as it
// runs. A thread that stays, such as an executor's, counts as at work for ever. So it also frees what was
// retired long ago. Its lock is held, and none of these is in force any more. That was written before the
// count is looked at here; a thread is counted before it reads what is in force. So if the count is zero,
// those who had read it before have left, and those who come read what is in force now.
void free_retired(InterpreterSettings& own, InterpreterId id, Clock::time_point now) noexcept {
  const bool at_work = is_at_work(id);
  while (own.retired != nullptr && (!at_work || now - own.retired->retired_at > kLongestOperator)) {
    own.retired = std::exchange(own.retired->retired_next, nullptr);
  }
}

// The settings of the calling thread's interpreter; none for the host's and for
// threads of no interpreter.
Settings* settings_here() {
  const InterpreterId here = interpreter_here();
  return here > kHost ? in_force[static_cast<size_t>(here)].load(std::memory_order_acquire) : nullptr;
}

void set_threads_here(int count) {
  // at::set_num_threads would also set the number that threads to come begin with,
  // and MKL's for the whole process. These two are the calling thread's own.
  if (torch_symbols.set_openmp_threads != nullptr) {
    torch_symbols.set_openmp_threads(count);
  }
}

int set_mkl_threads_here(int count) {
  return torch_symbols.set_mkl_threads != nullptr ? torch_symbols.set_mkl_threads(count) : 0;
}

thread_local ThreadSettings* visit = nullptr;  // the calling thread's, while it is inside

void remember_threads(ThreadSettings& outside) {
  if (!outside.threads_set) {
    outside.threads = at::get_num_threads();  // also gives a new thread its number
    outside.mkl_threads = set_mkl_threads_here(0);
    outside.threads_set = true;
  }
}

uint16_t x87_modes() {
  uint16_t modes = 0;
  asm volatile("fnstcw %0" : "=m"(modes));
  return modes;
}

// fegetenv and fesetenv cost more than the rest of a visit's settings, as they store and load all of x87.
FloatModes float_modes() {
  return {.sse = _mm_getcsr(), .x87 = x87_modes()};
}

void set_float_modes(const FloatModes& modes) {
  _mm_setcsr(modes.sse);
  if (x87_modes() != modes.x87) {
    asm volatile("fldcw %0" : : "m"(modes.x87));
  }
}

// Has those of libtorch's libraries that are loaded use the settings below. A handle stays open: what is
// patched is not to go. Any thread.
void bind_loaded_libraries() {
  static const std::set<std::string_view> per_interpreter = {
      mangled::global_context,          mangled::default_cpu_generator,
      mangled::get_default_dtype,       mangled::get_default_complex_dtype,
      mangled::get_default_scalar_type,
  };
  static std::mutex mutex;
  static std::set<void*> bound;
  const std::lock_guard lock(mutex);
  for (const char* name : kLibtorch) {
    void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) {
      continue;
    }
    if (bound.insert(library).second) {
      patch_got_to_interposer(library,
                              [](std::string_view found) { return per_interpreter.contains(found); });
    } else {
      dlclose(library);
    }
  }
}

// dlopen, as libtorch_cpu calls it: libtorch_cuda_linalg.so is loaded when it is first needed. dlopen looks
// for a name without a folder in folders that the calling file names, and this is another file. So
// libtorch_cpu's folder comes first. It throws nothing, as dlopen does not.
void* open_for_libtorch(const char* name, int mode) noexcept {
  void* library = nullptr;
  try {
    Dl_info caller{};
    if (name != nullptr && std::string_view(name).find('/') == std::string_view::npos &&
        dladdr(__builtin_return_address(0), &caller) != 0) {
      const std::string_view file(caller.dli_fname);
      const std::string beside = std::string(file.substr(0, file.rfind('/') + 1)) + name;
      library = ::access(beside.c_str(), F_OK) == 0 ? dlopen(beside.c_str(), mode) : nullptr;
    }
    if (library == nullptr) {
      library = dlopen(name, mode);
    }
    if (library != nullptr) {
      bind_loaded_libraries();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "interpool: %s has torch's settings of the process, and not a model's own: %s\n",
                 name != nullptr ? name : "a library", error.what());
  }
  return library;
}

// torch loads CUDA's linear algebra when it is first needed. It refuses a second thread that needs it at that
// moment (pytorch#90613), as happens if several interpreters begin at once. So it is loaded before them, if
// this machine has a driver for GPUs.
void load_linear_algebra() {
  Dl_info libtorch{};
  if (::access("/dev/nvidiactl", F_OK) != 0 ||
      dladdr(reinterpret_cast<void*>(torch_symbols.set_engine_stub), &libtorch) == 0) {
    return;
  }
  const std::string_view file(libtorch.dli_fname);
  const std::string library = std::string(file.substr(0, file.rfind('/') + 1)) + kCudaLinalg;
  if (::access(library.c_str(), F_OK) == 0 && dlopen(library.c_str(), RTLD_LAZY) == nullptr) {
    std::fprintf(stderr, "interpool: %s\n", dlerror());
  }
}

}  // namespace

void install_settings() {
  static std::once_flag once;
  std::call_once(once, [] {
    load_linear_algebra();
    bind_loaded_libraries();
    if (void* const libtorch = dlopen(kTorchCpu, RTLD_LAZY | RTLD_NOLOAD)) {
      patch_got(libtorch, {{"dlopen", reinterpret_cast<void*>(&open_for_libtorch)}});
      dlclose(libtorch);
    }
  });
}

void use_settings(InterpreterId id, const std::string& model, Clock::time_point now) {
  InterpreterSettings& own = settings_of(id);
  const std::lock_guard lock(own.mutex);
  if (own.current != nullptr && model == own.model) {
    if (!model.empty() || (own.current->untouched() && generator_seed(id) == own.fresh_seed)) {
      return;
    }
  }
  // What may lack memory comes first: if it throws, nothing has changed.
  make_generator(id);
  const auto known = model.empty() ? own.models.end() : own.models.find(model);
  const auto next = known != own.models.end() ? known->second : std::make_shared<Settings>();
  if (!model.empty()) {
    own.models.try_emplace(model, next);
  }
  bool random = false;  // does the generator stand where no model has put it?
  if (own.current != nullptr) {
    if (!own.model.empty()) {
      own.current->generator = generator_state(id);
    } else {
      retire(own, std::move(own.current), now);
      random = generator_seed(id) == own.fresh_seed;
    }
  }
  own.current = next;
  in_force[static_cast<size_t>(id)].store(own.current.get(), std::memory_order_release);
  if (own.current->generator.has_value()) {
    set_generator_state(id, *own.current->generator);
  } else if (!random) {
    own.fresh_seed = reseed_generator(id);
  }
  own.model = model;
  free_retired(own, id, now);
}

void forget_settings(InterpreterId id, const std::string& model) {
  InterpreterSettings& own = settings_of(id);
  const auto now = Clock::now();
  const std::lock_guard lock(own.mutex);
  const auto known = own.models.find(model);
  if (known == own.models.end()) {
    return;
  }
  if (known->second == own.current) {
    own.model.clear();  // no model's from the next lease on
  } else {
    retire(own, known->second, now);
  }
  own.models.erase(known);
  free_retired(own, id, now);
}

void enter_settings(InterpreterId id, ThreadSettings& outside) {
  begin_work(id);
  outside.interpreter = id;
  enter_attributes();
  outside.floats = float_modes();
  set_float_modes({});
  outside.threads_set = false;
  visit = &outside;
  const Settings* settings = in_force[static_cast<size_t>(id)].load(std::memory_order_acquire);
  if (settings == nullptr) {
    return;
  }
  if (settings->flush_denormal.load(std::memory_order_relaxed)) {
    torch_symbols.set_flush_denormal(true);
  }
  if (const int threads = settings->threads.load(std::memory_order_relaxed)) {
    remember_threads(outside);
    set_threads_here(threads);
    set_mkl_threads_here(threads);
  }
}

void leave_settings(const ThreadSettings& outside) noexcept {
  visit = nullptr;
  leave_attributes();
  if (outside.threads_set) {
    set_threads_here(outside.threads);
    set_mkl_threads_here(outside.mkl_threads);
  }
  set_float_modes(outside.floats);
  end_work(outside.interpreter);
}

void want_anomaly(bool wanted) {
  using torch::autograd::AnomalyMode;
  static std::mutex mutex;  // a leaf lock
  static int wanting = 0;
  static bool before = false;  // the host's
  static bool before_nan = false;
  const std::lock_guard lock(mutex);
  if (wanted && wanting++ == 0) {
    before = AnomalyMode::is_enabled();
    before_nan = AnomalyMode::should_check_nan();
    AnomalyMode::set_enabled(true, before && before_nan);
  } else if (!wanted && --wanting == 0) {
    AnomalyMode::set_enabled(before, before_nan);
  }
}

}  // namespace interpool

using namespace interpool;

namespace at {

INTERPOOL_API Context& globalContext() {
  if (Settings* settings = settings_here()) {
    return settings->context;
  }
  return torch_symbols.global_context();
}

INTERPOOL_API bool Context::setFlushDenormal(bool on) {
  const bool done = torch_symbols.set_flush_denormal(on);
  if (Settings* settings = settings_here(); settings != nullptr && done) {
    settings->flush_denormal = on;
  }
  return done;
}

INTERPOOL_API void set_num_threads(int count) {
  Settings* settings = settings_here();
  if (settings == nullptr) {
    torch_symbols.set_num_threads(count);
    return;
  }
  TORCH_CHECK(count > 0, "Expected positive number of threads");
  if (visit != nullptr) {  // else a thread of the model's own
    remember_threads(*visit);
    settings->threads = count;
  } else {
    at::get_num_threads();  // a new thread is given the process's number at first
  }
  set_threads_here(count);
  set_mkl_threads_here(count);
}

INTERPOOL_API void set_num_interop_threads(int count) {
  Settings* settings = settings_here();
  if (settings == nullptr) {
    torch_symbols.set_num_interop_threads(count);
    return;
  }
  TORCH_CHECK(count > 0, "Expected positive number of threads");
  if (static_cast<size_t>(count) != at::get_num_interop_threads() && !settings->warned.exchange(true)) {
    TORCH_WARN("interpool: torch.set_num_interop_threads(", count,
               ") has no effect in here: all interpreters of the process share its inter-op threads. Set "
               "their number in the host, before it makes an InterpreterManager.");
  }
}

}  // namespace at

namespace c10 {

INTERPOOL_API void set_default_dtype(caffe2::TypeMeta dtype) {
  if (Settings* settings = settings_here()) {
    settings->default_dtype = dtype.toScalarType();
    return;
  }
  torch_symbols.set_default_dtype(dtype);
}

INTERPOOL_API const caffe2::TypeMeta get_default_dtype() {
  if (const Settings* settings = settings_here()) {
    return scalarTypeToTypeMeta(settings->default_dtype);
  }
  return torch_symbols.get_default_dtype();
}

INTERPOOL_API ScalarType get_default_dtype_as_scalartype() {
  return get_default_dtype().toScalarType();
}

INTERPOOL_API const caffe2::TypeMeta get_default_complex_dtype() {
  if (const Settings* settings = settings_here()) {
    return scalarTypeToTypeMeta(settings->default_dtype == ScalarType::Half     ? ScalarType::ComplexHalf
                                : settings->default_dtype == ScalarType::Double ? ScalarType::ComplexDouble
                                                                                : ScalarType::ComplexFloat);
  }
  return torch_symbols.get_default_complex_dtype();
}

}  // namespace c10
