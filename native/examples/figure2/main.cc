// Serves a packaged model from a C++ program that has no Python of its own, after
// Figure 2 of "Using Python for Model Inference in Deep Learning" (DeVito et al., 2021).
//
//   interpool prepare --slots 2
//   figure2 m.pt 4 0.5 1.5 2.5
#include <interpool/interpool.h>
#include <interpool/torch.h>

#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: figure2 PACKAGE THREADS NUMBER...\n";
    return 2;
  }
  std::vector<float> numbers;
  for (int i = 3; i < argc; ++i) {
    numbers.push_back(std::strtof(argv[i], nullptr));
  }
  try {
    interpool::InterpreterManager manager(2);
    const interpool::Package package = manager.load_package(argv[1]);
    const interpool::MovableObject model = package.load_pickle("model", "model.pkl");

    const at::Tensor input = at::tensor(numbers);
    std::vector<at::Tensor> outputs(static_cast<size_t>(std::atoi(argv[2])));
    std::vector<std::thread> threads;
    for (at::Tensor& output : outputs) {
      threads.emplace_back([&] {  // in whichever interpreter is free, with the caller's modes
        const c10::InferenceMode guard;
        output = interpool::to_tensor(model({interpool::from_tensor(input)}));
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const at::Tensor& output : outputs) {
      std::cout << output.sum().item<float>() << '\n';
    }

    // Or by hand: a lease, and objects inside it.
    interpool::InterpreterSession session = manager.acquire_one();
    const interpool::PyObj version = session.global("sys", "version_info").item(0);
    std::cout << "Python " << version.to_value().as<int64_t>() << '\n';
  } catch (const interpool::Error& error) {
    std::cerr << "figure2: " << error.what() << '\n';
    return 1;
  }
}
