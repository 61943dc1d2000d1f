// One private interpreter, or the host's own Python, behind the seam.
#include "../seam/interpreter.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>

#include "../interpose/at_work.h"
#include "../interpose/interpreters.h"
#include "../interpose/settings.h"
#include "../seam/guest_modules.h"
#include "../seam/reported.h"
#include "claims.h"
#include "convert.h"
#include "interruption.h"
#include "lent_view.h"
#include "libraries.h"
#include "main_thread.h"
#include "python.h"
#include "stacks.h"
#include "start_python.h"
#include "thread_state.h"
#include "torch_python.h"

namespace interpool {
namespace {

std::atomic<bool> abandoned{false};  // see Interpreter::abandon

// The calling thread's state in this interpreter, kept between visits. Making one costs more than a small
// call, and threading.local would lose its values. thread_local in a private copy is per interpreter and
// thread.
struct Attachment {
  PyThreadState* state = nullptr;
  int thread = 0;  // the kernel's number; 0 for the main thread, which leases nothing
  InterpreterId before = kNone;
  bool entered = false;
  bool visitor = false;                // has a state here because it visits, and for no other reason
  std::optional<ThreadState> outside;  // torch's state of the thread when it entered, if more than modes
  CallerModes modes;                   // of that
  int autocast_blocks = 0;             // likewise
  Trace trace;                         // likewise
  ThreadSettings settings;             // likewise

  ~Attachment() {
    // The process's main thread ends with the process; waiting for a GIL then
    // could keep it from ending.
    if (state == nullptr || abandoned || syscall(SYS_gettid) == getpid()) {
      return;
    }
    if (settings.interpreter != kNone) {
      begin_work(settings.interpreter);
    }
    PyEval_RestoreThread(state);
    PyGILState_Release(PyGILState_UNLOCKED);  // the Ensure of enter(): frees the state
    if (settings.interpreter != kNone) {
      end_work(settings.interpreter);
    }
  }
};
thread_local Attachment attachment;

// A visitor's thread has a state here between its visits, too: it works for this interpreter
// in its visits only.
bool knows_thread() {
  return attachment.visitor ? attachment.entered
                            : Py_IsInitialized() != 0 && PyGILState_GetThisThreadState() != nullptr;
}

// A thread without a state here cannot hold this GIL; PyGILState_Check alone says yes to every thread as long
// as Python is not initialised.
bool holds_gil() {
  return Py_IsInitialized() != 0 && PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() != 0;
}

void decref_later(PyObject* object) {
  // A tensor's destructor cannot throw. If there is no memory to queue the work, the object is leaked.
  reported([object] {
    MainThread::get().run_later([object] {
      const WithGil gil;
      Py_DECREF(object);
    });
  });
}

class PythonInterpreter final : public Interpreter {
 public:
  explicit PythonInterpreter(StartOptions options) : options_(std::move(options)) {}

  // The host's own Python; its GIL is held.
  void attach() {
    announce();
    install_router();
    MainThread::get().start([] {});
  }

  // A slot's Python, on its main thread.
  void start() {
    MainThread::get().start([this] {
      announce();
      install_router();  // a program without a Python has had none to do it
      enter_interpreter(options_.id);
      use_settings(options_.id, "");
      enter_settings(options_.id, attachment.settings);  // what leave() ends
      initialise_python(options_);
      attachment.state = PyThreadState_Get();
      try {
        run_loader(options_);
        const Ref bootstrap = checked(PyImport_ImportModule(guest::kInstall.module));
        checked(PyObject_CallMethod(bootstrap.get(), guest::kInstall.name, nullptr));
        set_usual_flags();
        pristine_.emplace();
        pristine_is_fresh_ = thread_state_is_fresh();
      } catch (const RemoteError& error) {
        lose();
        throw InterpreterStartError("interpreter " + std::to_string(options_.id) +
                                    " could not be prepared: " + error.what() + "\n" + error.traceback_text);
      } catch (...) {
        lose();
        throw;
      }
      leave();
    });
  }

