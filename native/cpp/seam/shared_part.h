// Memory that several interpreters map: what a slot asks of the process for its storages.
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

// A storage's size, and a hash of its bytes. If two are equal, the bytes are very probably equal, too: the
// caller compares them before it relies on that.
struct Content {
  size_t bytes = 0;
  uint64_t hash = 0;

  auto operator<=>(const Content&) const = default;
};

// A storage that an interpreter wants to move to shared memory. Its bytes do not change meanwhile.
struct Piece {
  const void* data = nullptr;
  Content content;
};

// An unnamed file in memory with some interpreter's storages. No program can write to it or change its size.
// It goes with the last reference, of which each mapping of it holds one.
struct SharedPart {
  explicit SharedPart(int file) : fd(file) {}
  ~SharedPart() { ::close(fd); }
  SharedPart(const SharedPart&) = delete;
  SharedPart& operator=(const SharedPart&) = delete;

  const int fd;
  size_t bytes = 0;                                // a whole number of pages
  std::map<Content, std::vector<size_t>> offsets;  // several if several storages are equal
};

// Where a piece lies.
struct Placement {
  std::shared_ptr<const SharedPart> part;
  size_t offset = 0;
};

}  // namespace interpool
