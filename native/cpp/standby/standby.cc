// What a shim (handler/frontend/shim.py) becomes once its worker is ready: it waits for the
// end and does what the shim would do then. A Python that waits holds 3 MB, this program a
// tenth of that, and there is one for each worker.
//
// Its last argument is FD:INODE:CTIME_NS:PATH: the connection to the pool host, and which
// file, by that name, TorchServe's socket is. INODE is 0 where there is none. The arguments
// before it are the shim's own, for those who look at processes.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace {

// To the model log, and to TorchServe's own (handler/torchserve.py: ts_log_line).
constexpr char kGone[] = "interpool: the pool host is gone; TorchServe will restart this worker.\n";
constexpr char kLogGone[] =
    "[METRICS]interpool: the pool host is gone; TorchServe will restart this worker.\n";

// By now TorchServe may have given the name to the next worker.
void remove_socket(const char* path, unsigned long long inode, unsigned long long ctime_ns) {
  struct stat found{};
  if (inode == 0 || stat(path, &found) != 0 || found.st_ino != inode) {
    return;
  }
  const auto changed = static_cast<unsigned long long>(found.st_ctim.tv_sec) * 1'000'000'000ULL +
                       static_cast<unsigned long long>(found.st_ctim.tv_nsec);
  if (changed == ctime_ns) {
    unlink(path);
  }
}

}  // namespace

int main(int argc, char** argv) {
  char* rest = argv[argc - 1];
  const auto number = [&rest] {
    char* const begin = rest;
    const unsigned long long value = std::strtoull(begin, &rest, 10);
    if (rest == begin || *rest != ':') {
      std::_Exit(2);
    }
    ++rest;
    return value;
  };
  const int host = static_cast<int>(number());
  const unsigned long long inode = number();
  const unsigned long long ctime_ns = number();

  std::array<char, 64> said{};
  ssize_t size = 0;
  do {
    size = recv(host, said.data(), said.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size > 0) {
    return 0;  // "bye": an end that is not a failure
  }
  remove_socket(rest, inode, ctime_ns);
  static_cast<void>(write(STDERR_FILENO, kGone, std::strlen(kGone)) < 0);
  static_cast<void>(write(STDOUT_FILENO, kLogGone, std::strlen(kLogGone)) < 0);
  return 1;
}
