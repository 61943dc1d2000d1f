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
      : dict_(std::move(other.dict_)), number_(std::exchange(other.number_, nullptr)) {}
  DictVersion& operator=(DictVersion&&) = delete;
  DictVersion(const DictVersion&) = delete;
  DictVersion& operator=(const DictVersion&) = delete;

  PyObject* dict() const { return dict_.get(); }

  // Where a number is that the dictionary never has again once it has changed; as long as this object is.
  const uint64_t* number() const { return number_; }

 private:
  Ref dict_;
  const uint64_t* number_ = nullptr;
};

}  // namespace interpool
