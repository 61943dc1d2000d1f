#include "lent_view.h"

#include <memory>

namespace interpool {
namespace {

// Goes when no view of it is left.
struct MessageObject {
  PyObject_HEAD const Interpreter::Message* message;
};

void dealloc_view(PyObject* self) {
  delete reinterpret_cast<MessageObject*>(self)->message;
  Py_TYPE(self)->tp_free(self);
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const std::string_view bytes = reinterpret_cast<MessageObject*>(self)->message->bytes;
  return PyBuffer_FillInfo(view, self, const_cast<char*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()),
                           /*readonly=*/1, flags);
}

PyTypeObject* message_type() {
  static PyBufferProcs buffer{get_buffer, nullptr};
  static PyTypeObject type = [] {
    PyTypeObject made{};
    made.ob_base = {PyObject_HEAD_INIT(nullptr) 0};
    made.tp_name = "message";
    made.tp_basicsize = sizeof(MessageObject);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_dealloc = dealloc_view;
    made.tp_as_buffer = &buffer;
    return made;
  }();
  check(PyType_Ready(&type));
  return &type;
}

Ref view_of(const Interpreter::Message& message) {
  auto owned = std::make_unique<Interpreter::Message>(message);
  owned->receiver.reset();  // a view that is kept needs the memory, and nothing else of the message
  auto* made = PyObject_New(MessageObject, message_type());
  const Ref object = checked(reinterpret_cast<PyObject*>(made));
  made->message = owned.release();
  return checked(PyMemoryView_FromObject(object.get()));
}

double received_last = 0;  // in a private copy: this interpreter's

// Of the message that is being answered; under the GIL. Never destroyed, as threads may outlast static
// destructors.
std::shared_ptr<Interpreter::Receiver>& receiver() {
  static auto* const current = new std::shared_ptr<Interpreter::Receiver>;
  return *current;
}

}  // namespace

LentView::LentView(const Interpreter::Message& message) : view_(view_of(message)) {
  received_last = message.received;
  receiver() = message.receiver;
}

double LentView::last_received() {
  return received_last;
}

std::shared_ptr<Interpreter::Receiver> LentView::current_receiver() {
  return receiver();
}

LentView::~LentView() {
  receiver().reset();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);  // of the call, if it raised
  if (!steal(PyObject_CallMethod(view_.get(), "release", nullptr))) {
    PyErr_Clear();  // an array has its memory
  }
  PyErr_Restore(type, value, traceback);
}

}  // namespace interpool
