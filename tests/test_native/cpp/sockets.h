// Connected pairs of stream sockets, for tests.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "threads.h"

namespace interpool::testing {

// Two ends; `theirs` may be given away.
class SocketPair {
 public:
  SocketPair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    ours_ = ends[0];
    theirs_ = ends[1];
  }
  ~SocketPair() {
    close(ours_);
    close(theirs_);
  }
  SocketPair(const SocketPair&) = delete;
  SocketPair& operator=(const SocketPair&) = delete;

  int ours() const { return ours_; }
  int theirs() const { return theirs_; }
  int give_away() { return std::exchange(theirs_, -1); }
  void hang_up() { close(ours_); }

  // Blocks until all is written.
  void write(const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t count = ::send(ours_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (count <= 0) return;  // the other end has had enough
      done += static_cast<size_t>(count);
    }
  }
  // The same, cut up at random.
  void write_in_pieces(const std::string& bytes, Chance& chance) const {
    for (size_t done = 0; done < bytes.size();) {
      const int64_t most = chance.number(0, 3) == 0 ? 5 : 100'000;
      const auto piece = static_cast<size_t>(chance.number(1, most));
      write(bytes.substr(done, piece));
      done += piece;
      if (chance.number(0, 7) == 0) std::this_thread::yield();
    }
  }
  // That many bytes, or fewer at the end of the stream.
  std::string read(size_t count) const {
    std::string bytes(count, '\0');
    size_t done = 0;
    while (done < count) {
      const ssize_t got = ::recv(ours_, bytes.data() + done, count - done, 0);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
  }

 private:
  static void close(int& fd) {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }

  int ours_ = -1;
  int theirs_ = -1;
};

}  // namespace interpool::testing
