// Memory that several interpreters map: what a slot offers of its storages, and where it finds equal ones.
#pragma once

#include <unistd.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace interpool {

// What a storage holds: its size, and a hash of all of it. Equal contents are very probably the
// same, which who takes one for another makes sure of.
struct Content {
  size_t bytes = 0;
  uint64_t hash = 0;

  auto operator<=>(const Content&) const = default;
};

// A storage that an interpreter would have elsewhere; `data` stays as it is meanwhile.
struct Piece {
  const void* data = nullptr;
  Content content;
};

// An unnamed file in memory with some interpreter's storages. Nobody can write to it or change its
// size; it goes with the last reference, of which each mapping of it holds one.
struct SharedPart {
  explicit SharedPart(int file) : fd(file) {}
  ~SharedPart() { ::close(fd); }
  SharedPart(const SharedPart&) = delete;
  SharedPart& operator=(const SharedPart&) = delete;

  const int fd;
  size_t bytes = 0;                                // a whole number of pages
  std::map<Content, std::vector<size_t>> offsets;  // several, where several storages are equal
};

// Where a piece lies.
struct Placement {
  std::shared_ptr<const SharedPart> part;
  size_t offset = 0;
};

}  // namespace interpool
