#include "start_pool.h"

#include <algorithm>

#include "cores.h"
#include "process.h"

namespace interpool {
namespace {

constexpr int64_t kGrowth = 4;  // without a size, a pool may grow to so many times its minimum

void require_times(const PoolSettings& settings) {
  require_positive("a time", settings.park_after);
  require_positive("a time", settings.grace);
}

}  // namespace

PoolSize size_of(const PoolSettings& settings, size_t cores, size_t startable) {
  const int64_t min_size = settings.min_size.value_or(static_cast<int64_t>(cores));
  if (min_size < 1) {
    throw ArgumentError("a pool needs at least one interpreter, not " + std::to_string(min_size));
  }
  // A pool that grew past what is prepared would fail to, time and again.
  const size_t room = std::min(static_cast<size_t>(kGrowth * min_size), startable);
  const int64_t by_default =
      settings.min_size.has_value() ? min_size : std::max(min_size, static_cast<int64_t>(room));
  const int64_t max_size = settings.max_size.value_or(by_default);
  if (max_size < min_size) {
    throw ArgumentError("a maximum size of " + std::to_string(max_size) + " is below the minimum size, " +
                        std::to_string(min_size));
  }
  return {static_cast<size_t>(min_size), static_cast<size_t>(max_size)};
}

void check(const PoolSettings& settings) {
  size_of(settings, cores());
  require_times(settings);
}

std::shared_ptr<Pool> start_pool(const PoolSettings& settings, const std::vector<std::string>& search_path) {
  const PoolSize size = size_of(settings, cores(), Process::get().startable());
  require_times(settings);
  PoolOptions options;
  options.max_size = size.max_size;
  options.park_after = settings.park_after;
  options.grace = settings.grace;
  options.start = [search_path, preload = settings.preload] {
    return Process::get().start(1, search_path, preload).front();
  };
  options.origin = Process::origin(search_path, settings.preload);
  auto pool = std::make_shared<Pool>(Process::get().start(size.min_size, search_path, settings.preload),
                                     std::move(options));
  Process::get().remember(pool);
  return pool;
}

}  // namespace interpool
