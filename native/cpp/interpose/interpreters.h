// Which interpreters live in this process, and which one a thread is in.
//
// Owner: the interposer library, one per process. Lock: `routes_mutex` inside interpreters.cc guards the
// table of routes. Readers on hot paths use the published snapshot, which is never freed (routes only ever
// grow).
#pragma once

#include <c10/core/impl/PyInterpreter.h>

#include <cstddef>
#include <cstdint>

namespace interpool {

// 0 is the host program's own Python, when it has one; 1, 2, ... are slots.
using InterpreterId = int;
inline constexpr InterpreterId kHost = 0;
inline constexpr InterpreterId kNone = -1;
inline constexpr InterpreterId kMaxInterpreters = 1024;

// How to reach one interpreter. Every function pointer may be called from any
// thread, with or without a GIL.
struct Route {
  InterpreterId id = kNone;
  // Address of the interpreter's own PyType_Type: the end of every
  // Py_TYPE(Py_TYPE(...)) chain of its objects, hence their owner's mark.
  const void* type_type = nullptr;
  // Does the calling thread hold this interpreter's GIL?
  bool (*holds_gil)() = nullptr;
  // Has it a thread state there, whether or not it holds the GIL?
  bool (*knows_thread)() = nullptr;
  // Drops one reference later, on a thread that holds no GIL.
  void (*defer_decref)(PyObject*) = nullptr;
  // The interpreter's torch.ops object of an operator; borrowed, kept alive by
  // torch.ops. Called with that interpreter's GIL held.
  PyObject* (*python_op)(const char* ns, const char* name, const char* overload) = nullptr;
  // Has the interpreter's Python make those deferred imports that register with torch. Returns whether there
  // were any; throws c10::Error if that failed. On a thread that works for this interpreter.
  bool (*register_deferred)() = nullptr;
  // libtorch_python's own vtable, once that interpreter has loaded it.
  const c10::impl::PyInterpreterVTable* vtable = nullptr;
};

#define INTERPOOL_API __attribute__((visibility("default")))

// Announces an interpreter before it loads anything that registers with torch.
INTERPOOL_API void add_route(const Route& route);

// Puts the router in front of an interpreter's PyInterpreter (whose vtable is
// kept as its route). `libtorch_python` is its dlopen handle. Called right after
// that was mapped, before any of its tensors exists; for a host that imported
// torch earlier, before the first slot does.
INTERPOOL_API void adopt_torch(InterpreterId id, c10::impl::PyInterpreter* interpreter,
                               void* libtorch_python);

// Installs the router as the process's PyInterpreter. Call once, before the
// first slot loads libtorch_python; harmless when repeated.
INTERPOOL_API void install_router();

// The interpreter that the calling thread has entered; set by the code that takes a
// slot's GIL for the thread. Returns what was set before.
INTERPOOL_API InterpreterId enter_interpreter(InterpreterId id) noexcept;

// The interpreter that the calling thread works for. It is the one that the thread entered or was started in,
// else the one whose GIL it holds. Else it is the first that has a thread state for it (torch releases the
// GIL while an operator runs), else kNone.
INTERPOOL_API InterpreterId current_interpreter() noexcept;

// Whether private interpreters may have states for the calling thread that were made without entering them.
// Only then are they all asked, which takes the longer the more there are. Returns what it was.
INTERPOOL_API bool may_have_states(bool may) noexcept;

const Route* route_of(InterpreterId id) noexcept;
const Route* owner_of(const PyObject* object) noexcept;

}  // namespace interpool
