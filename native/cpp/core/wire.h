// How a connection and those who ask it reach each other: by a socket, or in one process by a channel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <interpool/export.h>

#include "../seam/interpreter.h"
#include "otf_frames.h"

namespace interpool {

// One of TorchServe's messages.
struct Frame {
  Interpreter::Message message;
  std::vector<std::string_view> ids;  // of its requests, which lie in it
};

class INTERPOOL_PUBLIC Wire : public Interpreter::Receiver {
 public:
  // Blocks for the next message, which stays where it is until the next call; nullopt at the end. Error for
  // what is no message. For the connection's thread, which holds no GIL.
  virtual std::optional<Frame> next() = 0;
  // Ends it: next() returns, and what is sent is dropped. Any thread.
  virtual void close() = 0;
  // An answer; false if the other side takes it no more. Any thread, one at a time.
  virtual bool send(std::string answer) = 0;
  // Whether the other side left anything unread of what was sent to it.
  virtual bool left_unread() const { return false; }
  // Whether the other side may send what was answered once more, by another wire.
  virtual bool may_repeat() const { return false; }
  // Has messages given to `taker`, on the thread that brings them, before next() gets them: if it says that
  // it took one, next() does not. Only some wires can do so.
  using Taker = std::function<bool(const Frame&)>;
  virtual void offer_to(Taker taker) { static_cast<void>(taker); }
  // Has next() give this message, which was taken: its taker could not answer it after all.
  virtual void put_back(Frame frame) { static_cast<void>(frame); }
};

// A connected stream socket on which TorchServe's worker protocol is spoken; closed with the last reference.
class INTERPOOL_PUBLIC SocketWire final : public Wire, public std::enable_shared_from_this<SocketWire> {
 public:
  explicit SocketWire(int fd) : fd_(fd), reader_(fd) {}
  ~SocketWire() override;

  std::optional<Frame> next() override;
  bool send(std::string answer) override { return send_all(fd_, answer); }
  bool send_part(std::string_view bytes) override { return send_all(fd_, bytes); }
  void close() override;
  bool left_unread() const override { return reader_.left_unread(); }
  bool may_repeat() const override { return true; }

 private:
  const int fd_;
  FrameReader reader_;  // the connection's thread's
};

}  // namespace interpool
