#include "otf_frames.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <interpool/errors.h>

namespace interpool {
namespace {

constexpr size_t kChunk = 64 * 1024;
constexpr int32_t kEndOfList = -1;
constexpr size_t kIntSize = 4;

}  // namespace

bool FrameReader::fill(size_t wanted) {
  while (buffer_.size() - start_ < wanted) {
    if (start_ > 0) {
      buffer_.erase(0, start_);
      start_ = 0;
    }
    // Grows with what really arrives, not with what a length field promises.
    const size_t before = buffer_.size();
    buffer_.resize(before + std::min(std::max(wanted - before, kChunk), size_t{1} << 24));
    const ssize_t got = ::recv(fd_, buffer_.data() + before, buffer_.size() - before, 0);
    buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
  }
  return true;
}

void FrameReader::take(size_t count) {
  if (!fill(count)) {
    throw Error("the connection ended inside a message");
  }
  frame_->append(buffer_, start_, count);
  start_ += count;
}

int32_t FrameReader::take_int() {
  take(kIntSize);
  uint8_t raw[kIntSize];
  std::memcpy(raw, frame_->data() + frame_->size() - kIntSize, kIntSize);
  const uint32_t value =
      uint32_t{raw[0]} << 24 | uint32_t{raw[1]} << 16 | uint32_t{raw[2]} << 8 | uint32_t{raw[3]};
  return static_cast<int32_t>(value);
}

void FrameReader::take_field() {
  const int32_t length = take_int();
  if (length < 0) {
    throw Error("a message holds a field of negative length");
  }
  take(static_cast<size_t>(length));
}

bool FrameReader::next(std::string& frame) {
  frame.clear();
  frame_ = &frame;
  if (!fill(1)) {
    return false;
  }
  take(1);
  switch (frame[0]) {
    case 'L':
      take_field();    // model name
      take_field();    // model path
      take(kIntSize);  // batch size
      take_field();    // handler
      take(kIntSize);  // GPU
      take_field();    // envelope
      take(1);         // limitMaxImagePixels
      return true;
    case 'I': {
      // Lists end with -1 in the place of the next item's first length.
      const auto more = [this] {
        const int32_t length = take_int();
        if (length == kEndOfList) {
          return false;
        }
        if (length < 0) {
          throw Error("a message holds a field of negative length");
        }
        take(static_cast<size_t>(length));
        return true;
      };
      while (more()) {    // request id
        while (more()) {  // header name
          take_field();   // header value
        }
        while (more()) {  // parameter name
          take_field();   // content type
          take_field();   // value
        }
      }
      return true;
    }
    default:
      throw Error("unknown command " + std::to_string(static_cast<unsigned char>(frame[0])) +
                  "; only TorchServe's LOAD and PREDICT are known");
  }
}

bool send_all(int fd, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    sent += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace interpool
