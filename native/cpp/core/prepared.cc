#include "prepared.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "../upstream/torch_words.h"

namespace interpool {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHow =
    " Run `interpool prepare` with the Python that has interpool and torch installed.";
constexpr const char* kFile = "prepared.txt";

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any interpreter starts
  return value != nullptr ? value : "";
}

// The file that this library was loaded from; "" if it cannot be known.
std::string own_file() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&read_prepared), &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "";
}

// Without links; nothing if there is no such file. This and what follows does without std::filesystem. Its
// functions for files came with the libstdc++ of GCC 9, and wheels have to do with that of GCC 8.
std::optional<std::string> resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr), &std::free);
  return found ? std::optional<std::string>(found.get()) : std::nullopt;
}

// As much of it as is there without links, and then what is not.
std::string resolved_in_part(const std::string& path) {
  fs::path rest;
  for (fs::path at = path; at != at.parent_path(); at = at.parent_path()) {
    if (const auto found = resolved(at)) {
      return rest.empty() ? *found : (fs::path(*found) / rest).lexically_normal().string();
    }
    rest = rest.empty() ? at.filename() : at.filename() / rest;
  }
  return fs::path(path).lexically_normal().string();
}

bool is_directory(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat found{};
  struct stat others{};
  return ::stat(one.c_str(), &found) == 0 && ::stat(other.c_str(), &others) == 0 &&
         found.st_dev == others.st_dev && found.st_ino == others.st_ino;
}

// That of the bundle around this library, which lies in the bundle's lib/; "" outside of one.
std::string file_around() {
  const std::optional<std::string> own = resolved(own_file());
  if (!own) {
    return "";
  }
  const fs::path file = fs::path(*own).parent_path().parent_path() / kFile;
  return ::access(file.c_str(), F_OK) == 0 ? file.string() : "";
}

std::string file_of(const std::string& named) {
  return is_directory(named) ? (fs::path(named) / kFile).string() : named;
}

std::string default_file() {
  if (const std::string named = environment("INTERPOOL_PREPARED"); !named.empty()) {
    return file_of(named);
  }
  if (std::string around = file_around(); !around.empty()) {
    return around;
  }
  std::string cache = environment("INTERPOOL_CACHE");
  if (cache.empty()) {
    const std::string base = environment("XDG_CACHE_HOME");
    cache = (base.empty() ? environment("HOME") + "/.cache" : base) + "/interpool";
  }
  return cache + "/" + kFile;
}

struct Prepared {
  std::string file;
  fs::path root;  // its folder
  std::map<int, std::string> libpython;
  Process::Copies copies;

  std::string path_of(const std::string& field) const {
    const fs::path path(field);
    return path.is_absolute() ? field : (root / path).lexically_normal().string();
  }

  // The same, or a name for the dynamic linker.
  std::string library_of(const std::string& field) const {
    return field.find('/') == std::string::npos ? field : path_of(field);
  }

  const std::string& libpython_copy(int slot) const {
    const auto found = libpython.find(slot);
    if (found == libpython.end()) {
      throw ProvisioningError(
          file + " prepares " + std::to_string(libpython.size()) +
          " interpreters, and another is wanted: give `interpool prepare` a larger --slots.");
    }
    return found->second;
  }

  std::vector<std::string> private_copy(const std::string& path, int slot) const {
    if (const auto found = copies.find({path, slot}); found != copies.end()) {
      return found->second;
    }
    if (path.find('/') == std::string::npos) {
      return {path};  // the dynamic linker finds it, as always
    }
    // Some write folder/../library.so.
    if (const auto found = copies.find({resolved_in_part(path), slot}); found != copies.end()) {
      return found->second;
    }
    throw ProvisioningError(path + " was not prepared for interpreter " + std::to_string(slot) + ": " + file +
                            " does not name it. Run `interpool prepare` again with --import for the package "
                            "that it belongs to.");
  }
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) {
    fields.push_back(field);
  }
  return fields;
}

