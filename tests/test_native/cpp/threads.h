// Threads, waiting and chance, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace interpool::testing {

using namespace std::chrono_literals;

// Runs `work(0)` ... `work(count - 1)` at once, each on a thread of its own.
inline void together(int count, const std::function<void(int)>& work) {
  std::barrier start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Does it become true in time? For what another thread is about to do.
inline bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// The seed of a test's random choices: another one each time, unless INTERPOOL_TEST_SEED names it.
// Printed, so that a failure can be repeated.
inline uint64_t random_seed() {
  const char* wanted = std::getenv("INTERPOOL_TEST_SEED");
  const uint64_t seed = wanted != nullptr ? std::stoull(wanted) : std::random_device{}();
  std::cout << "INTERPOOL_TEST_SEED=" << seed << '\n';
  return seed;
}

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}

  // From `least` to `most`, both included.
  int64_t number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(engine_);
  }
  std::string bytes(size_t count) {
    std::string made(count, '\0');
    for (size_t done = 0; done < count; done += sizeof(uint64_t)) {
      const uint64_t word = engine_();
      std::memcpy(made.data() + done, &word, std::min(sizeof word, count - done));
    }
    return made;
  }
  template <typename Items>
  void shuffle(Items& items) {
    std::shuffle(items.begin(), items.end(), engine_);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace interpool::testing
