#include "open_package.h"

#include <interpool/package.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "../seam/guest_modules.h"
#include "process.h"
#include "session.h"

namespace interpool {
namespace {

// Guards the tables; a leaf lock. Under it no weak_ptr of another entry is locked: that could be the last
// reference, and run a destructor which takes this lock.
std::mutex packages_mutex;

using Key = std::pair<const Pool*, uint64_t>;

std::map<Key, std::weak_ptr<OpenPackage>>& table() {
  static auto* const all = new std::map<Key, std::weak_ptr<OpenPackage>>;
  return *all;
}

// How many states of one file are open, until their destructors have run.
std::map<std::pair<const Pool*, std::string>, size_t>& states() {
  static auto* const all = new std::map<std::pair<const Pool*, std::string>, size_t>;
  return *all;
}

bool is_open(const Key& key) {
  const std::lock_guard lock(packages_mutex);
  const auto found = table().find(key);
  return found != table().end() && !found->second.expired();
}

}  // namespace

std::shared_ptr<OpenPackage> OpenPackage::open(const std::shared_ptr<Pool>& pool, const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> here(::get_current_dir_name(), &std::free);
  const std::string absolute = (std::filesystem::path(here ? here.get() : "") / path).lexically_normal();
  return known(pool, absolute, Process::get().take_archive(absolute));
}

std::shared_ptr<OpenPackage> OpenPackage::hold(const std::shared_ptr<Pool>& pool, const std::string& path,
                                               uint64_t snapshot) {
  return known(pool, path, Process::get().open_archive(path, snapshot));
}

std::shared_ptr<OpenPackage> OpenPackage::known(const std::shared_ptr<Pool>& pool, const std::string& path,
                                                std::shared_ptr<const Snapshot> snapshot) {
  const std::lock_guard lock(packages_mutex);
  auto& entry = table()[{pool.get(), snapshot->number}];
  auto package = entry.lock();
  if (!package) {
    ++states()[{pool.get(), path}];
    package.reset(new OpenPackage(pool, path, std::move(snapshot)));
    entry = package;
  }
  return package;
}

OpenPackage::~OpenPackage() {
  bool is_last = false;    // of its file's states: else a newer state would lose its pool's settings
  bool is_closed = false;  // else it was opened again meanwhile, and the other package closes it
  {
    const std::lock_guard lock(packages_mutex);
    const auto count = states().find({pool_.get(), path_});
    is_last = --count->second == 0;
    if (is_last) {
      states().erase(count);
    }
    const auto found = table().find({pool_.get(), snapshot_->number});
    is_closed = found != table().end() && found->second.expired();
    if (is_closed) {
      table().erase(found);
    }
  }
  if (is_last) {
    pool_->forget(path_);
  }
  if (is_closed) {
    pool_->visit_leased([key = Key{pool_.get(), snapshot_->number}](Interpreter& interpreter) {
      // Another thread may have opened it again. So the interpreter withdraws it first, and then asks whether
      // it is open. An opener from before keeps it, and a later one gets another importer.
      const auto call = [&](const guest::Name& name, const std::vector<Value>& arguments) {
        const Held function(interpreter, interpreter.global(name.module, name.name));
        interpreter.release(interpreter.call(function.get(), arguments, {}, nullptr));
      };
      const auto number = static_cast<int64_t>(key.second);
      call(guest::kWithdrawPackage, {number});
      call(guest::kEndWithdrawal, {number, is_open(key)});
    });
  }
}

void OpenPackage::check() {
  const auto session = Session::acquire(pool_, path_, std::nullopt);
  session->run(guest::kOpenPackage, {path_, number()});
}

std::shared_ptr<Movable> OpenPackage::load_pickle(const std::string& package, const std::string& resource) {
  Recipe recipe{guest::kMakeObject, {path_, package, resource, number()}};
  auto movable = std::make_shared<Movable>(pool_, path_, std::move(recipe),
                                           std::vector<std::shared_ptr<void>>{shared_from_this()});
  Session::acquire_for(movable, std::nullopt);
  return movable;
}

std::string OpenPackage::load_binary(const std::string& package, const std::string& resource) {
  const auto session = Session::acquire(pool_, path_, std::nullopt);
  return session->run(guest::kLoadBytes, {path_, package, resource, number()}).to_value().as<Bytes>().data;
}

std::shared_ptr<Session> OpenPackage::acquire(std::optional<double> timeout) {
  auto session = Session::acquire(pool_, path_, timeout);
  session->set_self(session->run(guest::kOpenPackage, {path_, number()}).attr("importer"));
  return session;
}

MovableObject Package::load_pickle(const std::string& package, const std::string& resource) const {
  return MovableObject(package_->load_pickle(package, resource));
}

std::string Package::load_binary(const std::string& package, const std::string& resource) const {
  return package_->load_binary(package, resource);
}

std::string Package::load_text(const std::string& package, const std::string& resource) const {
  return package_->load_binary(package, resource);
}

InterpreterSession Package::acquire_session(std::optional<double> timeout) const {
  return InterpreterSession(package_->acquire(timeout));
}

}  // namespace interpool
