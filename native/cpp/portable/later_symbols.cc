// Symbols that came with a later glibc than 2.28, or a later libstdc++ than GCC 8's. Compilers and headers
// refer to them by themselves. Each library that is linked with these has its own, hidden.
#include <new>

struct stat;

#define INTERPOOL_HIDDEN [[gnu::visibility("hidden")]]

extern "C" {

int __xstat(int version, const char* path, struct stat* found);
int __fxstat(int version, int descriptor, struct stat* found);
__asm__(".symver __xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver __fxstat,__fxstat@GLIBC_2.2.5");
constexpr int kStatVersion = 1;  // of struct stat, on x86_64

// glibc 2.33.
INTERPOOL_HIDDEN int stat(const char* path, struct stat* found) {
  return __xstat(kStatVersion, path, found);
}
INTERPOOL_HIDDEN int fstat(int descriptor, struct stat* found) {
  return __fxstat(kStatVersion, descriptor, found);
}

// glibc 2.32: whether libstdc++ may count references without atomic instructions. Never.
INTERPOOL_HIDDEN extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// GCC 11: std::__throw_bad_array_new_length().
[[noreturn]] INTERPOOL_HIDDEN void interpool_throw_bad_array_new_length() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void interpool_throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}

}  // extern "C"
