// A loaded library, as its dynamic section describes it.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace interpool {

class ElfImage {
 public:
  // `library`: a dlopen handle, which stays open. Throws c10::Error if it is none.
  explicit ElfImage(void* library);

  // Calls `visit(name, entry)` for every entry of its global offset table that stands for a symbol. Those are
  // what it calls or refers to, whether or not it defines that itself.
  template <typename Visit>
  void each_got_entry(const Visit& visit) const {
    each_of(calls_, call_count_, visit);
    each_of(others_, other_count_, visit);
  }

  // Calls `visit(name, symbol)` for every symbol that it defines.
  template <typename Visit>
  void each_definition(const Visit& visit) const {
    for (uint32_t i = first_definition_; i < end_definition_; ++i) {
      visit(strings_ + symbols_[i].st_name, symbols_[i]);
    }
  }

  void* address_of(const ElfW(Sym) & symbol) const {
    return reinterpret_cast<void*>(base_ + symbol.st_value);
  }

 private:
#if defined(__x86_64__)
  static constexpr bool is_got_entry(uint64_t type) {
    return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
  }
#elif defined(__aarch64__)
  static constexpr bool is_got_entry(uint64_t type) {
    return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
  }
#else
#error "interpool knows the relocations of x86-64 and AArch64 only"
#endif

  template <typename Visit>
  void each_of(const ElfW(Rela) * entries, size_t count, const Visit& visit) const {
    for (size_t i = 0; i < count; ++i) {
      const auto symbol = ELF64_R_SYM(entries[i].r_info);
      if (symbol != 0 && is_got_entry(ELF64_R_TYPE(entries[i].r_info))) {
        visit(strings_ + symbols_[symbol].st_name, reinterpret_cast<void**>(base_ + entries[i].r_offset));
      }
    }
  }

  uintptr_t base_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr;
  const ElfW(Rela) * others_ = nullptr;
  size_t call_count_ = 0;
  size_t other_count_ = 0;
  uint32_t first_definition_ = 0;
  uint32_t end_definition_ = 0;
};

}  // namespace interpool
