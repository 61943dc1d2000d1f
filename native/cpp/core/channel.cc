#include "channel.h"

#include <map>
#include <utility>

#include "clock.h"

namespace interpool {
namespace {

// `mutex` is a leaf lock and guards what stands below it. Never destroyed, as threads may outlast static
// destructors.
struct Registry {
  std::mutex mutex;
  int64_t last = 0;
  std::map<int64_t, std::weak_ptr<Channel>> channels;
};

Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

}  // namespace

Channel::Channel(std::shared_ptr<ChannelInbox> inbox, std::string load_command, int64_t number)
    : inbox_(std::move(inbox)),
      load_command_(std::make_shared<const std::string>(std::move(load_command))),
      number_(number) {}

std::shared_ptr<Channel> Channel::open(std::shared_ptr<ChannelInbox> inbox, std::string load_command) {
  Registry& all = registry();
  std::shared_ptr<Channel> made;
  {
    const std::lock_guard lock(all.mutex);
    made.reset(new Channel(std::move(inbox), std::move(load_command), ++all.last));
    all.channels.emplace(made->number_, made);
  }
  made->ask(made->load_command_, {});
  return made;
}

std::shared_ptr<Channel> Channel::find(int64_t number) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto found = all.channels.find(number);
  return found != all.channels.end() ? found->second.lock() : nullptr;
}

Channel::~Channel() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.channels.erase(number_);
}

bool Channel::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

void Channel::ask(std::shared_ptr<const std::string> message, std::vector<std::string_view> ids) {
  const std::string_view bytes = *message;
  Frame frame{{bytes, std::move(message), in_seconds(Clock::now().time_since_epoch()), shared_from_this()},
              std::move(ids)};
  std::shared_ptr<const Taker> taker;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return;
    }
    if (asked_.empty()) {
      taker = taker_;
    }
  }
  if (taker != nullptr && (*taker)(frame)) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return;  // meanwhile: the frame has this channel, and would stay with it
    }
    asked_.push_back(std::move(frame));
  }
  changed_.notify_one();
}

std::optional<Frame> Channel::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !asked_.empty() || closed_; });
  if (closed_) {
    return std::nullopt;
  }
  std::optional<Frame> frame(std::move(asked_.front()));
  asked_.pop_front();
  return frame;
}

bool Channel::send(std::string answer) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return false;
    }
  }
  inbox_->put({number_, std::move(answer), false});
  return true;
}

void Channel::close() {
  std::deque<Frame> dropped;
  std::shared_ptr<const Taker> taker;  // may be the last to know the connection
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) {
      return;
    }
    dropped.swap(asked_);
    taker.swap(taker_);
  }
  changed_.notify_all();
  inbox_->put({number_, {}, true});
}

void Channel::offer_to(Taker taker) {
  auto made = std::make_shared<const Taker>(std::move(taker));
  const std::lock_guard lock(mutex_);
  if (!closed_) {
    taker_.swap(made);
  }
}

void Channel::put_back(Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      return;
    }
    asked_.push_front(std::move(frame));
  }
  changed_.notify_one();
}

}  // namespace interpool
