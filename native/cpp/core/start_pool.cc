#include "start_pool.h"

#include <algorithm>
#include <thread>

#include "process.h"

namespace interpool {
namespace {

constexpr int64_t kGrowth = 4;  // without a size, a pool may grow to so many times its minimum

size_t cores() {
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

PoolSize size_of(const PoolSettings& settings, size_t cores) {
  const int64_t floor = settings.floor.value_or(static_cast<int64_t>(cores));
  if (floor < 1) {
    throw ArgumentError("a pool needs at least one interpreter, not " + std::to_string(floor));
  }
  const int64_t ceiling = settings.ceiling.value_or(settings.floor.has_value() ? floor : kGrowth * floor);
  if (ceiling < floor) {
    throw ArgumentError("a ceiling of " + std::to_string(ceiling) + " is below the " + std::to_string(floor) +
                        " interpreters that there are to be");
  }
  return {static_cast<size_t>(floor), static_cast<size_t>(ceiling)};
}

void check(const PoolSettings& settings) {
  size_of(settings, cores());
  require_positive("a time", settings.park_after);
  require_positive("a time", settings.grace);
}

std::shared_ptr<Pool> start_pool(const PoolSettings& settings, const std::vector<std::string>& search_path) {
  check(settings);
  const PoolSize size = size_of(settings, cores());
  PoolOptions options;
  options.ceiling = size.ceiling;
  options.park_after = settings.park_after;
  options.grace = settings.grace;
  options.start = [search_path] { return Process::get().start(1, search_path).front(); };
  auto pool = std::make_shared<Pool>(Process::get().start(size.floor, search_path), std::move(options));
  Process::get().remember(pool);
  return pool;
}

}  // namespace interpool
