#include "otf_frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <interpool/errors.h>

namespace interpool {
namespace {

constexpr size_t kChunk = size_t{64} << 10;
constexpr size_t kKept = size_t{8} << 20;  // of memory, while a connection waits
constexpr int32_t kEndOfList = -1;
constexpr size_t kIntSize = 4;
constexpr int32_t kSuccess = 200;

std::string integer(int32_t value) {
  const auto bits = static_cast<uint32_t>(value);
  return {static_cast<char>(bits >> 24), static_cast<char>(bits >> 16), static_cast<char>(bits >> 8),
          static_cast<char>(bits)};
}

// After a call that failed: was it that the descriptor does not block? Then this waits until it is ready.
bool may_go_on(int fd, short event) {
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    return false;
  }
  pollfd one{fd, event, 0};
  return ::poll(&one, 1, -1) > 0 || errno == EINTR;
}

}  // namespace

// Has the first `wanted` bytes of the message there.
bool FrameReader::fill(size_t wanted) {
  while (end_ - start_ < wanted) {
    if (end_ == capacity_) {
      make_room();
    }
    const ssize_t got = ::recv(fd_, buffer_.get() + end_, capacity_ - end_, 0);
    if (got < 0 && (errno == EINTR || may_go_on(fd_, POLLIN))) {
      continue;
    }
    if (got <= 0) {
      left_unread_ = got < 0 && errno == ECONNRESET;
      return false;
    }
    end_ += static_cast<size_t>(got);
  }
  return true;
}

// Grows with what really arrives, not with what a length field promises.
void FrameReader::make_room() {
  if (start_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + start_, end_ - start_);
    end_ -= start_;
    start_ = 0;
    return;
  }
  move_to(std::max(kChunk, 2 * capacity_));
}

// To memory of its own, which is not zeroed.
void FrameReader::move_to(size_t capacity) {
  std::shared_ptr<char[]> other(new char[capacity]);
  if (end_ > start_) {
    std::memcpy(other.get(), buffer_.get() + start_, end_ - start_);
  }
  end_ -= std::exchange(start_, 0);
  buffer_ = std::move(other);
  capacity_ = capacity;
}

void FrameReader::skip(size_t count) {
  if (count > most_bytes_ - size_) {
    throw Error("a message of " + std::to_string(size_ + count) + " bytes or more begins, and at most " +
                std::to_string(most_bytes_) + " are taken");
  }
  if (!fill(size_ + count)) {
    throw Error("the connection ended inside a message");
  }
  size_ += count;
}

int32_t FrameReader::take_int() {
  skip(kIntSize);
  uint8_t raw[kIntSize];
  std::memcpy(raw, buffer_.get() + start_ + size_ - kIntSize, kIntSize);
  const uint32_t value =
      uint32_t{raw[0]} << 24 | uint32_t{raw[1]} << 16 | uint32_t{raw[2]} << 8 | uint32_t{raw[3]};
  return static_cast<int32_t>(value);
}

void FrameReader::skip_field() {
  const int32_t length = take_int();
  if (length < 0) {
    throw Error("a message holds a field of negative length");
  }
  skip(static_cast<size_t>(length));
}

// Its size. Lists end with -1 in the place of the next item's first length.
std::optional<size_t> FrameReader::skip_item() {
  const int32_t length = take_int();
  if (length == kEndOfList) {
    return std::nullopt;
  }
  if (length < 0) {
    throw Error("a message holds a field of negative length");
  }
  skip(static_cast<size_t>(length));
  return static_cast<size_t>(length);
}

std::optional<std::string_view> FrameReader::next() {
  start_ += std::exchange(size_, 0);
  request_ids_.clear();
  const bool is_taken = buffer_.use_count() > 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // its last reader has read what it wanted
  if (start_ == end_) {
    start_ = end_ = 0;
    if (is_taken || capacity_ > kKept) {
      buffer_.reset();
      capacity_ = 0;
    }
  } else if (is_taken) {
    move_to(std::max(kChunk, end_ - start_));
  }
  if (!fill(1)) {
    return std::nullopt;
  }
  skip(1);
  const char command = buffer_[start_];
  std::vector<std::pair<size_t, size_t>> ids;  // where they begin in the message, and their sizes
  switch (command) {
    case 'L':
      skip_field();    // model name
      skip_field();    // model path
      skip(kIntSize);  // batch size
      skip_field();    // handler
      skip(kIntSize);  // GPU
      skip_field();    // envelope
      skip(1);         // limitMaxImagePixels
      break;
    case 'I':
      while (const auto id = skip_item()) {
        ids.emplace_back(size_ - *id, *id);
        while (skip_item()) {  // header name
          skip_field();        // header value
        }
        while (skip_item()) {  // parameter name
          skip_field();        // content type
          skip_field();        // value
        }
      }
      break;
    default:
      throw Error("unknown command " + std::to_string(static_cast<unsigned char>(command)) +
                  "; only TorchServe's LOAD and PREDICT are known");
  }
  const std::string_view message(buffer_.get() + start_, size_);
  for (const auto& [begin, size] : ids) {
    request_ids_.push_back(message.substr(begin, size));
  }
  return message;
}

bool send_all(int fd, std::string_view bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && (errno == EINTR || may_go_on(fd, POLLOUT))) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool is_success(std::string_view answer) {
  return answer.starts_with(integer(kSuccess));
}

std::string failure(int32_t code, std::string_view text) {
  return integer(code) + integer(static_cast<int32_t>(text.size())).append(text) + integer(kEndOfList);
}

}  // namespace interpool
