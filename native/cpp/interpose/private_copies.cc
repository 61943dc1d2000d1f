#include "private_copies.h"

#include <dlfcn.h>
#include <link.h>

#include <charconv>
#include <string>
#include <string_view>

namespace interpool {
namespace {

// What a slot's copies are called: native/provision/records.py has the other half.
constexpr std::string_view kMarker = "ipslot";
constexpr size_t kDigits = 4;

std::string_view soname_of(const link_map& map) {
  const char* strings = nullptr;
  const ElfW(Dyn)* name = nullptr;
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_SONAME) {
      name = entry;
    }
  }
  return strings != nullptr && name != nullptr ? strings + name->d_un.d_val : "";
}

}  // namespace

InterpreterId owner_of_code(const void* address) noexcept {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) {
    return kNone;
  }
  const std::string_view soname = soname_of(*map);
  if (!soname.starts_with(kMarker) || soname.size() < kMarker.size() + kDigits) {
    return kNone;
  }
  InterpreterId id = kNone;
  const char* const digits = soname.data() + kMarker.size();
  std::from_chars(digits, digits + kDigits, id);
  return id;
}

std::string original_name(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) {
    return "";
  }
  // ipslotNNNN-HASH-NAME
  const std::string_view soname = soname_of(*map);
  const size_t hash = soname.find('-');
  const size_t name = hash == std::string_view::npos ? hash : soname.find('-', hash + 1);
  return !soname.starts_with(kMarker) || name == std::string_view::npos
             ? ""
             : std::string(soname.substr(name + 1));
}

}  // namespace interpool
