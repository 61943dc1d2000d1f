// Words of torch's that code depends on: parts of its messages, keys, and the names of its types
// and files.
#pragma once

namespace interpool {

// What Library says of where a registration was made is this and FILE:LINE.
inline constexpr const char* kRegisteredAt = "registered at ";

// What torch::RegisterOperators, the API before TORCH_LIBRARY, registers. It calls the dispatcher itself, in
// every copy of a library, and says no more than this of the place.
inline constexpr const char* kRegisterOperators = "registered by RegisterOperators";

// Part of the class's name whose kernels call Python.
inline constexpr const char* kPythonKernelClass = "PythonKernelHolder";

// Custom classes' qualified names begin so.
inline constexpr const char* kCustomClassPrefix = "__torch__.torch.classes.";

// The key of libtorch_python's hooks in c10's registry of them.
inline constexpr const char* kPyInterpreterHooks = "PyInterpreterHooks";

// Part of the mangled names of torch::Library's members.
inline constexpr const char* kLibraryMembers = "5torch7Library";

// Libraries, by SONAME.
inline constexpr const char* kC10 = "libc10.so";
inline constexpr const char* kTorchCpu = "libtorch_cpu.so";
inline constexpr const char* kTorchPython = "libtorch_python.so";

// A name that every libtorch_python defines.
inline constexpr const char* kTorchPythonClass = "THPVariableClass";

// Of libtorch, as far as it is loaded: these use settings of the process.
inline constexpr const char* kCudaLinalg = "libtorch_cuda_linalg.so";
inline constexpr const char* kLibtorch[] = {kC10, kTorchCpu, "libtorch_cuda.so", kCudaLinalg};

// Of libtorch, what every process loads, in this order, from torch's folder of libraries.
inline constexpr const char* kSharedLibraries[] = {kC10, kTorchCpu, "libtorch.so"};

}  // namespace interpool
