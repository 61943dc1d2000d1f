#include "registrations.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/frontend/schema_type_parser.h>

#include <charconv>
#include <mutex>
#include <sstream>
#include <vector>

#include "kernels.h"
#include "opaque_types.h"
#include "registration.h"
#include "torch_library.h"

namespace interpool {
namespace {

constexpr const char* kHeader = "registrations 1";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char letter : line) {
    if (letter == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

int number_of(const std::string& field) {
  int number = 0;
  const char* const end = field.data() + field.size();
  const auto [stopped, error] = std::from_chars(field.data(), end, number);
  TORCH_CHECK(error == std::errc() && stopped == end, "interpool: no number in a note: ", field);
  return number;
}

c10::FunctionSchema schema_of(const std::string& text, int alias_analysis) {
  c10::FunctionSchema schema = torch::jit::parseSchema(text);
  schema.setAliasAnalysis(static_cast<c10::AliasAnalysisKind>(alias_analysis));
  return schema;
}

std::optional<c10::DispatchKey> key_of(const std::string& field) {
  const int key = number_of(field);
  return key < 0 ? std::nullopt : std::optional(static_cast<c10::DispatchKey>(key));
}

std::string field_of(const c10::OperatorName& name, std::optional<c10::DispatchKey> key) {
  return name.name + '\t' + name.overload_name + '\t' +
         std::to_string(key.has_value() ? static_cast<int>(*key) : -1);
}

// A file's name could hold anything.
std::string one_field(const std::string& text) {
  return text.find_first_of("\t\n") == std::string::npos ? text : "";
}

// def SCHEMA ALIAS-ANALYSIS PLACE TAG...
void write(std::ostream& stream, const c10::OperatorName& name) {
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op.has_value()) {
    return;
  }
  const c10::FunctionSchema& schema = op->schema();
  stream << "def\t" << c10::toString(schema) << '\t' << static_cast<int>(schema.aliasAnalysis()) << '\t'
         << one_field(op->debug());
  for (const at::Tag tag : op->getTags()) {
    stream << '\t' << static_cast<int>(tag);
  }
  stream << '\n';
}

}  // namespace

std::string noted_registrations(InterpreterId id) {
  std::ostringstream stream;
  stream << kHeader << '\n';
  for (const std::string& name : opaque_types_of(id)) {
    stream << "opaque\t" << name << '\n';
  }
  const std::lock_guard lock(registration_mutex());
  for (const c10::OperatorName& name : definitions_of(id)) {
    write(stream, name);
  }
  for (const auto& [op, key, place] : fallthroughs_of(id)) {
    stream << "fall\t" << field_of(op, key) << '\t' << one_field(place) << '\n';
  }
  for (const auto& [op, key] : python_kernels_of(id)) {
    stream << "impl\t" << field_of(op, key) << '\n';
  }
  return stream.str();
}

void repeat_registrations(const std::string& note) {
  std::istringstream stream(note);
  std::string line;
  TORCH_CHECK(std::getline(stream, line) && line == kHeader, "interpool: another build's note: ", line);
  const std::lock_guard lock(registration_mutex());
  while (std::getline(stream, line)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() == 2 && fields[0] == "opaque") {
      torch::jit::registerOpaqueType(fields[1]);
    } else if (fields.size() >= 4 && fields[0] == "def") {
      std::vector<at::Tag> tags;
      for (size_t at = 4; at < fields.size(); ++at) {
        tags.push_back(static_cast<at::Tag>(number_of(fields[at])));
      }
      define_for_process(schema_of(fields[1], number_of(fields[2])), fields[3], tags);
    } else if (fields.size() == 5 && fields[0] == "fall") {
      fall_through_for_process({{fields[1], fields[2]}, key_of(fields[3]), fields[4]});
    } else if (fields.size() == 4 && fields[0] == "impl") {
      expect_python_kernel({fields[1], fields[2]}, key_of(fields[3]));
    } else {
      TORCH_CHECK(false, "interpool: a note that is damaged at: ", line);
    }
  }
}

}  // namespace interpool
