// Is what we assume of torch's and CPython's layouts so in the headers that we are built with?
// Compiled with everything else, and linked to nothing.
#include <torch/csrc/autograd/python_variable.h>

#include <ATen/Context.h>
#include <ATen/ThreadLocalState.h>
#include <torch/custom_class.h>

#include "cpython.h"
#include "torch_layouts.h"

namespace interpool {

static_assert(PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x03100000,
              "the layouts in cpython.h are those of CPython 3.11 to 3.15: look at them for this version");
#ifdef Py_GIL_DISABLED
#error "interpool needs a CPython with a GIL: objects' heads are others in one without"
#endif
static_assert(sizeof(PyObject) == sizeof(ObjectHead));
static_assert(offsetof(PyObject, ob_refcnt) == offsetof(ObjectHead, refcount));
static_assert(offsetof(PyObject, ob_type) == offsetof(ObjectHead, type));
static_assert(offsetof(PyTypeObject, ob_base) == 0, "a type is an object as others are");

static_assert(sizeof(at::ThreadLocalState) == kThreadLocalStateBytes,
              "this torch keeps something else for each thread: look at it in slot/thread_state.cc as well");
static_assert(sizeof(at::Context) == kContextBytes,
              "this torch keeps something else in a Context: interpose/settings.cc compares its bytes");
static_assert(offsetof(THPVariable, cdata) == kTensorOffset);

// Reads the private members: their order and types are those of ClassBase.
struct ClassBaseMembers : torch::detail::class_base {
  static_assert(sizeof(torch::detail::class_base) == sizeof(ClassBase));
  static_assert(std::is_same_v<decltype(qualClassName), decltype(ClassBase::qualified_name)>);
  static_assert(std::is_same_v<decltype(classTypePtr), decltype(ClassBase::type)>);
};

}  // namespace interpool
