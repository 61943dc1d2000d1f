#include "wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

namespace interpool {

SocketWire::~SocketWire() {
  ::close(fd_);
}

std::optional<Frame> SocketWire::next() {
  const auto bytes = reader_.next();
  if (!bytes.has_value()) {
    return std::nullopt;
  }
  return Frame{{*bytes, reader_.memory(), in_seconds(Clock::now().time_since_epoch()), shared_from_this()},
               reader_.request_ids()};
}

void SocketWire::close() {
  ::shutdown(fd_, SHUT_RDWR);
}

}  // namespace interpool
