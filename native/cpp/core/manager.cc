#include <interpool/manager.h>

#include <thread>

#include "open_package.h"
#include "pool.h"
#include "process.h"
#include "session.h"

namespace interpool {

InterpreterSession InterpreterManager::Instance::acquire_session(std::optional<double> timeout) const {
  return InterpreterSession(Session::acquire(pool_, "", timeout, std::nullopt, id_));
}

InterpreterManager::InterpreterManager(size_t interpreters, size_t ceiling, const std::string& prepared) {
  Process& process = Process::get();
  process.prepare_from(prepared);
  const size_t count = interpreters != 0 ? interpreters : std::max(1U, std::thread::hardware_concurrency());
  const auto& path = process.installation().search_path;
  PoolOptions options;
  options.ceiling = ceiling;
  options.start = [path] { return Process::get().start(1, path).front(); };
  pool_ = std::make_shared<Pool>(process.start(count, path), std::move(options));
  process.remember(pool_);
}

InterpreterManager::~InterpreterManager() {
  if (pool_ != nullptr) {
    pool_->close();
  }
}

InterpreterSession InterpreterManager::acquire_one(std::optional<double> timeout, const std::string& affinity,
                                                   std::optional<double> call_limit) {
  return InterpreterSession(Session::acquire(pool_, affinity, timeout, call_limit));
}

std::vector<InterpreterManager::Instance> InterpreterManager::all_instances() const {
  std::vector<Instance> all;
  for (const Pool::Status& status : pool_->status()) {
    if (status.state != Pool::State::kRetired) {
      all.emplace_back(pool_, status.interpreter->id());
    }
  }
  return all;
}

void InterpreterManager::limit(size_t count) {
  if (count == 0) {
    throw SessionError("a pool that is limited to no interpreter would let everybody wait for ever.");
  }
  pool_->limit(count);
}

void InterpreterManager::register_module_source(const std::string& name, const std::string& source) {
  pool_->register_module_source(name, source);
}

Package InterpreterManager::load_package(const std::string& path) {
  auto package = OpenPackage::open(pool_, path);
  package->check();
  return Package(std::move(package));
}

MovableObject InterpreterManager::create_movable(const PyObj& object) {
  return MovableObject(object.session()->create_movable(object));
}

size_t InterpreterManager::size() const {
  return pool_->size();
}

void InterpreterManager::close() {
  pool_->close();
}

}  // namespace interpool