  int id() const override { return options_.id; }

  void enter() override {
    // libtorch keeps grad mode, autocast, dispatch modes and the like per thread, for all interpreters. Each
    // visit starts from what a fresh thread has, and leaves nothing behind. Modes and hooks are Python
    // objects of their interpreter, whose GIL is taken to copy or drop them: no other may be held. Most
    // threads that come are as fresh as it is, or but for modes, and most calls leave them so. What modes()
    // says of the caller comes back for a model's own code only.
    if (pristine_.has_value()) {
      attachment.autocast_blocks = autocast_blocks();
      attachment.trace = take_trace();  // a call's answer is a constant of it
      if (!pristine_is_fresh_ || !thread_state_is_fresh()) {
        attachment.modes = modes_of_thread();
        if (pristine_is_fresh_ && attachment.modes != nullptr && is_fresh_but_for_modes()) {
          clear_modes();
        } else {
          attachment.outside.emplace();
          pristine_->set();
        }
      }
      enter_settings(options_.id, attachment.settings);
    }
    if (attachment.state == nullptr) {
      attachment.thread = MainThread::is_here() ? 0 : static_cast<int>(syscall(SYS_gettid));
      arrive();
      attachment.visitor = PyGILState_GetThisThreadState() == nullptr;
      const bool before = may_have_states(true);
      PyGILState_Ensure();
      may_have_states(before);  // between its visits it works for no interpreter
      attachment.state = PyThreadState_Get();
    } else {
      arrive();
      PyEval_RestoreThread(attachment.state);
    }
    attachment.before = enter_interpreter(options_.id);
    attachment.entered = true;
  }

  void leave() noexcept override {
    attachment.entered = false;
    enter_interpreter(attachment.before);
    PyEval_SaveThread();
    if (attachment.thread != 0) {
      inside_.store(0, std::memory_order_relaxed);
    }
    if (!pristine_.has_value()) {
      return;
    }
    leave_settings(attachment.settings);
    restore_autocast_blocks(attachment.autocast_blocks);
    if (attachment.outside.has_value()) {
      attachment.outside->set();
      attachment.outside.reset();
      attachment.modes.reset();
    } else if (attachment.modes != nullptr || !thread_state_is_fresh()) {
      if (!is_fresh_but_for_modes()) {
        pristine_->set();
      }
      if (attachment.modes == nullptr) {
        clear_modes();
      } else {
        restore_modes(*attachment.modes);
        attachment.modes.reset();
      }
    }
    restore_trace(std::move(attachment.trace));  // last: it has a dispatch key
  }

  CallerModes modes() const override { return attachment.entered ? attachment.modes : modes_of_thread(); }

  void begin_lease(const std::string& model) override { use_settings(options_.id, model); }

  void forget_model(const std::string& model, bool everywhere) noexcept override {
    forget_settings(options_.id, model);
    if (everywhere) {
      options_.services->forget_storages(model);
    }
  }

  void* global(const std::string& module, const std::string& name) override {
    if (module.find('\0') != std::string::npos) {  // CPython would stop reading there
      throw RemoteError("ModuleNotFoundError", "a module's name holds no NUL", "");
    }
    const Ref module_name = from_utf8(module);
    // One that is there needs no way through importlib. None stands for one that must not be imported.
    Ref imported = steal(PyImport_GetModule(module_name.get()));
    if (!imported || imported.get() == Py_None) {
      check(PyErr_Occurred() == nullptr ? 0 : -1);
      imported = checked(PyImport_Import(module_name.get()));
    }
    const Ref attribute_name = from_utf8(name);
    return checked(PyObject_GetAttr(imported.get(), attribute_name.get())).release();
  }

