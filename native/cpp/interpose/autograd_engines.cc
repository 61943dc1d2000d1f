// What an autograd engine starts before its first backward pass: a thread for each GPU, and the list of work
// for passes that are nested deeply. torch does so once in a process, for the engine that comes first. But
// each interpreter has an engine of its own.
#include "autograd_engines.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <set>

#include "../upstream/torch_symbols.h"
#include "got_patching.h"

namespace interpool {
namespace {

using torch::autograd::Engine;

struct Members : Engine {
  static bool has_started(const Engine& engine) { return (engine.*&Members::thread_pool_shared_) != nullptr; }
};

// On a thread that is about to run a backward pass, without a GIL: the new threads take their interpreter's.
void start_engine(Engine* engine) {
  static std::mutex mutex;
  static std::set<const Engine*> started;  // none of them ends before its process
  torch_symbols.start_first_engine(engine);
  const std::lock_guard lock(mutex);
  if (started.contains(engine)) {
    return;
  }
  if (!Members::has_started(*engine)) {
    torch_symbols.start_engine_threads(engine);
  }
  started.insert(engine);
}

}  // namespace

void patch_engine_start(void* libtorch_cpu) {
  patch_got(libtorch_cpu, {{mangled::start_first_engine, reinterpret_cast<void*>(&start_engine)}});
}

}  // namespace interpool
