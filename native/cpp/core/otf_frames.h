// TorchServe's wire protocol ("OTF"), as far as knowing where a message ends.
// Mirrors ts/protocol/otf_message_handler.py, which decodes the message later,
// inside an interpreter.
#pragma once

#include <cstddef>
#include <string>

namespace interpool {

// Reads whole messages from a connected stream socket. One thread at a time; no
// GIL involved.
class FrameReader {
 public:
  explicit FrameReader(int fd) : fd_(fd) {}

  // Blocks for the next message. False at the end of the stream between messages;
  // Error when it ends inside of one, or when the bytes are not the protocol.
  bool next(std::string& frame);

 private:
  bool fill(size_t wanted);
  void take(size_t count);
  int32_t take_int();
  void take_field();

  const int fd_;
  std::string buffer_;  // received and not yet consumed, from `start_` on
  size_t start_ = 0;
  std::string* frame_ = nullptr;
};

// Writes all of it; false when the peer is gone. Never raises SIGPIPE.
bool send_all(int fd, const std::string& bytes);

}  // namespace interpool