  void* call(void* callable, const std::vector<Value>& args, const Keywords& keywords,
             const CallerModes& caller) override {
    const Ref positional = checked(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
    for (size_t i = 0; i < args.size(); ++i) {
      PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i),
                       object_of(args[i], options_.id).release());
    }
    Ref named;
    if (!keywords.empty()) {
      named = checked(PyDict_New());
      for (const auto& [key, value] : keywords) {
        const Ref key_object = from_utf8(key);
        const Ref object = object_of(value, options_.id);
        check(PyDict_SetItem(named.get(), key_object.get(), object.get()));
      }
    }
    set_modes(caller);
    return checked(PyObject_Call(static_cast<PyObject*>(callable), positional.get(), named.get())).release();
  }

  void* attribute(void* object, const std::string& name, const CallerModes& caller) override {
    const Ref attribute_name = from_utf8(name);
    set_modes(caller);
    return checked(PyObject_GetAttr(static_cast<PyObject*>(object), attribute_name.get())).release();
  }

  bool has_attribute(void* object, const std::string& name, const CallerModes& caller) override {
    const Ref attribute_name = from_utf8(name);
    set_modes(caller);
    PyObject* found = PyObject_GetAttr(static_cast<PyObject*>(object), attribute_name.get());
    if (found == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
        throw_pending();
      }
      PyErr_Clear();
      return false;
    }
    Py_DECREF(found);
    return true;
  }

  void* item(void* object, const Value& key, const CallerModes& caller) override {
    const Ref key_object = object_of(key, options_.id);
    set_modes(caller);
    return checked(PyObject_GetItem(static_cast<PyObject*>(object), key_object.get())).release();
  }

  void* from_value(const Value& value) override { return object_of(value, options_.id).release(); }

  Value to_value(void* object) override { return value_of(static_cast<PyObject*>(object)); }

  void* retain(void* object) noexcept override { return Py_NewRef(static_cast<PyObject*>(object)); }

  void release(void* object) noexcept override { Py_DECREF(static_cast<PyObject*>(object)); }

  std::string label(void* object) override { return label_of(static_cast<PyObject*>(object)); }

  Value stacks() override { return thread_stacks(); }

  void begin_interruptible(uint64_t call, bool shielded) override {
    interpool::begin_interruptible(call, shielded);
  }

  void end_interruptible(uint64_t call) noexcept override { interpool::end_interruptible(call); }

  void* serve(void* factory, const std::string& worker, const std::string& load_command) override {
    return checked(PyObject_CallFunction(static_cast<PyObject*>(factory), "s#y#", worker.data(),
                                         static_cast<Py_ssize_t>(worker.size()), load_command.data(),
                                         static_cast<Py_ssize_t>(load_command.size())))
        .release();
  }

  Answer answer(void* service, const Message& message) override {
    const LentView lent(message);
    const Ref result = checked(PyObject_CallOneArg(static_cast<PyObject*>(service), lent.view()));
    if (result.get() == Py_None) {
      return {.bytes = {}, .keep_open = true, .elsewhere = true};
    }
    PyObject* reply = PyTuple_Check(result.get()) != 0 && PyTuple_GET_SIZE(result.get()) == 2
                          ? PyTuple_GET_ITEM(result.get(), 0)
                          : nullptr;
    if (reply == nullptr || (PyBytes_Check(reply) == 0 && PyByteArray_Check(reply) == 0)) {
      throw ConversionError(std::string("a service answers (bytes, keep the connection open), not a ") +
                            Py_TYPE(reply != nullptr ? reply : result.get())->tp_name);
    }
    const int keep_open = PyObject_IsTrue(PyTuple_GET_ITEM(result.get(), 1));
    check(keep_open);
    if (PyBytes_Check(reply) != 0) {
      return {
          {PyBytes_AS_STRING(reply), static_cast<size_t>(PyBytes_GET_SIZE(reply))}, keep_open != 0, false};
    }
    return {{PyByteArray_AS_STRING(reply), static_cast<size_t>(PyByteArray_GET_SIZE(reply))},
            keep_open != 0,
            false};
  }

