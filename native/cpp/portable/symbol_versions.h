// Included before all else when wheels are built. It names the versions of symbols that glibc 2.28 and GCC
// 8's libstdc++ have, if this system has later ones of the same meaning. A reference by an old version finds
// its symbol in libc.so.6 today as it did in libpthread and libdl then.
#pragma once

#include <bits/c++config.h>

#define INTERPOOL_SYMBOL_VERSION(name, version) __asm__(".symver " #name "," #name "@" version)

INTERPOOL_SYMBOL_VERSION(dladdr, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(dladdr1, "GLIBC_2.3.3");
INTERPOOL_SYMBOL_VERSION(dlclose, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(dlerror, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(dlinfo, "GLIBC_2.3.3");
INTERPOOL_SYMBOL_VERSION(dlopen, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(dlsym, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_attr_setstacksize, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_create, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_getaffinity_np, "GLIBC_2.3.4");
INTERPOOL_SYMBOL_VERSION(pthread_getattr_np, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_join, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_once, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_setaffinity_np, "GLIBC_2.3.4");
INTERPOOL_SYMBOL_VERSION(pthread_setname_np, "GLIBC_2.12");
INTERPOOL_SYMBOL_VERSION(pthread_setspecific, "GLIBC_2.2.5");
INTERPOOL_SYMBOL_VERSION(pthread_sigmask, "GLIBC_2.2.5");
// glibc 2.38: what C23 calls strtol, which takes a few numbers more.
__asm__(".symver __isoc23_strtol,strtol@GLIBC_2.2.5");
// std::condition_variable::wait
INTERPOOL_SYMBOL_VERSION(_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "GLIBCXX_3.4.11");

// pthread_cond_clockwait is of glibc 2.30; without it, libstdc++ waits by the system's clock, and looks again
// by its own.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
