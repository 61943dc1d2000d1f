// Changes its environment all the time while interpreters start, and read it.
#include <interpool/interpool.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

int main() {
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (int i = 0; !over; ++i) {
      const std::string name = "INTERPOOL_TEST_" + std::to_string(i % 3000);
      if (i / 3000 % 2 == 0) {
        ::setenv(name.c_str(), std::string(static_cast<size_t>(i % 50), 'x').c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  });
  int status = 0;
  try {
    interpool::InterpreterManager manager(2);
    for (const auto& instance : manager.all_instances()) {
      interpool::InterpreterSession session = instance.acquire_session();
      const interpool::PyObj tzset = session.global("time", "tzset");
      for (int i = 0; i < 3000; ++i) {
        tzset({});
      }
    }
    ::setenv("INTERPOOL_TEST_LAST", "seen", 1);
    interpool::InterpreterSession session = manager.acquire_one();
    std::cout << ::getenv("INTERPOOL_TEST_LAST") << '\n';
  } catch (const interpool::Error& error) {
    std::cerr << error.what() << '\n';
    status = 1;
  }
  over = true;
  writer.join();
  return status;
}
