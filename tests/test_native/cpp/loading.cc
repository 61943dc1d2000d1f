// Code that runs while its library is loaded, as static objects have: the program's own.
extern "C" void while_loading();

namespace {
__attribute__((constructor)) void begin() {
  while_loading();
}
}  // namespace
