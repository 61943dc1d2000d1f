// TorchServe's wire protocol ("OTF"), as far as knowing where a message ends.
// Mirrors ts/protocol/otf_message_handler.py; slot/otf_messages.cc makes Python's objects
// of a message later, inside an interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace interpool {

// No batch of TorchServe's comes near it. A request is at most max_request_size, 6.5 MB unless it is raised.
// It is never more than Java's arrays and the protocol's lengths take, 2 GiB. So it is not derived from
// settings, which the frontend's process has. What exceeds it is no protocol, or never ends.
inline constexpr size_t kMostMessageBytes = size_t{16} << 30;

// Reads whole messages from a connected stream socket, blocking or not. One thread at a time; no
// GIL involved.
class FrameReader {
 public:
  explicit FrameReader(int fd, size_t most_bytes = kMostMessageBytes) : fd_(fd), most_bytes_(most_bytes) {}

  // Blocks for the next message, which lies where it was received, until the next call. nullopt at the end of
  // the stream between messages. Error if the stream ends inside of one, if the bytes are not the protocol,
  // or if they promise more than `most_bytes`.
  std::optional<std::string_view> next();
  // What keeps that message where it lies, beyond the next call, too. Any thread may let go of it.
  std::shared_ptr<const void> memory() const { return buffer_; }
  // The ids of the requests in that message, which lie in it.
  const std::vector<std::string_view>& request_ids() const { return request_ids_; }
  // Whether the peer closed without having read all that was sent to it.
  bool left_unread() const { return left_unread_; }

 private:
  bool fill(size_t wanted);
  void make_room();
  void move_to(size_t capacity);
  void skip(size_t count);
  int32_t take_int();
  void skip_field();
  std::optional<size_t> skip_item();

  const int fd_;
  const size_t most_bytes_;
  // [start_, end_) was received: a message, and perhaps the beginning of the next one.
  std::shared_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t start_ = 0;
  size_t end_ = 0;
  size_t size_ = 0;  // of the message, as far as it is known
  std::vector<std::string_view> request_ids_;
  bool left_unread_ = false;
};

// Writes all of it to a socket, blocking or not; false when the peer is gone. Never raises SIGPIPE.
bool send_all(int fd, std::string_view bytes);

// Whether it is an answer that hands TorchServe each request's own.
bool is_success(std::string_view answer);

// The answer that fails all requests of a message.
std::string failure(int32_t code, std::string_view text);

}  // namespace interpool
