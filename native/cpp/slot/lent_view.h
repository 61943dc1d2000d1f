// A message as Python sees it, without a copy. Needs the GIL.
#pragma once

#include "../seam/interpreter.h"
#include "python.h"

namespace interpool {

// A memoryview of a message for the time of a call, released when the call is over, so that the memory serves
// the next message. What a model keeps nevertheless (a slice, an array) holds the memory itself.
class LentView {
 public:
  explicit LentView(const Interpreter::Message& message);
  ~LentView();
  LentView(const LentView&) = delete;
  LentView& operator=(const LentView&) = delete;

  PyObject* view() const { return view_.get(); }
  // When the last message in this interpreter was received, by time.monotonic(); 0 before any.
  static double last_received();
  // Of the message that is being answered in this interpreter; null if none is.
  static std::shared_ptr<Interpreter::Receiver> current_receiver();

 private:
  const Ref view_;
};

}  // namespace interpool
