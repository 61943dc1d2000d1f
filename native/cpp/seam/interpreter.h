// The seam: everything that touches an interpreter's Python C API stands behind
// `Interpreter`, which each slot's private copy of libinterpool_slot.so provides
// through one exported symbol. Nothing above it links a libpython.
//
// The host program's own Python, when it has one, stands behind the same seam:
// the unpatched library is bound to it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <interpool/errors.h>
#include <interpool/value.h>

#include "once.h"
#include "shared_part.h"

namespace interpool {

// A copy of an archive's bytes that no other program can write or truncate. The file goes when the last
// interpreter has unmapped it.
struct Snapshot {
  Snapshot(int file, size_t size, uint64_t id) : fd(file), bytes(size), number(id) {}
  ~Snapshot() { ::close(fd); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  const int fd;
  const size_t bytes;
  const uint64_t number;  // from 1; never used again in this process
  mutable Once once;      // what need not be found out about it in every interpreter
};

// What a slot asks of the process it lives in. Called on threads that hold no
// slot's GIL (the slot releases its own first), unless they say otherwise.
class Services {
 public:
  // Files to dlopen, in order, so that `path` is loaded for `slot`: private
  // copies of its private dependencies, then its own. Throws ProvisioningError.
  virtual std::vector<std::string> private_copy(const std::string& path, int slot) = 0;

  // Such a file was loaded, and this is its dlopen handle: what is the same in all copies of it
  // becomes one in memory. Again for a library that is loaded already does nothing.
  virtual void loaded(void* handle) = 0;

  // A hermetic archive, opened once per process for all interpreters that map it:
  // the snapshot of that number, or for 0 the file's. Throws ArchiveError.
  virtual std::shared_ptr<const Snapshot> open_archive(const std::string& path, uint64_t number) = 0;

  // What the pool of `slot` was given as the source of that module.
  struct ModuleSource {
    std::string text;
    bool package = false;  // has submodules
  };
  virtual std::optional<ModuleSource> module_source(const std::string& name, int slot) = 0;

  // What an interpreter says of its import of torch, for those that start later; "" before any has.
  virtual std::string import_note() = 0;
  virtual void keep_import_note(const std::string& note) = 0;
  // The folder that keeps such notes for processes that start later; "" for none.
  virtual std::string notes_folder() = 0;

  // Where storages with these contents lie in memory that interpreters have in common, see
  // core/shared_storages.h. The caller holds its GIL, so that what it points to stays. Without pieces, which
  // is how to wait for one's turn, it holds none. And: what was placed for `model` is found no more.
  virtual std::optional<std::vector<Placement>> place_storages(const std::string& key,
                                                               const std::vector<Piece>& pieces,
                                                               std::chrono::milliseconds patience) = 0;
  virtual void forget_storages(const std::string& model) = 0;

 protected:
  ~Services() = default;
};

struct StartOptions {
  int id = 0;                            // 0: attach to the host's running Python
  std::string executable;                // sys.executable, absolute
  std::string home;                      // sys.prefix; "" if the executable leads to it
  std::vector<std::string> search_path;  // sys.path
  std::string symbol_prefix;             // of the Py* names in private copies
  std::string libpython;                 // the slot's copy; empty for the host
  std::string loader;                    // path of interpool/native/inside/loader.py
  Services* services = nullptr;          // outlives the interpreter
};

// torch's modes of a thread that hold in what it calls, too: grad mode, inference mode,
// autocast. Null for those of a new thread. Defined by slot/thread_state.h.
struct Modes;
using CallerModes = std::shared_ptr<const Modes>;

// One interpreter. Never destroyed, and its Python never finalised.
class Interpreter {
 public:
  virtual int id() const = 0;

  // Takes the GIL for the calling thread; the thread's first visit makes its thread state. leave() releases
  // the GIL and keeps the thread state until the thread ends. Not recursive. The calling thread must hold no
  // other interpreter's GIL.
  virtual void enter() = 0;
  virtual void leave() noexcept = 0;

  // Those in which the calling thread entered; if it has not, those that it has.
  virtual CallerModes modes() const = 0;

  // A lease begins, for `model` ("" for no certain one): torch's settings become those that it had last in
  // here. And: its settings are forgotten, and if it is gone `everywhere`, the weights that interpreters
  // share for it, too. Any thread. The first may throw std::bad_alloc, and nothing has changed then.
  virtual void begin_lease(const std::string& model) = 0;
  virtual void forget_model(const std::string& model, bool everywhere) noexcept = 0;

