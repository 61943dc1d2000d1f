// A connection without a socket: an event loop of this process asks, and gets the answers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <interpool/export.h>

#include "inbox.h"
#include "wire.h"

namespace interpool {

// What a channel brings.
struct Brought {
  int64_t channel;    // its number
  std::string bytes;  // an answer, or a part of one, as TorchServe's workers send it
  bool ended;         // the last item of its channel
};
using ChannelInbox = Inbox<Brought>;

// `mutex_` guards what stands below it and is a leaf lock.
class INTERPOOL_PUBLIC Channel final : public Wire, public std::enable_shared_from_this<Channel> {
 public:
  // `load_command` is its first message.
  static std::shared_ptr<Channel> open(std::shared_ptr<ChannelInbox> inbox, std::string load_command);
  // The open channel of that number, for the connection that is to serve it; null if there is none.
  static std::shared_ptr<Channel> find(int64_t number);
  ~Channel() override;

  // From 1; no other channel of this process has or had it.
  int64_t number() const { return number_; }
  const std::string& load_command() const { return *load_command_; }
  bool is_closed() const;

  // The event loop's side: a message, with the ids of its requests, which lie in it. The memory goes with
  // the last reference. Any thread; takes a lease if there is one without waiting.
  void ask(std::shared_ptr<const std::string> message, std::vector<std::string_view> ids);

  // The connection's side; see Wire.
  std::optional<Frame> next() override;
  bool send(std::string answer) override;
  bool send_part(std::string_view bytes) override { return send(std::string(bytes)); }
  void close() override;
  void offer_to(Taker taker) override;
  void put_back(Frame frame) override;

 private:
  Channel(std::shared_ptr<ChannelInbox> inbox, std::string load_command, int64_t number);

  const std::shared_ptr<ChannelInbox> inbox_;
  const std::shared_ptr<const std::string> load_command_;
  const int64_t number_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Frame> asked_;
  std::shared_ptr<const Taker> taker_;
  bool closed_ = false;
};

}  // namespace interpool
