// A C++ program's own torch after a session, on the same thread: as it was before.
#include <interpool/interpool.h>
#include <interpool/torch.h>

#include <iostream>

int main() {
  try {
    interpool::InterpreterManager manager(1);
    {
      interpool::InterpreterSession session = manager.acquire_one();
      const interpool::PyObj torch = session.global("importlib", "import_module")({"torch"});
      torch.attr("set_default_dtype")({torch.attr("float64")});
      std::cout << session.global("torch", "zeros")({2}).attr("dtype").attr("itemsize").to_value().as<int64_t>()
                << ' ' << at::zeros({2}).element_size() << ' ';
    }
    std::cout << at::zeros({2}).element_size() << '\n';
  } catch (const interpool::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
