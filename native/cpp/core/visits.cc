#include "visits.h"

#include <condition_variable>
#include <cstdio>
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
    interpreter->later([interpreter, round] {
      {
        const Entered entered(*interpreter);
        try {
          round->work(*interpreter);
        } catch (const Error& error) {
          std::fprintf(stderr, "interpool: interpreter %d: %s\n", interpreter->id(), error.what());
        }
      }
      const std::lock_guard lock(round->mutex);
      --round->pending;
      round->done.notify_all();
    });
  }
  std::unique_lock lock(round->mutex);
  round->done.wait_until(lock, deadline, [&] { return round->pending == 0; });
}

}  // namespace interpool
