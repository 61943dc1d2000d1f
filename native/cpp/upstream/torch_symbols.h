// Every symbol of torch's that is found by its mangled name: this table, and nothing else.
//
// To follow torch's next release: build (layout_checks.cc names the layouts that changed), and
// run `interpool doctor`. What that release lacks or has changed is listed row by row, as in the
// InterpreterStartError of the first interpreter; correct the rows here. The other files of this folder hold
// what else is torch's or CPython's own affair: its layouts (torch_layouts.h, cpython.h) and its
// words (torch_words.h).
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/jit/frontend/schema_type_parser.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include <string>
#include <type_traits>
#include <typeinfo>

#include "symbol_table.h"
#include "torch_words.h"

namespace interpool {

// A member function as the free function that it is to the machine.
template <typename Member>
struct FreeFunctionOf;
template <typename Result, typename Class, typename... Args>
struct FreeFunctionOf<Result (Class::*)(Args...)> {
  using type = Result (*)(Class*, Args...);
};
template <typename Result, typename Class, typename... Args>
struct FreeFunctionOf<Result (Class::*)(Args...) const> {
  using type = Result (*)(const Class*, Args...);
};
template <auto member>
using Method = typename FreeFunctionOf<decltype(member)>::type;

// Constructors and members without a public name, written out.
using LibraryConstructor = void (*)(void* self, torch::Library::Kind, std::string,
                                    std::optional<c10::DispatchKey>, const char* file, uint32_t line);
using ClassBaseConstructor = void (*)(void* self, const std::string& ns, const std::string& name,
                                      std::string doc, const std::type_info& pointer,
                                      const std::type_info& capsule);
using DefineOperator = torch::Library& (*)(torch::Library*, c10::FunctionSchema&&, c10::OperatorName*,
                                           const std::vector<at::Tag>&, torch::_RegisterOrVerify);
using ImplementOperator = torch::Library& (*)(torch::Library*, const char*, torch::CppFunction&&,
                                              torch::_RegisterOrVerify);
using AddFallback = torch::Library& (*)(torch::Library*, torch::CppFunction&&);
// One kernel for each instruction set; the header shows them only to libtorch's own code.
using KernelOfStub = void* (*)(at::native::DispatchStubImpl*, c10::DeviceType, void* plain, void* avx512,
                               void* avx2);

// Defined by the interposer under these very names, which have to be literals (asm labels). They are the two
// forms of a constructor (C1: of the whole object, C2: of a base), and functions whose header needs Python,
// or shows them otherwise than they are.
#define INTERPOOL_LIBRARY(form)                                     \
  "_ZN5torch7Library" form                                          \
  "ENS0_4KindENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE" \
  "St8optionalIN3c1011DispatchKeyEEPKcj"
#define INTERPOOL_CLASS_BASE(form)                                \
  "_ZN5torch6detail10class_base" form                             \
  "ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES9_S7_" \
  "RKSt9type_infoSC_"
#define INTERPOOL_TORCH_API_FUNCTION "_ZN5torch6detail19getTorchApiFunctionERKN3c1014OperatorHandleE"
#define INTERPOOL_KERNEL_OF_STUB "_ZN2at6native16DispatchStubImpl12get_call_ptrEN3c1010DeviceTypeEPvS4_S4_"

// SYMBOL(name here, library, kind, mangled name, what it is for, type)
// clang-format off: a row is a row, and a mangled name is never broken
#define INTERPOOL_TORCH_SYMBOLS(SYMBOL) \
  /* torch::Library, which private copies see as torch_library.cc defines it. */ \
  SYMBOL(library_constructor, kTorchCpu, kRequired, \
         INTERPOOL_LIBRARY("C1"), \
         "TORCH_LIBRARY blocks of every copy", LibraryConstructor) \
  SYMBOL(library_def, kTorchCpu, kRequired, \
         "_ZNR5torch7Library4_defEON3c1014FunctionSchemaEPNS1_12OperatorNameERKSt6vectorINS_10headeronly3TagESaIS8_EENS_17_RegisterOrVerifyE", \
         "operators defined once for all copies", DefineOperator) \
  SYMBOL(library_impl, kTorchCpu, kRequired, \
         "_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE", \
         "kernels registered once for all copies", ImplementOperator) \
  SYMBOL(library_fallback, kTorchCpu, kRequired, \
         "_ZNR5torch7Library9_fallbackEONS_11CppFunctionE", \
         "fallbacks registered once for all copies", AddFallback) \
  /* What libtorch_cpu's own torch::Library and torch::RegisterOperators call (host_library.cc). */ \
  SYMBOL(register_def, kTorchCpu, kPatched, \
         "_ZN3c1010Dispatcher11registerDefENS_14FunctionSchemaENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorIN5torch10headeronly3TagESaISB_EE", \
         "operators of the host's extensions", Method<&c10::Dispatcher::registerDef>) \
  SYMBOL(register_impl, kTorchCpu, kPatched, \
         "_ZN3c1010Dispatcher12registerImplENS_12OperatorNameESt8optionalINS_11DispatchKeyEENS_14KernelFunctionES2_INS_4impl12CppSignatureEESt10unique_ptrINS_14FunctionSchemaESt14default_deleteISA_EENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", \
         "kernels of the host's extensions", Method<&c10::Dispatcher::registerImpl>) \
  SYMBOL(register_class, kTorchCpu, kPatched, \
         "_ZN5torch19registerCustomClassESt10shared_ptrIN3c109ClassTypeEE", \
         "custom classes of the host's extensions", decltype(&torch::registerCustomClass)) \
  /* An operator's kernels, looked at under the registration lock (queries.cc). */ \
  SYMBOL(has_kernel, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry23hasKernelForDispatchKeyENS_11DispatchKeyE", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::hasKernelForDispatchKey>) \
  SYMBOL(has_kernel_for_any, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry26hasKernelForAnyDispatchKeyENS_14DispatchKeySetE", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::hasKernelForAnyDispatchKey>) \
  SYMBOL(has_computed_kernel, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry31hasComputedKernelForDispatchKeyENS_11DispatchKeyE", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::hasComputedKernelForDispatchKey>) \
  SYMBOL(computed_kernel, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry31getComputedKernelForDispatchKeyENS_11DispatchKeyE", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::getComputedKernelForDispatchKey>) \
  SYMBOL(kernel_for_key, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::kernelForDispatchKey>) \
  SYMBOL(dump_state, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry9dumpStateB5cxx11Ev", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::dumpState>) \
  SYMBOL(dump_computed_table, kTorchCpu, kRequired, \
         "_ZNK3c104impl13OperatorEntry17dumpComputedTableB5cxx11Ev", \
         "kernels looked at while others register", Method<&c10::impl::OperatorEntry::dumpComputedTable>) \
  /* Registries that refuse a name they have (registries.cc). */ \
  SYMBOL(class_base_constructor, kTorchCpu, kRequired, \
         INTERPOOL_CLASS_BASE("C1"), \
         "custom classes of every copy", ClassBaseConstructor) \
  SYMBOL(add_method, kTorchCpu, kRequired, \
         "_ZN3c109ClassType9addMethodEPN5torch3jit8FunctionE", \
         "methods of custom classes", Method<&c10::ClassType::addMethod>) \
  SYMBOL(register_class_method, kTorchCpu, kRequired, \
         "_ZN5torch25registerCustomClassMethodESt10unique_ptrINS_3jit8FunctionESt14default_deleteIS2_EE", \
         "methods of custom classes", decltype(&torch::registerCustomClassMethod)) \
  SYMBOL(register_opaque_type, kTorchCpu, kRequired, \
         "_ZN5torch3jit18registerOpaqueTypeERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", \
         "opaque types of every copy", decltype(&torch::jit::registerOpaqueType)) \
  SYMBOL(register_handler, kTorchCpu, kRequired, \
         "_ZN4c10d13control_plane15registerHandlerERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt8functionIFvRKNS0_7RequestERNS0_8ResponseEEE", \
         "control-plane handlers of every copy", decltype(&c10d::control_plane::registerHandler)) \
  /* Function pointers of the process (process_hooks.cc). */ \
  SYMBOL(set_engine_stub, kTorchCpu, kRequired, \
         "_ZN5torch8autograd23set_default_engine_stubEPFRNS0_6EngineEvE", \
         "each interpreter's autograd engine", decltype(&torch::autograd::set_default_engine_stub)) \
  /* What each engine has threads for (autograd_engines.cc). */ \
  SYMBOL(start_first_engine, kTorchCpu, kPatched, \
         "_ZN5torch8autograd6Engine30initialize_device_threads_poolEv", \
         "backward passes in every interpreter", void (*)(torch::autograd::Engine*)) \
  SYMBOL(start_engine_threads, kTorchCpu, kRequired, \
         "_ZN5torch8autograd6Engine20start_device_threadsEv", \
         "backward passes in every interpreter", void (*)(torch::autograd::Engine*)) \
  SYMBOL(set_print_handler, kTorchCpu, kRequired, \
         "_ZN5torch3jit15setPrintHandlerEPFvRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE", \
         "print() in TorchScript", decltype(&torch::jit::setPrintHandler)) \
  SYMBOL(register_operator, kTorchCpu, kRequired, \
         "_ZN5torch3jit16registerOperatorEONS0_8OperatorE", \
         "operators of TorchScript", decltype(&torch::jit::registerOperator)) \
  SYMBOL(set_python_callstack, kTorchCpu, kRequired, \
         "_ZN5torch3jit6tracer18setPythonCallstackEPFSt6vectorINS0_10StackEntryESaIS3_EEvE", \
         "torch.jit.trace", decltype(&torch::jit::tracer::setPythonCallstack)) \
  SYMBOL(set_tracer_warn, kTorchCpu, kRequired, \
         "_ZN5torch3jit6tracer7setWarnEPFvRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE", \
         "torch.jit.trace", decltype(&torch::jit::tracer::setWarn)) \
  SYMBOL(hooks_registry, kC10, kRequired, \
         "_ZN3c104impl26PyInterpreterHooksRegistryB5cxx11Ev", \
         "the router in front of all interpreters", decltype(&c10::impl::PyInterpreterHooksRegistry)) \
  /* What every operator asks for its CPU kernel (dispatch_stubs.cc). */ \
  SYMBOL(kernel_of_stub, kTorchCpu, kOptional, \
         INTERPOOL_KERNEL_OF_STUB, \
         "kernels that are looked for once", KernelOfStub) \
  /* Settings of each model (settings.cc, generators.cc). */ \
  SYMBOL(global_context, kTorchCpu, kPatched, \
         "_ZN2at13globalContextEv", \
         "each model's settings", decltype(&at::globalContext)) \
  SYMBOL(default_cpu_generator, kTorchCpu, kPatched, \
         "_ZN2at6detail22getDefaultCPUGeneratorEv", \
         "each interpreter's random numbers", decltype(&at::detail::getDefaultCPUGenerator)) \
  SYMBOL(get_default_dtype, kC10, kPatched, \
         "_ZN3c1017get_default_dtypeEv", \
         "each model's default dtype", decltype(&c10::get_default_dtype)) \
  SYMBOL(get_default_complex_dtype, kC10, kPatched, \
         "_ZN3c1025get_default_complex_dtypeEv", \
         "each model's default dtype", decltype(&c10::get_default_complex_dtype)) \
  SYMBOL(get_default_scalar_type, kC10, kPatched, \
         "_ZN3c1031get_default_dtype_as_scalartypeEv", \
         "each model's default dtype", decltype(&c10::get_default_dtype_as_scalartype)) \
  SYMBOL(set_default_dtype, kC10, kRequired, \
         "_ZN3c1017set_default_dtypeEN6caffe28TypeMetaE", \
         "each model's default dtype", decltype(&c10::set_default_dtype)) \
  SYMBOL(set_flush_denormal, kTorchCpu, kRequired, \
         "_ZN2at7Context16setFlushDenormalEb", \
         "each model's treatment of denormals", decltype(&at::Context::setFlushDenormal)) \
  SYMBOL(set_num_threads, kTorchCpu, kRequired, \
         "_ZN2at15set_num_threadsEi", \
         "each model's number of threads", decltype(&at::set_num_threads)) \
  SYMBOL(set_num_interop_threads, kTorchCpu, kRequired, \
         "_ZN2at23set_num_interop_threadsEi", \
         "the process's inter-op threads", decltype(&at::set_num_interop_threads)) \
  SYMBOL(set_openmp_threads, kTorchCpu, kOptional, \
         "omp_set_num_threads", \
         "each model's number of threads", void (*)(int)) \
  SYMBOL(set_mkl_threads, kTorchCpu, kOptional, \
         "MKL_Set_Num_Threads_Local", \
         "each model's number of threads", int (*)(int))

// Of each interpreter's own libtorch_python (slot/torch_python.cc).
#define INTERPOOL_TORCH_PYTHON_SYMBOLS(SYMBOL) \
  SYMBOL(own_interpreter, kTorchPython, kRequired, \
         "_Z16getPyInterpreterv", \
         "the router in front of this interpreter", c10::impl::PyInterpreter* (*)()) \
  SYMBOL(wrap, kTorchPython, kRequired, \
         "_Z16THPVariable_WrapRKN2at10TensorBaseE", \
         "tensors on their way in", PyObject* (*)(const at::TensorBase&)) \
  SYMBOL(tensor_class, kTorchPython, kRequired, \
         "THPVariableClass", \
         "tensors on their way out", PyObject**) \
  SYMBOL(parameter_class, kTorchPython, kRequired, \
         "ParameterClass", \
         "parameters on their way out", PyObject**)
// clang-format on

#define INTERPOOL_SYMBOL_MEMBER(name, library, kind, mangled, purpose, ...) \
  std::type_identity_t<__VA_ARGS__> name = nullptr;
#define INTERPOOL_SYMBOL_NAME(name, library, kind, mangled, purpose, ...) \
  inline constexpr const char* name = mangled;

// Where libtorch has them. Valid once resolve_torch_symbols() has returned, which is before any
// private copy is loaded.
struct TorchSymbols {
  INTERPOOL_TORCH_SYMBOLS(INTERPOOL_SYMBOL_MEMBER)
};
INTERPOOL_PUBLIC extern TorchSymbols torch_symbols;

struct TorchPythonSymbols {
  INTERPOOL_TORCH_PYTHON_SYMBOLS(INTERPOOL_SYMBOL_MEMBER)
};

// Their mangled names.
namespace mangled {
INTERPOOL_TORCH_SYMBOLS(INTERPOOL_SYMBOL_NAME)
}  // namespace mangled

#undef INTERPOOL_SYMBOL_MEMBER
#undef INTERPOOL_SYMBOL_NAME

// The rows of INTERPOOL_TORCH_SYMBOLS, in order.
INTERPOOL_PUBLIC std::span<const SymbolRow> torch_symbol_rows();

// Fills `torch_symbols` from the libtorch of this process. Once; throws InterpreterStartError that
// lists every row that this torch lacks or has changed.
void resolve_torch_symbols();

// `library`: the dlopen handle of one interpreter's libtorch_python. Throws likewise.
INTERPOOL_PUBLIC TorchPythonSymbols torch_python_symbols(void* library);

// The problems of both tables together.
INTERPOOL_PUBLIC std::vector<std::string> torch_symbol_problems(const LibraryOf& library_of);

// The same, of the torch that this process has imported, for `interpool doctor`. Calls `report` for each
// problem, and returns how many rows there are. native/upstream/torch_symbols.py calls it.
extern "C" INTERPOOL_PUBLIC size_t interpool_torch_symbol_problems(void (*report)(const char* problem));

}  // namespace interpool
