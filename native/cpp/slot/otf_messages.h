// TorchServe's messages as Python's objects, and answers as bytes: what
// ts/protocol/otf_message_handler.py does where nothing is unusual. Functions of the builtin
// module; they need this interpreter's GIL.
#pragma once

#include "python.h"

namespace interpool {

// decode_requests(message: buffer) -> list[dict] | None
//
// What retrieve_msg makes of a batch; each value is copied once. None: TorchServe's own code is
// to decode it, as it raises something, or logs it.
PyObject* decode_requests(PyObject* module, PyObject* message);

// encode_answers(answers, request_ids, message: str, code: int, context, plain_json: bool)
//     -> bytearray | None
//
// What create_predict_response makes of them; with `plain_json`, json.dumps is Python's own. None:
// TorchServe's own code is to encode them.
PyObject* encode_answers(PyObject* module, PyObject* const* arguments, Py_ssize_t count);

}  // namespace interpool
