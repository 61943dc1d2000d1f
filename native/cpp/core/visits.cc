#include "visits.h"

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>

#include "clock.h"

namespace interpool {

void visit_each(const std::vector<Interpreter*>& interpreters, std::function<void(Interpreter&)> work,
                double patience) {
  const auto deadline = after("a patience", patience);
  struct Round {
    std::function<void(Interpreter&)> work;
    std::mutex mutex;
    std::condition_variable done;
    size_t pending = 0;
  };
  auto round = std::make_shared<Round>();
  round->work = std::move(work);
  round->pending = interpreters.size();
  for (Interpreter* interpreter : interpreters) {
    const auto tell = [interpreter](const std::exception& error) {
      std::fprintf(stderr, "interpool: interpreter %d: %s\n", interpreter->id(), error.what());
    };
    const auto count_down = [](Round& visited) {
      const std::lock_guard lock(visited.mutex);
      --visited.pending;
      visited.done.notify_all();
    };
    try {
      interpreter->later([interpreter, round, tell, count_down] {
        try {
          const Entered entered(*interpreter);
          round->work(*interpreter);
        } catch (const std::exception& error) {
          tell(error);
        }
        count_down(*round);
      });
    } catch (const std::exception& error) {  // no memory: this one is not visited, and the others are
      tell(error);
      count_down(*round);
    }
  }
  std::unique_lock lock(round->mutex);
  round->done.wait_until(lock, deadline, [&] { return round->pending == 0; });
}

}  // namespace interpool
