// Code that lies in an interpreter's private copy of a library, as its SONAME says: what the interposer does
// for its caller. Compiled so that each call returns here.
#include <fcntl.h>

extern "C" {

int ip_fcntl(int fd, int command, ...);
int ip_close(int fd);
int ip___register_atfork(void (*before)(), void (*parent)(), void (*child)(), void* library);

__attribute__((visibility("default"))) int copy_lock(int fd, int command, struct flock* record) {
  return ip_fcntl(fd, command, record);
}

__attribute__((visibility("default"))) int copy_close(int fd) {
  return ip_close(fd);
}

__attribute__((visibility("default"))) int copy_at_fork(void (*before)(), void (*parent)(), void (*child)()) {
  return ip___register_atfork(before, parent, child, nullptr);
}

}  // extern "C"
