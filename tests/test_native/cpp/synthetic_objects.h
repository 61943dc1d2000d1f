// Objects and types laid out as CPython's, without a Python: what routing by owner reads of them.
#pragma once

#include <c10/util/python_stub.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace interpool::testing {

// PyObject's head. A type's type is a type; the chain ends at `type`, its own type.
struct Object {
  std::atomic<intptr_t> references{1};
  const Object* type = nullptr;

  PyObject* as_python() { return reinterpret_cast<PyObject*>(this); }
  static Object& of(PyObject* object) { return *reinterpret_cast<Object*>(object); }
};

// The types of one interpreter, and an object of each kind.
struct Types {
  Object type;              // PyType_Type
  Object metaclass;         // class Meta(type)
  Object of_metaclass;      // class C(metaclass=Meta)
  Object plain;             // class D
  Object object;            // D()
  Object object_with_meta;  // C()

  Types() {
    type.type = &type;
    metaclass.type = &type;
    of_metaclass.type = &metaclass;
    plain.type = &type;
    object.type = &plain;
    object_with_meta.type = &of_metaclass;
  }
  Types(const Types&) = delete;
  Types& operator=(const Types&) = delete;
};

}  // namespace interpool::testing
