// Symbols that came with a later glibc than 2.28, or a later libstdc++ than GCC 8's. Compilers and headers
// refer to them by themselves. Each library that is linked with these has its own, hidden.
#include <exception>
#include <new>
#include <string>

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

// GCC 11: std::exception_ptr counts its references inline, by members whose work older libraries do in its
// copy constructor and its destructor.
void interpool_copy_exception_ptr(void* copy, const void* original) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void interpool_destroy_exception_ptr(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
INTERPOOL_HIDDEN void interpool_add_exception_ref(void** pointer) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void interpool_add_exception_ref(void** pointer) {
  void* copy = nullptr;  // never destroyed: it is the reference
  interpool_copy_exception_ptr(&copy, pointer);
}
INTERPOOL_HIDDEN void interpool_release_exception(void** pointer) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void interpool_release_exception(void** pointer) {
  interpool_destroy_exception_ptr(pointer);
  *pointer = nullptr;
}

// GCC 11: std::__throw_bad_array_new_length().
[[noreturn]] INTERPOOL_HIDDEN void interpool_throw_bad_array_new_length() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void interpool_throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}

// GCC 13: what a function that may not throw calls, with what it was about to throw.
void* __cxa_begin_catch(void* exception) noexcept;
[[noreturn]] INTERPOOL_HIDDEN void __cxa_call_terminate(void* exception) noexcept;
void __cxa_call_terminate(void* exception) noexcept {
  if (exception != nullptr) {
    __cxa_begin_catch(exception);  // so that a terminate handler can tell what it is
  }
  std::terminate();
}

}  // extern "C"

#if _GLIBCXX_RELEASE >= 13
// GCC 13: the part of std::string's replacements that is not inline.
template void std::string::_M_replace_cold(char*, size_type, const char*, size_type, size_type);
#endif
