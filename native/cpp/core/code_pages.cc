#include "code_pages.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace interpool {
namespace {

// Within a segment, a shorter run of equal pages is not worth a mapping of its own: a process
// may have 65,530.
constexpr size_t kShortestRun = 16;

size_t page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// The template of a slot's copy, as provision/copies.py lays them out; empty for another file.
// Should it be another's after all, its pages differ.
std::filesystem::path template_of(const std::filesystem::path& copy) {
  const auto home = copy.parent_path();
  const auto slots = home.parent_path().parent_path();
  const std::string key = home.filename();
  const size_t variant = key.rfind('-');
  if (slots.filename() != "slots" || variant == std::string::npos) {
    return {};
  }
  return slots.parent_path() / "files" / key.substr(0, variant) / copy.filename();
}

struct Range {
  char* begin;
  size_t bytes;
  size_t offset;  // in the file
  int protection;
};

// The file's pages of `range`, mapped elsewhere for as long as they are compared.
class Window {
 public:
  Window(int fd, const Range& range)
      : bytes_(range.bytes),
        at_(mmap(nullptr, range.bytes, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(range.offset))) {}
  ~Window() {
    if (at_ != MAP_FAILED) {
      munmap(at_, bytes_);
    }
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  bool mapped() const { return at_ != MAP_FAILED; }
  const char* begin() const { return static_cast<const char*>(at_); }

 private:
  const size_t bytes_;
  void* const at_;
};

#ifdef __SANITIZE_ADDRESS__
// In an instrumented library, AddressSanitizer reports reads of what lies between constants, in memcmp, too.
__attribute__((no_sanitize_address)) bool same(const char* one, const char* other, size_t bytes) {
  size_t i = 0;
  while (i < bytes && one[i] == other[i]) {
    ++i;
  }
  return i == bytes;
}
#else
bool same(const char* one, const char* other, size_t bytes) {
  return std::memcmp(one, other, bytes) == 0;
}
#endif

void share(int fd, const Range& range) {
  const Window original(fd, range);
  if (!original.mapped()) {
    return;
  }
  const size_t page = page_size();
  const size_t pages = range.bytes / page;
  size_t first = 0;
  const auto equal = [&](size_t i) {
    return same(range.begin + i * page, original.begin() + i * page, page);
  };
  while (first < pages) {
    size_t end = first;
    while (end < pages && equal(end)) {
      ++end;
    }
    if (end - first >= kShortestRun || end - first == pages) {
      // Same bytes, put in place at once: a thread that runs in them does not notice.
      mmap(range.begin + first * page, (end - first) * page, range.protection, MAP_PRIVATE | MAP_FIXED, fd,
           static_cast<off_t>(range.offset + first * page));
    }
    first = end + 1;
  }
}

// A segment that is mapped as it stands in the file, and never written to.
std::optional<Range> constant_range(const ElfW(Phdr) & segment, uintptr_t base) {
  const size_t page = page_size();
  const size_t before = segment.p_vaddr % page;
  if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_R | PF_W)) != PF_R ||
      segment.p_filesz != segment.p_memsz || segment.p_filesz == 0 || before != segment.p_offset % page) {
    return std::nullopt;
  }
  return Range{reinterpret_cast<char*>(base + segment.p_vaddr - before),
               (before + segment.p_filesz + page - 1) / page * page, segment.p_offset - before,
               PROT_READ | ((segment.p_flags & PF_X) != 0 ? PROT_EXEC : 0)};
}

struct Library {
  const link_map* map;
  std::vector<Range> ranges;
};

// The loader's lock is held: nothing but a look at its list.
int note_ranges(dl_phdr_info* info, size_t, void* data) {
  auto& library = *static_cast<Library*>(data);
  if (info->dlpi_addr != library.map->l_addr || std::strcmp(info->dlpi_name, library.map->l_name) != 0) {
    return 0;
  }
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    if (const auto range = constant_range(info->dlpi_phdr[i], info->dlpi_addr)) {
      library.ranges.push_back(*range);
    }
  }
  return 1;
}

}  // namespace

void share_code_pages(void* handle) noexcept {
  Library library{};
  if (dlinfo(handle, RTLD_DI_LINKMAP, &library.map) != 0) {
    return;
  }
  try {
    const auto original = template_of(library.map->l_name);
    const int fd = original.empty() ? -1 : open(original.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      return;
    }
    struct stat kept{};
    struct stat copied{};
    if (fstat(fd, &kept) == 0 && stat(library.map->l_name, &copied) == 0 && kept.st_size == copied.st_size) {
      dl_iterate_phdr(note_ranges, &library);
      for (const Range& range : library.ranges) {
        share(fd, range);
      }
    }
    close(fd);
  } catch (const std::exception&) {  // no memory for a path: the copy keeps its pages
    return;
  }
}

}  // namespace interpool
