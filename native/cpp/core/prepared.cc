#include "prepared.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

namespace interpool {
namespace {

constexpr const char* kHow =
    " Run `interpool prepare` with the Python that has interpool and torch installed.";

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any interpreter starts
  return value != nullptr ? value : "";
}

std::string default_file() {
  if (const std::string named = environment("INTERPOOL_PREPARED"); !named.empty()) {
    return named;
  }
  std::string cache = environment("INTERPOOL_CACHE");
  if (cache.empty()) {
    const std::string base = environment("XDG_CACHE_HOME");
    cache = (base.empty() ? environment("HOME") + "/.cache" : base) + "/interpool";
  }
  return cache + "/prepared.txt";
}

struct Prepared {
  std::string file;
  std::map<int, std::string> libpython;
  Process::Copies copies;

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

// A slot's number; nothing where the field is not one.
std::optional<int> slot_of(const std::string& field) {
  int slot = 0;
  const char* end = field.data() + field.size();
  const auto [stopped, error] = std::from_chars(field.data(), end, slot);
  return error == std::errc() && stopped == end ? std::optional(slot) : std::nullopt;
}

}  // namespace

std::pair<Installation, Provisioner> read_prepared(const std::string& given) {
  auto prepared = std::make_shared<Prepared>();
  prepared->file = given.empty() ? default_file() : given;
  std::ifstream stream(prepared->file);
  std::string line;
  if (!stream) {
    throw ProvisioningError("there is no prepared cache at " + prepared->file +
                            ", and a process without a Python of its own makes no private copies." + kHow);
  }
  if (!std::getline(stream, line) || line != "interpool-prepared 1") {
    throw ProvisioningError(prepared->file + " was not written by this version of interpool." + kHow);
  }
  Installation installation;
  const std::map<std::string, std::string*> names = {
      {"executable", &installation.executable},     {"symbol_prefix", &installation.symbol_prefix},
      {"torch_lib", &installation.torch_lib},       {"interposer", &installation.interposer},
      {"slot_library", &installation.slot_library}, {"loader", &installation.loader},
  };
  while (std::getline(stream, line)) {
    const auto fields = fields_of(line);
    const auto name = names.find(fields.empty() ? "" : fields[0]);
    const std::optional<int> slot = fields.size() > 2 ? slot_of(fields[1]) : std::nullopt;
    if (name != names.end() && fields.size() == 2) {
      *name->second = fields[1];
    } else if (fields.size() == 2 && fields[0] == "notes") {
      installation.notes = fields[1];
    } else if (fields.size() == 2 && fields[0] == "search") {
      installation.search_path.push_back(fields[1]);
    } else if (slot && fields.size() == 3 && fields[0] == "libpython") {
      prepared->libpython[*slot] = fields[2];
    } else if (slot && fields.size() > 3 && fields[0] == "copy") {
      prepared->copies[{fields[2], *slot}].assign(fields.begin() + 3, fields.end());
    } else {
      throw ProvisioningError(prepared->file + " is damaged at \"" + line + "\"." + kHow);
    }
  }
  for (const auto& [name, value] : names) {
    if (value->empty()) {
      throw ProvisioningError(prepared->file + " is cut short: it names no " + name + "." + kHow);
    }
  }
  return {installation,
          {[prepared](const std::string& path, int slot) { return prepared->private_copy(path, slot); },
           [prepared](int slot) { return prepared->libpython_copy(slot); }, prepared->libpython.size()}};
}

}  // namespace interpool
