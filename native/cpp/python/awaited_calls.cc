#include "awaited_calls.h"

#include <memory>
#include <vector>

#include <interpool/package.h>

#include "../core/awaited_call.h"
#include "../core/inbox.h"
#include "../core/process.h"
#include "host_gil.h"

namespace py = pybind11;

namespace interpool {
namespace {

using CallInbox = Inbox<std::shared_ptr<AwaitedCall>>;

}  // namespace

void add_awaited_calls(py::module_& module, Conversion conversion) {
  py::class_<AwaitedCall, std::shared_ptr<AwaitedCall>>(module, "AwaitedCall")
      .def(py::init([conversion](const MovableObject& movable, const py::iterable& args,
                                 const py::dict& kwargs, const std::shared_ptr<CallInbox>& inbox) {
             auto [positional, named] = conversion.read(args, kwargs);
             CallerModes caller = Process::get().host().modes();
             const WithoutHostGil free;
             return AwaitedCall::start(
                 movable.movable(), std::move(positional), std::move(named), std::move(caller),
                 [inbox](std::shared_ptr<AwaitedCall> ended) { inbox->put(std::move(ended)); });
           }),
           py::arg("movable"), py::arg("args"), py::arg("kwargs"), py::arg("inbox"))
      .def("result",
           [conversion](AwaitedCall& call) {
             Value value;
             {
               const WithoutHostGil free;
               value = call.take();
             }
             return conversion.write(value);
           })
      .def("cancel", &AwaitedCall::cancel, py::call_guard<WithoutHostGil>());
  py::class_<CallInbox, std::shared_ptr<CallInbox>>(module, "CallInbox")
      .def(py::init<>())
      .def("fileno", &CallInbox::fd)
      .def("take", [](CallInbox& inbox) {
        py::list ended;
        for (auto& call : inbox.take()) {
          ended.append(std::move(call));
        }
        return ended;
      });
}

}  // namespace interpool
