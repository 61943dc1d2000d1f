// TorchServe's messages as Python's objects, and answers as bytes: what ts/protocol/otf_message_handler.py
// does if nothing is unusual. Functions of the builtin module, to be called `guarded`; they need this
// interpreter's GIL.
#pragma once

#include "python.h"

namespace interpool {

// decode_requests(message: buffer, plain_json: bool) -> list[dict] | None
//
// What retrieve_msg makes of a batch; each value is copied once. None if TorchServe's own code is to decode
// it: it raises something, or logs it. Also if there is JSON without `plain_json`, which says that json.loads
// is Python's own.
PyObject* decode_requests(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

// take_requests(message: buffer, plain_json: bool, processor: type) -> (list, list[dict], dict[int, str]) |
// None
//
// What Service.retrieve_data_for_inference makes of the result of retrieve_msg for a batch: headers by
// `processor`, inputs, ids. None likewise.
PyObject* take_requests(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

// encode_answers(answers, request_ids, message: str, code: int, context, plain_json: bool,
//                plain_context: bool) -> bytearray | None
//
// What create_predict_response makes of them. `plain_json`: json.dumps is Python's own. `plain_context`: the
// methods of Context and RequestProcessor are TorchServe's. None if TorchServe's own code is to encode them.
PyObject* encode_answers(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace interpool
