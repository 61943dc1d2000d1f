// The end of an exception's way, on threads that no other thread waits for.
#pragma once

#include <cstdio>
#include <exception>

namespace interpool {

// Calls `work`; what it throws goes to stderr as `interpool: …` and no further, as an exception that leaves a
// thread's body ends the process. Whether it threw nothing. Any thread, with or without a GIL.
template <typename Work>
bool reported(const Work& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "interpool: %s\n", error.what());
    return false;
  }
}

}  // namespace interpool
