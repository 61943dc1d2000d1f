// The pool of private interpreters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "export.h"
#include "package.h"
#include "session.h"

namespace interpool {

class Pool;

// How large a pool is, and how patient. Python's InterpreterManager takes the same, with the
// same defaults and the same refusals (ArgumentError).
struct PoolSettings {
  // How many interpreters at least and at most. Without either, the number of cores and four times that, or
  // as many as there are prepared copies for. A minimum alone is the exact number.
  std::optional<int64_t> min_size;
  std::optional<int64_t> max_size;
  double park_after = 60;                 // seconds without need, after which one above min_size is parked
  double grace = 5;                       // seconds that an interrupted call has to come back
  std::vector<std::string> preload = {};  // modules that each interpreter imports before it is leased
};

// The nouns are those of "Using Python for Model Inference in Deep Learning" (DeVito
// et al., 2021), section 4. Any thread may use the manager; the calling thread holds
// no GIL. Interpreters are not finalised when the manager goes: they stay
// until the process ends.
class INTERPOOL_PUBLIC InterpreterManager {
 public:
  // One interpreter of the pool.
  class INTERPOOL_PUBLIC Instance {
   public:
    Instance(std::shared_ptr<Pool> pool, int id) : pool_(std::move(pool)), id_(id) {}
    int id() const { return id_; }
    // Waits for this very interpreter. Throws LeaseTimeoutError, PoolClosedError.
    InterpreterSession acquire_session(std::optional<double> timeout = std::nullopt) const;

   private:
    std::shared_ptr<Pool> pool_;
    int id_;
  };

  // Starts min_size interpreters, and one more at a time up to max_size while callers wait and this process
  // leaves cores unused. In a process without a Python of its own, the private copies come from what
  // `interpool prepare` made: a prepared cache's file or a bundle's folder. `prepared` names it, else
  // $INTERPOOL_PREPARED. Else it is the bundle that libinterpool.so was loaded from, else the file in the
  // cache directory. Throws ProvisioningError if there is none, or it is of another interpool or torch than
  // this program. Throws InterpreterStartError if an interpreter does not start, and ArgumentError for
  // settings that make no sense.
  explicit InterpreterManager(const PoolSettings& settings, const std::string& prepared = "");
  // The same with a minimum and a maximum size; 0 stands for the default.
  explicit InterpreterManager(size_t interpreters = 0, size_t max_size = 0, const std::string& prepared = "");
  ~InterpreterManager();
  InterpreterManager(InterpreterManager&&) noexcept = default;
  InterpreterManager& operator=(InterpreterManager&&) = delete;
  InterpreterManager(const InterpreterManager&) = delete;
  InterpreterManager& operator=(const InterpreterManager&) = delete;

  // Leases a free interpreter, one that has served `affinity` before first; waits its
  // turn. Throws LeaseTimeoutError after `timeout` seconds, PoolClosedError. A call that
  // takes longer than `call_limit` seconds is interrupted and throws CallTimeoutError.
  // ArgumentError for a value that is not a length of time.
  InterpreterSession acquire_one(std::optional<double> timeout = std::nullopt,
                                 const std::string& affinity = "",
                                 std::optional<double> call_limit = std::nullopt);
  std::vector<Instance> all_instances() const;
  // Its sizes from now on. Interpreters that the minimum lacks are started in the background, and callers are
  // served by those that there are. Those above the maximum are parked. A start that fails is reported on
  // stderr and tried again later. Throws ArgumentError.
  void resize(size_t min_size, size_t max_size);
  // Leases the first `count` interpreters only, from now on, except for instances' own sessions;
  // size() lifts it. Throws ArgumentError for what is not between 1 and size().
  void limit(size_t count);
  // Makes `name` importable in every interpreter that has not imported it yet.
  void register_module_source(const std::string& name, const std::string& source);
  // Throws ArchiveError when the file is missing, damaged or no torch.package archive.
  Package load_package(const std::string& path);
  MovableObject create_movable(const PyObj& object);

  size_t size() const;
  // Leases no more: waiting callers get PoolClosedError, open sessions stay good. Interpreters that were
  // never leased serve a later manager; the others stay unused until the process ends.
  void close();

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace interpool
