#include "storages.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tensors.h"

namespace interpool {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLanes = 4;

// As xxHash's: independent multiplications, about as fast as memory.
constexpr uint64_t kFirstPrime = 0x9E3779B185EBCA87;
constexpr uint64_t kSecondPrime = 0xC2B2AE3D27D4EB4F;

struct Hash {
  std::array<uint64_t, kLanes> lanes{kFirstPrime, kSecondPrime, ~kFirstPrime, ~kSecondPrime};

  // Gives whether all of `words` are zero.
  bool add(const std::array<uint64_t, kLanes>& words) {
    uint64_t any = 0;
    for (size_t i = 0; i < kLanes; ++i) {
      any |= words[i];
      lanes[i] = std::rotl(lanes[i] + words[i] * kSecondPrime, 31) * kFirstPrime;
    }
    return any == 0;
  }

  uint64_t result(size_t bytes) const {
    uint64_t all = bytes;
    for (const uint64_t lane : lanes) {
      all = std::rotl(all ^ lane, 27) * kFirstPrime + kSecondPrime;
    }
    return all ^ (all >> 32);
  }
};

}  // namespace

bool is_allocated_by_torch(const c10::DataPtr& pointer) {
  return pointer.device().is_cpu() && pointer.get() != nullptr && pointer.get() == pointer.get_context() &&
         pointer.get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter();
}

bool has_own_memory(const c10::StorageImpl& storage) {
  auto& unconst = const_cast<c10::StorageImpl&>(storage);
  return is_allocated_by_torch(unconst._mutable_data_ptr_no_checks()) && !storage.has_materializer() &&
         !unconst.received_cuda();
}

std::optional<Content> content_of(const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  Hash hash;
  size_t zeros = 0;  // bytes, in pages of nothing else
  for (size_t begin = 0; begin < bytes; begin += kPage) {
    const size_t end = std::min(begin + kPage, bytes);
    bool zero = true;
    std::array<uint64_t, kLanes> words{};
    size_t offset = begin;
    for (; end - offset >= sizeof words; offset += sizeof words) {
      std::memcpy(words.data(), at + offset, sizeof words);
      zero = hash.add(words) && zero;
    }
    if (offset < end) {
      words = {};
      std::memcpy(words.data(), at + offset, end - offset);
      zero = hash.add(words) && zero;
    }
    zeros += zero ? end - begin : 0;
  }
  if (zeros * 2 >= bytes) {
    return std::nullopt;
  }
  return Content{bytes, hash.result(bytes)};
}

PartMapping::PartMapping(std::shared_ptr<const SharedPart> part) : part_(std::move(part)) {
  // No reserve: it is hoped that hardly any of it is written.
  address_ = ::mmap(nullptr, part_->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, part_->fd, 0);
  if (address_ == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "memory that interpreters share cannot be mapped");
  }
}

PartMapping::~PartMapping() {
  ::munmap(address_, part_->bytes);
}

bool repoint(c10::StorageImpl& storage, const std::shared_ptr<PartMapping>& mapping, size_t offset,
             std::vector<c10::DataPtr>& old) {
  char* const place = mapping->at(offset);
  c10::DataPtr& pointer = storage._mutable_data_ptr_no_checks();
  if (std::memcmp(place, pointer.get(), storage.nbytes()) != 0) {
    return false;
  }
  old.reserve(old.size() + 1);
  c10::DataPtr fresh = owned_pointer(place, mapping, pointer.device());
  old.push_back(std::exchange(pointer, std::move(fresh)));
  return true;
}

}  // namespace interpool
