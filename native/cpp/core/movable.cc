#include "movable.h"

#include <interpool/package.h>

#include <atomic>
#include <set>
#include <utility>

#include "open_package.h"
#include "session.h"
#include "visits.h"

namespace interpool {
namespace {

std::string own_affinity() {
  static std::atomic<uint64_t> last{0};
  return "movable " + std::to_string(++last);
}

// Guards the set. Lock order: before a movable's `mutex_`, and what takes an interpreter's later().
std::mutex all_mutex;

std::set<Movable*>& all() {
  static auto* const movables = new std::set<Movable*>;
  return *movables;
}

}  // namespace

Movable::Movable(std::shared_ptr<Pool> pool, std::string affinity, Recipe recipe,
                 std::vector<std::shared_ptr<void>> keeps)
    : pool_(std::move(pool)),
      has_own_affinity_(affinity.empty()),
      affinity_(has_own_affinity_ ? own_affinity() : std::move(affinity)),
      recipe_(std::move(recipe)),
      keeps_(std::move(keeps)) {
  const std::lock_guard lock(all_mutex);
  all().insert(this);
}

Movable::~Movable() {
  {
    const std::lock_guard lock(all_mutex);
    all().erase(this);
  }
  unload(std::nullopt);
  if (has_own_affinity_) {
    pool_->forget(affinity_);
  }
}

std::shared_ptr<Movable> Movable::from_dump(std::shared_ptr<Pool> pool, Value dump) {
  auto& parts = std::get<Tuple>(dump.data).items;
  std::vector<std::shared_ptr<void>> keeps;
  for (const Value& archive : parts.at(2).as<List>().items) {
    const auto& [path, number] = std::tie(archive.as<Tuple>().items.at(0), archive.as<Tuple>().items.at(1));
    keeps.push_back(
        OpenPackage::hold(pool, path.as<std::string>(), static_cast<uint64_t>(number.as<int64_t>())));
  }
  Recipe recipe{guest::kLoad, {std::move(parts.at(0)), std::move(parts.at(1))}};
  return std::make_shared<Movable>(std::move(pool), "", std::move(recipe), std::move(keeps));
}

void* Movable::in(Interpreter& interpreter) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = made_.find(&interpreter); found != made_.end()) {
      return found->second;
    }
  }
  const Held make(interpreter, interpreter.global(recipe_.make.module, recipe_.make.name));
  void* object = interpreter.call(make.get(), recipe_.args, {}, nullptr);
  const std::lock_guard lock(mutex_);
  made_[&interpreter] = object;  // no other thread can have made one: we lease the interpreter
  return object;
}

void Movable::unload(std::optional<int> interpreter_id) {
  std::vector<std::pair<Interpreter*, void*>> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = made_.begin(); it != made_.end();) {
      if (!interpreter_id.has_value() || it->first->id() == *interpreter_id) {
        gone.emplace_back(*it);
        it = made_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const auto& [interpreter, object] : gone) {
    visit_each({interpreter}, [object = object](Interpreter& there) { there.release(object); }, 0);
  }
}

void Movable::unload_all(int interpreter_id) {
  const std::lock_guard lock(all_mutex);
  for (Movable* movable : all()) {
    movable->unload(interpreter_id);
  }
}

Value MovableObject::call_kwargs(const std::vector<Value>& args, const Keywords& keywords) const {
  const auto session = Session::acquire(movable_->pool(), movable_->affinity(), std::nullopt);
  return session->call_movable(movable_, args, keywords);
}

InterpreterSession MovableObject::acquire_session(std::optional<double> timeout) const {
  return InterpreterSession(Session::acquire_for(movable_, timeout));
}

void MovableObject::unload(int interpreter_id) const {
  movable_->unload(interpreter_id);
}

void MovableObject::unload() const {
  movable_->unload(std::nullopt);
}

}  // namespace interpool
