#include "got_patching.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "../elf/elf_image.h"

namespace interpool {
namespace {

void write_entry(void** entry, void* value) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) & ~(page - 1));
  // Usually read-only after relocation (RELRO). Left writable: other entries on the
  // page follow, and lazily bound ones must stay writable anyway.
  TORCH_CHECK(mprotect(start, page, PROT_READ | PROT_WRITE) == 0,
              "interpool: a loaded library's offset table cannot be patched: ", std::strerror(errno));
  __atomic_store_n(entry, value, __ATOMIC_RELEASE);
}

template <typename Definitions>
void patch(void* library, const Definitions& definitions) {
  static std::mutex mutex;  // one library at a time; a leaf lock
  const std::lock_guard lock(mutex);
  ElfImage(library).each_got_entry([&](const char* name, void** entry) {
    if (const auto found = definitions.find(name); found != definitions.end()) {
      write_entry(entry, found->second);
    }
  });
}

}  // namespace

void patch_got(void* library, const std::map<std::string_view, void*>& definitions) {
  patch(library, definitions);
}

void patch_got_to_interposer(void* library, const std::function<bool(std::string_view)>& which) {
  Dl_info self{};
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&patch_got_to_interposer), &self) != 0,
              "interpool: the interposer does not find itself");
  void* interposer = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  TORCH_CHECK(interposer != nullptr, "interpool: ", dlerror());
  const ElfImage image(interposer);
  std::unordered_map<std::string_view, void*> own;
  image.each_definition([&](std::string_view name, const ElfW(Sym) & symbol) {
    // Strong C++ names: not, say, a template that both have instantiated.
    if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && name.starts_with("_Z") && (!which || which(name))) {
      own[name] = image.address_of(symbol);
    }
  });
  TORCH_CHECK(!own.empty(), "interpool: the interposer defines nothing, or has no GNU hash table");
  patch(library, own);
  dlclose(interposer);
}

}  // namespace interpool
