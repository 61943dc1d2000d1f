// Each interpreter's default random generator on the CPU.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "interpreters.h"

namespace interpool {

// Where a generator stood. No tensor: it is kept from one model's turn to its next.
struct GeneratorState {
  at::mt19937 engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
};

// Any thread, any GIL; they take the generator's own lock. After the first of these calls for an interpreter
// none of them needs memory, or a descriptor.
void make_generator(InterpreterId id);
GeneratorState generator_state(InterpreterId id);
void set_generator_state(InterpreterId id, const GeneratorState& state);

// Seeds it as a new process would, from the system's randomness; returns the seed.
uint64_t reseed_generator(InterpreterId id);
uint64_t generator_seed(InterpreterId id);

}  // namespace interpool
