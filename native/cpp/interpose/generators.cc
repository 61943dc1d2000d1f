#include "generators.h"

#include <sys/random.h>

#include <cerrno>
#include <mutex>

#include "../upstream/torch_symbols.h"
#include "entered.h"
#include "per_interpreter.h"

namespace interpool {
namespace {

// Torch's own opens a file for it: a model that has used up the process's descriptors would have that fail.
uint64_t random_seed() {
  uint64_t seed = 0;
  ssize_t got = -1;
  do {
    got = ::getrandom(&seed, sizeof seed, 0);
  } while (got < 0 && errno == EINTR);
  return got == sizeof seed ? seed : c10::detail::getNonDeterministicRandom();
}

// libtorch hands out references to it.
const at::Generator& generator_of(InterpreterId id) {
  static PerInterpreter<const at::Generator> generators;
  return generators.of(id, [] { return new at::Generator(at::detail::createCPUGenerator(random_seed())); });
}

at::CPUGeneratorImpl& implementation(InterpreterId id) {
  return *generator_of(id).get<at::CPUGeneratorImpl>();
}

}  // namespace

void make_generator(InterpreterId id) {
  generator_of(id);
}

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
  const uint64_t seed = random_seed();
  const std::lock_guard lock(generator.mutex_);
  generator.set_current_seed(seed);
  return seed;
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
