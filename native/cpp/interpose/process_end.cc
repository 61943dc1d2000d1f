// Private copies register nothing for the process's end. Their interpreters, and threads that a model has
// started, may be at work until the very last, and use what static destructors would destroy. A program's own
// exit functions run, and those of libraries that it has loaded itself. A copy that a model closes (dlclose),
// which neither Python nor torch does, has its objects forgotten as well.
#include "interpreters.h"

// What C++ compilers call for each static object with a destructor, and atexit for its functions.
extern "C" INTERPOOL_API int ip___cxa_atexit(void (*)(void*), void*, void*) {
  return 0;
}
