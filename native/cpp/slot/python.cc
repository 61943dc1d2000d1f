#include "python.h"

#include <interpool/errors.h>
#include "../seam/guest_modules.h"

namespace interpool {
namespace {

std::string text_of(PyObject* object, const char* otherwise) {
  if (object != nullptr) {
    const Ref text = steal(PyObject_Str(object));
    if (text) {
      const Ref bytes = steal(PyUnicode_AsEncodedString(text.get(), "utf-8", "backslashreplace"));
      if (bytes) {
        return {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))};
      }
    }
    PyErr_Clear();
  }
  return otherwise;
}

std::string name_of(PyObject* type) {
  const Ref module = steal(PyObject_GetAttrString(type, "__module__"));
  const Ref name = steal(PyObject_GetAttrString(type, "__qualname__"));
  PyErr_Clear();
  const std::string prefix = text_of(module.get(), "");
  const std::string suffix = text_of(name.get(), "Exception");
  return prefix.empty() || prefix == "None" || prefix == "builtins" ? suffix : prefix + "." + suffix;
}

Ref pending_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return steal(PyErr_GetRaisedException());
#else
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref owned_type = steal(type);
  const Ref owned_traceback = steal(traceback);
  if (value != nullptr && traceback != nullptr) {
    PyException_SetTraceback(value, traceback);
  }
  return steal(value);
#endif
}

std::string traceback_of(PyObject* exception) {
  const Ref module = steal(PyImport_ImportModule("traceback"));
  if (!module) {
    PyErr_Clear();
    return "";
  }
  const Ref lines = steal(PyObject_CallMethod(module.get(), "format_exception", "O", exception));
  const Ref empty = steal(PyUnicode_FromString(""));
  const Ref text = steal(lines && empty ? PyUnicode_Join(empty.get(), lines.get()) : nullptr);
  std::string result = text_of(text.get(), "");
  PyErr_Clear();
  return result;
}

// The arguments that an exception was made with, if all of them are text.
std::vector<std::string> arguments_of(PyObject* exception) {
  const Ref arguments = steal(PyObject_GetAttrString(exception, "args"));
  PyErr_Clear();
  std::vector<std::string> texts;
  if (!arguments || PyTuple_Check(arguments.get()) == 0) {
    return texts;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments.get()); ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments.get(), i);
    if (PyUnicode_Check(argument) == 0) {
      return {};
    }
    texts.push_back(text_of(argument, ""));
  }
  return texts;
}

// Throws the error that interpool's Python knows by that name, if there is one.
void throw_own_error(PyObject* exception, const std::string& name, const std::string& message) {
  const std::string module = std::string(guest::kErrors) + ".";
  if (!name.starts_with(module)) {
    return;
  }
#define INTERPOOL_THROW_BY_NAME(type, base, from_inside)                   \
  if (from_inside && name.compare(module.size(), name.npos, #type) == 0) { \
    throw type(message, arguments_of(exception));                          \
  }
  INTERPOOL_ERRORS(INTERPOOL_THROW_BY_NAME)
#undef INTERPOOL_THROW_BY_NAME
}

}  // namespace

void throw_pending() {
  const Ref exception = pending_exception();
  if (!exception) {
    throw RemoteError("SystemError", "a call failed without setting an exception", "");
  }
  const std::string name = name_of(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())));
  const std::string text = text_of(exception.get(), "<no message>");
  throw_own_error(exception.get(), name, text);
  throw RemoteError(name, text, traceback_of(exception.get()));
}

std::string label_of(PyObject* object) {
  if (PyMethod_Check(object) != 0) {
    object = PyMethod_GET_FUNCTION(object);
  }
  const bool named =
      PyFunction_Check(object) != 0 || PyCFunction_Check(object) != 0 || PyType_Check(object) != 0;
  return name_of(named ? object : reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

std::string to_utf8(PyObject* text) {
  Py_ssize_t size = 0;
  if (const char* plain = PyUnicode_AsUTF8AndSize(text, &size)) {
    return {plain, static_cast<size_t>(size)};
  }
  PyErr_Clear();
  const Ref bytes = checked(PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
  return {PyBytes_AS_STRING(bytes.get()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

Ref from_utf8(const std::string& text) {
  return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
}

}  // namespace interpool
