#include "generators.h"

#include <mutex>

#include "../upstream/torch_symbols.h"
#include "entered.h"
#include "per_interpreter.h"

namespace interpool {
namespace {

// libtorch hands out references to it.
const at::Generator& generator_of(InterpreterId id) {
  static PerInterpreter<const at::Generator> generators;
  return generators.of(id, [] {
    return new at::Generator(at::detail::createCPUGenerator(c10::detail::getNonDeterministicRandom()));
  });
}

at::CPUGeneratorImpl& implementation(InterpreterId id) {
  return *generator_of(id).get<at::CPUGeneratorImpl>();
}

}  // namespace

GeneratorState generator_state(InterpreterId id) {
  at::CPUGeneratorImpl& generator = implementation(id);
  const std::lock_guard lock(generator.mutex_);
  return {generator.engine(), generator.next_float_normal_sample(), generator.next_double_normal_sample()};
}

void set_generator_state(InterpreterId id, const GeneratorState& state) {
  at::CPUGeneratorImpl& generator = implementation(id);
  const std::lock_guard lock(generator.mutex_);
  generator.set_engine(state.engine);
  generator.set_next_float_normal_sample(state.next_float);
  generator.set_next_double_normal_sample(state.next_double);
}

uint64_t reseed_generator(InterpreterId id) {
  at::CPUGeneratorImpl& generator = implementation(id);
  const std::lock_guard lock(generator.mutex_);
  return generator.seed();
}

uint64_t generator_seed(InterpreterId id) {
  at::CPUGeneratorImpl& generator = implementation(id);
  const std::lock_guard lock(generator.mutex_);
  return generator.current_seed();
}

}  // namespace interpool

namespace at::detail {

INTERPOOL_API const Generator& getDefaultCPUGenerator() {
  const interpool::InterpreterId here = interpool::interpreter_here();
  if (here > interpool::kHost) {
    return interpool::generator_of(here);
  }
  return interpool::torch_symbols.default_cpu_generator();
}

}  // namespace at::detail
