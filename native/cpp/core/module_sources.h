// The sources of modules that the interpreters of one pool import.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "../seam/interpreter.h"

namespace interpool {

// Any thread. `mutex_` guards `texts_` and is a leaf lock.
class ModuleSources {
 public:
  // What is imported under that name from now on, before anything else.
  void add(const std::string& name, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[name] = text;
  }

  std::optional<Services::ModuleSource> find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(name);
    if (found == texts_.end()) {
      return std::nullopt;
    }
    const auto next = texts_.upper_bound(name + ".");
    return Services::ModuleSource{found->second, next != texts_.end() && next->first.starts_with(name + ".")};
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

}  // namespace interpool
