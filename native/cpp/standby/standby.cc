// What a shim (handler/frontend/shim.py) becomes once its worker is ready: it waits for the
// end and does what the shim would do then. A Python that waits holds 3 MB, this program a
// tenth of that, and there is one for each worker.
//
// Its last argument is FD:INODE:CTIME_NS:PATH: the connection to the pool host, and which file, by that name,
// TorchServe's socket is. INODE is 0 if there is none. The arguments before it are the shim's own, for those
// who look at processes. How the next host is started when this one dies stands in the environment.
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

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

// The host's words, as handler/frontend/shim.py has them: the instance's lock, the log, and the command.
constexpr char kSuccessor[] = "INTERPOOL_SUCCESSOR";
constexpr char kSeparator = '\x1f';
constexpr int kLock = 3;  // the descriptor that the host has the lock as

// How long one that was not the first tries again: TorchServe may have killed the first before it had started
// one.
constexpr int kPatienceMs = 2000;

// How the next host is started: the lock's path, the log's, the command. Empty if nothing is said of it.
std::vector<char*> next_host() {
  std::vector<char*> words;
  for (char* at = std::getenv(kSuccessor); at != nullptr;) {
    words.push_back(at);
    at = std::strchr(at, kSeparator);
    if (at != nullptr) {
      *at++ = '\0';
    }
  }
  if (words.size() < 4) {
    return {};
  }
  words.push_back(nullptr);
  return words;
}

// Starts the next host, which has the lock from here on, until it listens. False if another worker's program
// or shim has the lock.
bool start_successor(const std::vector<char*>& how) {
  const int opened = open(how[0], O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    return true;  // the host has left
  }
  // By another number than the host's: before glibc 2.29 a descriptor that posix_spawn is to give its own
  // number stays one that an exec closes.
  const int lock = fcntl(opened, F_DUPFD_CLOEXEC, kLock + 1);
  close(opened);
  if (lock < 0) {
    return false;
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return false;
  }
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, kSuccessor, std::strlen(kSuccessor)) != 0) {
      environment.push_back(*variable);
    }
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, lock, kLock);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, how[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t child = 0;
  static_cast<void>(posix_spawn(&child, how[2], &files, &attributes, how.data() + 2, environment.data()));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  char* rest = argv[argc - 1];  // NOLINT(clang-analyzer-security.ArrayBound): there are that many
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
  static_cast<void>(fcntl(host, F_SETFD, FD_CLOEXEC));  // this program has got it over an exec
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
  // First, as TorchServe kills this program when it sees the worker's connection closed.
  const std::vector<char*> how = next_host();
  bool is_started = how.empty() || start_successor(how);
  remove_socket(rest, inode, ctime_ns);
  static_cast<void>(write(STDERR_FILENO, kGone, std::strlen(kGone)) < 0);
  static_cast<void>(write(STDOUT_FILENO, kLogGone, std::strlen(kLogGone)) < 0);
  for (int waited = 0; !is_started && waited < kPatienceMs; ++waited) {
    usleep(1000);
    is_started = start_successor(how);
  }
  return 1;
}
