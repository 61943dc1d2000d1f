// Looks a name up in the whole program, as LLVM does for the code that it has compiled.
#include <dlfcn.h>
#include <stddef.h>

const void* lookup_find(const char* name) { return dlsym(dlopen(NULL, RTLD_NOW), name); }

int lookup_count(void) {
  static int count = 0;
  return ++count;
}
