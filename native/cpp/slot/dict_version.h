// When a dictionary has changed: CPython up to 3.13 numbers the states of each; from 3.14 on it calls
// watchers of it. All of it needs this interpreter's GIL.
#pragma once

#include <cstdint>
#include <utility>

#include "python.h"

namespace interpool {

class DictVersion {
 public:
  // Keeps the dictionary. Throws PendingException.
  explicit DictVersion(Ref dict);
  ~DictVersion();
  DictVersion(DictVersion&& other) noexcept
      : dict_(std::move(other.dict_)), changes_(std::exchange(other.changes_, nullptr)) {}
  DictVersion& operator=(DictVersion&&) = delete;
  DictVersion(const DictVersion&) = delete;
  DictVersion& operator=(const DictVersion&) = delete;

  PyObject* dict() const { return dict_.get(); }

  // A number that the dictionary never has again once it has changed.
  uint64_t now() const;

 private:
  Ref dict_;
  const uint64_t* changes_ = nullptr;  // counted here, if CPython numbers no states
};

}  // namespace interpool