  // Below, up to answer(): between enter() and leave(), on the thread that entered. Objects
  // are PyObject*, and a returned one is a new reference, given back by
  // release(). They throw RemoteError for Python exceptions, ConversionError
  // for values that cannot cross. `caller`: modes in which the object's own code runs, from
  // there until leave(); everything else runs in a new thread's. What crosses is made before.
  virtual void* global(const std::string& module, const std::string& name) = 0;
  virtual void* call(void* callable, const std::vector<Value>& args, const Keywords& keywords,
                     const CallerModes& caller) = 0;
  virtual void* attribute(void* object, const std::string& name, const CallerModes& caller) = 0;
  virtual bool has_attribute(void* object, const std::string& name, const CallerModes& caller) = 0;
  virtual void* item(void* object, const Value& key, const CallerModes& caller) = 0;
  virtual void* from_value(const Value& value) = 0;
  virtual Value to_value(void* object) = 0;
  virtual void* retain(void* object) noexcept = 0;  // another reference to it
  virtual void release(void* object) noexcept = 0;
  // For messages: the qualified name of a function or class, of other objects their
  // class's.
  virtual std::string label(void* object) = 0;
  // Every thread that has run Python here, except the caller. A list of (the kernel's number of it, its name
  // in Python or "", [frame, innermost first]).
  virtual Value stacks() = 0;
  // From here to end_interruptible(), on the same thread, interrupt(call) reaches the
  // calling thread. `call` is unique in the process. `shielded`: only in the Python code that is
  // called through `_interpool.call_interruptible`.
  virtual void begin_interruptible(uint64_t call, bool shielded) = 0;
  virtual void end_interruptible(uint64_t call) noexcept = 0;
  // What answers a served connection's messages in here: `factory(worker, load_command)`.
  virtual void* serve(void* factory, const std::string& worker, const std::string& load_command) = 0;
  // Takes the parts of an answer that come before its last one. Any thread, no GIL; false if the client takes
  // no more.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual bool send_part(std::string_view bytes) = 0;
  };
  // `service(message)`, which gives (bytes, keep the connection open), or None for elsewhere. The message is
  // not copied: views of it that are kept have its memory in common with the caller.
  struct Message {
    std::string_view bytes;
    std::shared_ptr<const void> memory;  // they lie in it
    double received = 0;                 // by time.monotonic(): when the last of them was
    std::shared_ptr<Receiver> receiver = nullptr;
  };
  struct Answer {
    std::string bytes;
    bool keep_open = false;
    bool elsewhere = false;  // another interpreter is to answer
  };
  virtual Answer answer(void* service, const Message& message) = 0;

  // Runs `work` on the interpreter's main thread, which holds no GIL; what it throws goes to stderr.
  // Returns at once; any thread, any GIL, entered or not. Throws std::bad_alloc.
  virtual void later(std::function<void()> work) = 0;

  // Raises CallInterrupted, a BaseException, in the Python code of that call, unless it is importing
  // something, and passes what it found to `report`. Neither happens when the call is over, or as long as the
  // GIL cannot be had. Returns at once; any thread, any GIL, entered or not.
  struct Interruption {
    std::string where;      // the stack, a line for each frame
    bool delivered = true;  // not in the middle of an import
  };
  virtual void interrupt(uint64_t call, std::function<void(Interruption)> report) = 0;

  // The last thread that entered and has not left, by the kernel's number, or 0; the interpreter's main one
  // does not count. Any thread.
  virtual int inside() const = 0;

  // No caller is to lease it again: what runs in here has said so. Any thread, any GIL.
  virtual bool wants_to_retire() const noexcept = 0;

  // For whom what runs in here has claimed it since the last take_claim(): no other flow is to lease it
  // again. Any thread, any GIL.
  virtual std::optional<std::string> take_claim() = 0;

  // It was retired, perhaps with its GIL held for ever: threads that have been in it end
  // without going back. Any thread, any GIL.
  virtual void abandon() noexcept = 0;

  // For the host, before its Python is finalised: runs nothing later any more, and
  // waits for what is running. The caller holds no GIL.
  virtual void close() = 0;

  // For the process's end. If no thread is at work in here, and none that its models started lives, it runs
  // nothing later any more, and returns true. Any thread that holds no GIL; waits for a moment.
  virtual bool close_if_idle() = 0;

  // Tells the router that this interpreter's libtorch_python was mapped from this
  // file, before any of its tensors exists.
  virtual void adopt_torch(const std::string& libtorch_python) = 0;

 protected:
  ~Interpreter() = default;
};

// Calls enter() and leave().
class Entered {
 public:
  explicit Entered(Interpreter& interpreter) : interpreter_(interpreter) { interpreter_.enter(); }
  ~Entered() { interpreter_.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Interpreter& interpreter_;
};

// A reference to an object, released while its interpreter is still entered.
class Held {
 public:
  Held(Interpreter& interpreter, void* object) : interpreter_(interpreter), object_(object) {}
  ~Held() { interpreter_.release(object_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void* get() const { return object_; }

 private:
  Interpreter& interpreter_;
  void* const object_;
};

// Calls begin_interruptible() and end_interruptible(), within an Entered.
class Interruptible {
 public:
  Interruptible(Interpreter& interpreter, uint64_t call, bool shielded = false)
      : interpreter_(interpreter), call_(call) {
    interpreter_.begin_interruptible(call_, shielded);
  }
  ~Interruptible() { interpreter_.end_interruptible(call_); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  Interpreter& interpreter_;
  const uint64_t call_;
};

// The one symbol that libinterpool_slot.so exports. Starts the interpreter on the calling thread, or attaches
// to the host's, whose GIL the caller then holds. The thread must last as long as the process: Python takes
// it for its main thread. Returns with no GIL held. Throws InterpreterStartError.
using OpenInterpreter = Interpreter* (*)(const StartOptions&);
inline constexpr const char* kOpenInterpreter = "interpool_open_interpreter";

}  // namespace interpool
