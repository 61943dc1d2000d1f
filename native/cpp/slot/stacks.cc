#include "stacks.h"

#include <frameobject.h>

#include <string_view>

#include "../seam/guest_modules.h"
#include "../upstream/cpython.h"

namespace interpool {
namespace {

std::string text_attribute(PyObject* object, const char* name) {
  const Ref value = steal(PyObject_GetAttrString(object, name));
  if (!value || PyUnicode_Check(value.get()) == 0) {
    PyErr_Clear();
    return "?";
  }
  return to_utf8(value.get());
}

// What threading calls it, for a thread that threading has heard of: one that Python started in here. The
// name that it makes up for another ("Dummy-1") may be that of an earlier thread with the same ident. The
// host knows a better one.
std::string name_of_thread(PyObject* active, unsigned long ident) {
  const Ref key = steal(PyLong_FromUnsignedLong(ident));
  PyObject* known = active != nullptr && key ? PyDict_GetItemWithError(active, key.get()) : nullptr;
  if (known == nullptr || std::string_view(Py_TYPE(known)->tp_name) == kForeignThread) {
    PyErr_Clear();
    return "";
  }
  const Ref kept = borrow(known);
  return text_attribute(kept.get(), kThreadName);
}

// Does the frame run that function of interpool's own?
bool is_frame_of(PyFrameObject* frame, PyObject* code, const guest::Name& function) {
  if (text_attribute(code, "co_qualname") != function.name) {
    return false;
  }
  const Ref globals = steal(PyFrame_GetGlobals(frame));
  PyObject* const module = PyDict_GetItemString(globals.get(), "__name__");  // borrowed
  return module != nullptr && PyUnicode_Check(module) != 0 &&
         PyUnicode_CompareWithASCIIString(module, function.module) == 0;
}

}  // namespace

std::vector<std::string> stack_of(PyThreadState* thread) {
  std::vector<std::string> frames;
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame != nullptr) {
    const Ref kept = steal(reinterpret_cast<PyObject*>(frame));
    const Ref code = steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    frames.push_back(text_attribute(code.get(), "co_qualname") + " (" +
                     text_attribute(code.get(), "co_filename") + ":" +
                     std::to_string(PyFrame_GetLineNumber(frame)) + ")");
    frame = PyFrame_GetBack(frame);
  }
  return frames;
}

bool is_importing(PyThreadState* thread) {
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  while (frame != nullptr) {
    const Ref kept = steal(reinterpret_cast<PyObject*>(frame));
    const Ref code = steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const bool is_importlibs = text_attribute(code.get(), "co_name") == kImportFunction &&
                               text_attribute(code.get(), "co_filename") == kImportFile;
    if (is_importlibs || is_frame_of(frame, code.get(), guest::kFamilyImport) ||
        is_frame_of(frame, code.get(), guest::kArchiveImport)) {
      return true;
    }
    frame = PyFrame_GetBack(frame);
  }
  return false;
}

Value thread_stacks() {
  const Ref threading_name = steal(PyUnicode_FromString("threading"));
  const Ref threading = steal(PyImport_GetModule(threading_name.get()));  // imports nothing
  const Ref active = steal(threading ? PyObject_GetAttrString(threading.get(), kThreadsByIdent) : nullptr);
  PyErr_Clear();
  const WithoutCollector quiet;
  PyThreadState* self = PyThreadState_Get();
  List threads;
  // A thread's state goes with the GIL held, and a new one is put at the head.
  for (PyThreadState* thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); thread != nullptr;
       thread = PyThreadState_Next(thread)) {
    if (thread == self) {
      continue;
    }
    List frames;
    for (std::string& frame : stack_of(thread)) {
      frames.items.push_back({std::move(frame)});
    }
    threads.items.push_back({Tuple{
        {{static_cast<int64_t>(thread->native_thread_id)},
         {name_of_thread(active && PyDict_Check(active.get()) ? active.get() : nullptr, thread->thread_id)},
         {std::move(frames)}}}});
  }
  return {std::move(threads)};
}

}  // namespace interpool
