// How a slot's Python starts.
#pragma once

#include "../seam/interpreter.h"

namespace interpool {

// The calling thread becomes its main thread, and has the GIL. `options` outlives Python. Throws
// InterpreterStartError.
void initialise_python(const StartOptions& options);

// Runs interpool/native/inside/loader.py, by path: nothing can be imported safely before it has run. Throws
// InterpreterStartError, RemoteError.
void run_loader(const StartOptions& options);

// How this Python was started concerns no other program. Those that are started from in here
// (multiprocessing, joblib) get the flags in sys.flags, and need their site-packages. So these become what a
// program's usually are. Throws RemoteError.
void set_usual_flags();

}  // namespace interpool
