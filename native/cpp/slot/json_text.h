// JSON as json.dumps(value, indent=2) writes it. Needs this interpreter's GIL.
#pragma once

#include <cstdint>
#include <string_view>

#include "python.h"

namespace interpool {

// A bytearray that is being written. Here and below, a PendingException is thrown for Python's errors.
class ByteWriter {
 public:
  // `expected` bytes fit without copying what was written.
  explicit ByteWriter(Py_ssize_t expected);

  void write(std::string_view bytes);
  void write_int(int32_t value);  // four bytes, the highest first
  Ref take();

 private:
  Ref bytes_;
  Py_ssize_t size_ = 0;
};

// False, with no exception pending, for values that json.dumps itself is to be asked for. Those are what it
// refuses, what it leaves to others, and what is nested deeply. What was written then is of no use.
bool write_json(ByteWriter& writer, PyObject* value);

}  // namespace interpool
