#include "elf_image.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>

namespace interpool {
namespace {

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

}  // namespace

ElfImage::ElfImage(void* library) {
  link_map* map = nullptr;
  TORCH_CHECK(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0, "interpool: dlinfo: ", dlerror());
  base_ = map->l_addr;
  const GnuHash* hash = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    // glibc has relocated the addresses in here already.
    switch (entry->d_tag) {
      case DT_SYMTAB:
        symbols_ = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        strings_ = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        break;
      case DT_JMPREL:
        calls_ = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        call_count_ = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELA:
        others_ = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        other_count_ = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_GNU_HASH:
        hash = reinterpret_cast<const GnuHash*>(entry->d_un.d_ptr);
        break;
      default:
        break;
    }
  }
  if (hash != nullptr) {
    first_definition_ = hash->first;
    end_definition_ = hash->end();
  }
}

}  // namespace interpool
