// A library of no Python at all: one copy serves every interpreter.
int plain_add(int a, int b) {
  return a + b;
}

int plain_apply(int (*function)(int), int argument) {
  return function(argument);
}
