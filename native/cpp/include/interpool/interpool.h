// Private CPython interpreters in one process, on stock wheels of torch.
//
//   interpool::InterpreterManager manager(4);
//   auto model = manager.load_package("m.ptpkg").load_pickle("model", "model.pkl");
//   at::Tensor y = interpool::to_tensor(model({interpool::from_tensor(x)}));
//
// <interpool/torch.h>, which needs torch's headers, has the last two.
#pragma once

#include "errors.h"
#include "manager.h"
#include "package.h"
#include "session.h"
#include "value.h"
