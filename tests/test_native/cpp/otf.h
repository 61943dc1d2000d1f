// TorchServe's wire protocol, written out; what core/otf_frames.cc reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "threads.h"

namespace interpool::testing::otf {

inline std::string integer(int64_t value) {
  const auto bits = static_cast<uint32_t>(value);
  return {static_cast<char>(bits >> 24), static_cast<char>(bits >> 16), static_cast<char>(bits >> 8),
          static_cast<char>(bits)};
}

inline std::string field(const std::string& bytes) {
  return integer(static_cast<int64_t>(bytes.size())) + bytes;
}

inline std::string load(const std::string& model) {
  return "L" + field(model) + field("/models/" + model) + integer(1) + field("handler.py") + integer(-1) +
         field("") + "\1";
}

// One request with one parameter.
inline std::string predict(const std::string& id, const std::string& body) {
  return "I" + field(id) + integer(-1) + field("body") + field("text/plain") + field(body) + integer(-1) +
         integer(-1);
}

// Any message: loads and batches of any shape, with empty fields among them.
inline std::string random_message(Chance& chance) {
  const auto text = [&] { return chance.bytes(static_cast<size_t>(chance.number(0, 40))); };
  if (chance.number(0, 4) == 0) {
    return load(text());
  }
  std::string message = "I";
  for (int64_t requests = chance.number(0, 3); requests > 0; --requests) {
    message += field(text());
    for (int64_t headers = chance.number(0, 3); headers > 0; --headers)
      message += field(text()) + field(text());
    message += integer(-1);
    for (int64_t parameters = chance.number(0, 3); parameters > 0; --parameters) {
      const bool big = chance.number(0, 20) == 0;
      const std::string body = chance.bytes(static_cast<size_t>(chance.number(0, big ? 300'000 : 300)));
      message += field(text()) + field("application/octet-stream") + field(body);
    }
    message += integer(-1);
  }
  return message + integer(-1);
}

}  // namespace interpool::testing::otf
