// A torch of another version, as far as the table of private symbols goes: it lacks most of them.

namespace at {

// As in ours.
__attribute__((visibility("default"))) void set_num_interop_threads(int) {}

// With another signature.
__attribute__((visibility("default"))) void set_num_threads(long, bool) {}

}  // namespace at

namespace c10 {

// As in ours, and never called by the library itself.
struct TypeMeta;
__attribute__((visibility("default"))) const TypeMeta* get_default_dtype() {
  return nullptr;
}

}  // namespace c10
