// What a host program registers for its end.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char* what) { (void)!write(STDOUT_FILENO, what, strlen(what)); }

static void at_exit(void) { say("exit function\n"); }

__attribute__((constructor)) static void begin(void) { atexit(at_exit); }

__attribute__((destructor)) static void end(void) { say("destructor\n"); }
