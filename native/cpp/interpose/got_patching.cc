#include "got_patching.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "interpreters.h"

namespace interpool {
namespace {

#if defined(__x86_64__)
constexpr bool is_got_entry(uint64_t type) {
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
}
#elif defined(__aarch64__)
constexpr bool is_got_entry(uint64_t type) {
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
}
#else
#error "interpool knows the relocations of x86-64 and AArch64 only"
#endif

// DT_GNU_HASH: which of a library's symbols it defines. They are its last ones, from
// `first` on; the table itself does not say how many there are.
struct GnuHash {
  uint32_t buckets;
  uint32_t first;
  uint32_t bloom_words;
  uint32_t bloom_shift;

  uint32_t end() const {
    const auto* bloom = reinterpret_cast<const uint64_t*>(this + 1);
    const auto* bucket = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    const uint32_t* chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; ++i) {
      last = std::max(last, bucket[i]);
    }
    if (last < first) {
      return first;
    }
    while ((chain[last - first] & 1) == 0) {  // a chain ends with an odd value
      ++last;
    }
    return last + 1;
  }
};

struct Dynamic {
  explicit Dynamic(const link_map& map) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      // glibc has relocated the addresses in here already.
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
          break;
        case DT_STRTAB:
          strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
          break;
        case DT_JMPREL:
          calls = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
          break;
        case DT_PLTRELSZ:
          call_count = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        case DT_RELA:
          others = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
          break;
        case DT_GNU_HASH:
          hash = reinterpret_cast<const GnuHash*>(entry->d_un.d_ptr);
          break;
        case DT_RELASZ:
          other_count = entry->d_un.d_val / sizeof(ElfW(Rela));
          break;
        default:
          break;
      }
    }
  }
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const ElfW(Rela) * calls = nullptr;
  const ElfW(Rela) * others = nullptr;
  const GnuHash* hash = nullptr;
  size_t call_count = 0;
  size_t other_count = 0;
};

void write_entry(void** entry, void* value) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) & ~(page - 1));
  // Usually read-only after relocation (RELRO). Left writable: other entries on the
  // page follow, and lazily bound ones must stay writable anyway.
  TORCH_CHECK(mprotect(start, page, PROT_READ | PROT_WRITE) == 0,
              "interpool: a loaded library's offset table cannot be patched: ", std::strerror(errno));
  __atomic_store_n(entry, value, __ATOMIC_RELEASE);
}

void patch_each(void* library, const std::function<void*(const char*)>& definition_of) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  link_map* map = nullptr;
  TORCH_CHECK(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0, "interpool: dlinfo: ", dlerror());
  const Dynamic dynamic(*map);
  auto walk = [&](const ElfW(Rela)* entries, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const ElfW(Rela) & entry = entries[i];
      const auto symbol = ELF64_R_SYM(entry.r_info);
      if (symbol == 0 || !is_got_entry(ELF64_R_TYPE(entry.r_info))) {
        continue;
      }
      if (void* found = definition_of(dynamic.strings + dynamic.symbols[symbol].st_name)) {
        write_entry(reinterpret_cast<void**>(map->l_addr + entry.r_offset), found);
      }
    }
  };
  walk(dynamic.calls, dynamic.call_count);
  walk(dynamic.others, dynamic.other_count);
}

}  // namespace

void patch_got(void* library, const char* name, void* definition) {
  patch_each(library,
             [&](const char* found) { return std::strcmp(found, name) == 0 ? definition : nullptr; });
}

void patch_got_to_interposer(void* library, const std::function<bool(std::string_view)>& which) {
  Dl_info self{};
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&patch_got_to_interposer), &self) != 0,
              "interpool: the interposer does not find itself");
  void* interposer = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  TORCH_CHECK(interposer != nullptr, "interpool: ", dlerror());
  link_map* map = nullptr;
  TORCH_CHECK(dlinfo(interposer, RTLD_DI_LINKMAP, &map) == 0, "interpool: dlinfo: ", dlerror());
  const Dynamic dynamic(*map);
  TORCH_CHECK(dynamic.hash != nullptr, "interpool: the interposer was linked without a GNU hash table");
  std::unordered_map<std::string_view, void*> own;
  for (uint32_t i = dynamic.hash->first; i < dynamic.hash->end(); ++i) {
    const ElfW(Sym) & symbol = dynamic.symbols[i];
    const std::string_view name = dynamic.strings + symbol.st_name;
    // Strong C++ names: not, say, a template that both have instantiated.
    if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && name.starts_with("_Z") && (!which || which(name))) {
      own[name] = reinterpret_cast<void*>(map->l_addr + symbol.st_value);
    }
  }
  patch_each(library, [&](const char* name) -> void* {
    const auto found = own.find(name);
    return found == own.end() ? nullptr : found->second;
  });
  dlclose(interposer);
}

}  // namespace interpool