  void later(std::function<void()> work) override { MainThread::get().run_later(std::move(work)); }

  void interrupt(uint64_t call, std::function<void(Interruption)> report) override {
    later([call, report = std::move(report)] {
      const WithGil gil;
      if (auto interruption = interrupt_call(call)) {
        report(std::move(*interruption));
      }
    });
  }

  int inside() const override { return inside_.load(std::memory_order_relaxed); }

  bool wants_to_retire() const noexcept override { return interpool::wants_to_retire(); }
  std::optional<std::string> take_claim() override { return interpool::take_claim(); }

  void abandon() noexcept override { abandoned = true; }

  void close() override { MainThread::get().close(); }

  bool close_if_idle() override { return MainThread::get().close_if_idle() && !is_at_work(options_.id); }

  void adopt_torch(const std::string& libtorch_python) override {
    adopt_torch_python(options_.id, libtorch_python);
  }

 private:
  // Called before the wait for the GIL: a thread that waits for it counts as inside. One thread at a time,
  // as one leases.
  void arrive() {
    if (attachment.thread != 0) {
      inside_.store(attachment.thread, std::memory_order_relaxed);
    }
  }

  // The start has failed. The slot is lost, and left as it is: this thread ends, and must not take Python's
  // main thread state with it.
  void lose() noexcept {
    pristine_.reset();  // or leave() would look at torch's state, which may be what failed
    leave();
    end_work(options_.id);
    attachment.state = nullptr;
  }

  static PyObject* python_op(const char* ns, const char* name, const char* overload) {
    const Ref torch = checked(PyImport_ImportModule("torch"));
    const Ref ops = checked(PyObject_GetAttrString(torch.get(), "ops"));
    const Ref space = checked(PyObject_GetAttrString(ops.get(), ns));
    const Ref packet = checked(PyObject_GetAttrString(space.get(), name));
    // Borrowed by the caller: torch.ops caches what it hands out.
    return checked(PyObject_GetAttrString(packet.get(), *overload != 0 ? overload : "default")).get();
  }

  // See Route. Kernels are called with or without the GIL.
  static bool register_deferred() {
    if (!registers_deferred()) {
      return false;
    }
    bool brought = false;
    std::string failure;
    try {
      const WithGil gil;
      const Ref module = checked(PyImport_ImportModule(guest::kImportRegistering.module));
      const Ref result = checked(PyObject_CallMethod(module.get(), guest::kImportRegistering.name, nullptr));
      brought = result.get() == Py_True;
    } catch (const RemoteError& error) {
      failure = std::string(error.what()) + "\n" + error.traceback_text;
    }
    TORCH_CHECK(failure.empty(),
                "interpool: what torch registers in Python could not be imported: ", failure);
    return brought;
  }

  void announce() const {
    Route route;
    route.id = options_.id;
    route.type_type = &PyType_Type;
    route.holds_gil = holds_gil;
    route.knows_thread = knows_thread;
    route.defer_decref = decref_later;
    route.python_op = python_op;
    route.register_deferred = register_deferred;
    add_route(route);
  }

  const StartOptions options_;
  std::atomic<int> inside_{0};
  // torch's state of a thread that has done nothing yet. Written by start().
  std::optional<ThreadState> pristine_;
  bool pristine_is_fresh_ = false;
};

}  // namespace
}  // namespace interpool

extern "C" __attribute__((visibility("default"))) interpool::Interpreter* interpool_open_interpreter(
    const interpool::StartOptions& options) {
  // Never destroyed: threads may come back to it at any time.
  auto* interpreter = new interpool::PythonInterpreter(options);
  if (options.id == interpool::kHost) {
    interpreter->attach();
  } else {
    interpreter->start();
  }
  return interpreter;
}
