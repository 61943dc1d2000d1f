#include <interpool/manager.h>

#include "open_package.h"
#include "pool.h"
#include "process.h"
#include "session.h"
#include "start_pool.h"

namespace interpool {

InterpreterSession InterpreterManager::Instance::acquire_session(std::optional<double> timeout) const {
  return InterpreterSession(Session::acquire(pool_, "", timeout, std::nullopt, id_));
}

namespace {

std::optional<int64_t> unless_zero(size_t count) {
  return count != 0 ? std::optional<int64_t>(static_cast<int64_t>(count)) : std::nullopt;
}

}  // namespace

InterpreterManager::InterpreterManager(size_t interpreters, size_t max_size, const std::string& prepared)
    : InterpreterManager(PoolSettings{unless_zero(interpreters), unless_zero(max_size)}, prepared) {}

InterpreterManager::InterpreterManager(const PoolSettings& settings, const std::string& prepared) {
  Process& process = Process::get();
  process.prepare_from(prepared);
  pool_ = start_pool(settings, process.installation().search_path);
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
  for (const int id : pool_->instances()) {
    all.emplace_back(pool_, id);
  }
  return all;
}

void InterpreterManager::resize(size_t min_size, size_t max_size) {
  pool_->resize(static_cast<int64_t>(min_size), static_cast<int64_t>(max_size));
}

void InterpreterManager::limit(size_t count) {
  pool_->limit(static_cast<int64_t>(count));
}

void InterpreterManager::register_module_source(const std::string& name, const std::string& source) {
  pool_->module_sources().add(name, source);
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