// A slot's number; nothing if the field is not one.
std::optional<int> slot_of(const std::string& field) {
  int slot = 0;
  const char* end = field.data() + field.size();
  const auto [stopped, error] = std::from_chars(field.data(), end, slot);
  return error == std::errc() && stopped == end ? std::optional(slot) : std::nullopt;
}

}  // namespace

std::pair<Installation, Provisioner> read_prepared(const std::string& named) {
  auto prepared = std::make_shared<Prepared>();
  prepared->file = named.empty() ? default_file() : file_of(named);
  std::ifstream stream(prepared->file);
  std::string line;
  if (!stream) {
    throw ProvisioningError("there is no prepared cache at " + prepared->file +
                            ", and a process without a Python of its own makes no private copies." + kHow);
  }
  if (!std::getline(stream, line) || line != "interpool-prepared 2") {
    throw ProvisioningError(prepared->file + " was not written by this version of interpool." + kHow);
  }
  // Without links, as code likes to resolve them and then asks for libraries by what that gives.
  prepared->root = fs::path(resolved_in_part(prepared->file)).parent_path();
  Installation installation;
  std::string version;
  const std::map<std::string, std::string*> names = {
      {"interpool", &version},
      {"executable", &installation.executable},
      {"symbol_prefix", &installation.symbol_prefix},
      {"torch_lib", &installation.torch_lib},
      {"interposer", &installation.interposer},
      {"slot_library", &installation.slot_library},
      {"loader", &installation.loader},
      {"notes", &installation.notes},
      {"home", &installation.home},
  };
  while (std::getline(stream, line)) {
    const auto fields = fields_of(line);
    const auto name = names.find(fields.empty() ? "" : fields[0]);
    const std::optional<int> slot = fields.size() > 2 ? slot_of(fields[1]) : std::nullopt;
    if (name != names.end() && fields.size() == 2) {
      const bool is_path = name->second != &version && name->second != &installation.symbol_prefix;
      *name->second = is_path ? prepared->path_of(fields[1]) : fields[1];
    } else if (fields.size() == 2 && fields[0] == "search") {
      installation.search_path.push_back(prepared->path_of(fields[1]));
    } else if (slot && fields.size() == 3 && fields[0] == "libpython") {
      prepared->libpython[*slot] = prepared->path_of(fields[2]);
    } else if (slot && fields.size() > 3 && fields[0] == "copy") {
      auto& files = prepared->copies[{prepared->library_of(fields[2]), *slot}];
      files.clear();
      for (size_t i = 3; i < fields.size(); ++i) {
        files.push_back(prepared->library_of(fields[i]));
      }
    } else {
      throw ProvisioningError(prepared->file + " is damaged at \"" + line + "\"." + kHow);
    }
  }
  for (const auto& [name, value] : names) {
    if (value->empty() && value != &installation.notes && value != &installation.home) {
      throw ProvisioningError(prepared->file + " is cut short: it names no " + name + "." + kHow);
    }
  }
  if (version != INTERPOOL_VERSION) {
    throw ProvisioningError(
        prepared->file + " was made by interpool " + version + ", and this program has loaded " + own_file() +
        " of interpool " INTERPOOL_VERSION +
        ". Have the program find the libinterpool.so of that version, a bundle's own in its "
        "lib, or run `interpool prepare` with this one.");
  }
  return {installation,
          {[prepared](const std::string& path, int slot) { return prepared->private_copy(path, slot); },
           [prepared](int slot) { return prepared->libpython_copy(slot); }, prepared->libpython.size()}};
}

void require_no_other_torch(const std::string& torch_lib) {
  for (const char* name : kSharedLibraries) {
    void* const loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    link_map* map = nullptr;
    if (loaded == nullptr || dlinfo(loaded, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) {
      continue;
    }
    const std::string file = map->l_name;
    dlclose(loaded);
    const fs::path ours = fs::path(torch_lib) / name;
    if (::access(ours.c_str(), F_OK) == 0 && !is_same_file(file, ours)) {
      throw ProvisioningError("this program has loaded " + file + ", and what was prepared is for " +
                              ours.string() +
                              ": a process has one libtorch. Have the program find the latter first "
                              "(LD_LIBRARY_PATH, or its RUNPATH).");
    }
  }
}

}  // namespace interpool
