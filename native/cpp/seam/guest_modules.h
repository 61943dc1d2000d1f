// Names that C++ uses in the Python of private interpreters. They are interpool's own modules there, and the
// functions in them that C++ calls, or looks for on a thread's stack. Nowhere else in C++ are these spelled
// out.
#pragma once

namespace interpool::guest {

// A function, a class, or a method of one (as its qualified name), of a module.
struct Name {
  const char* module;
  const char* name;
};

// Preparing an interpreter, once, and what it runs when the process ends.
inline constexpr Name kInstall{"interpool.native.inside.bootstrap", "install"};
inline constexpr Name kAtProcessEnd{"interpool.native.inside.bootstrap", "at_process_end"};

// What a lean import of torch left out, and registers kernels.
inline constexpr Name kImportRegistering{"interpool.native.inside.lean_imports", "import_registering"};

// Imports that importlib knows nothing of: a thread that is in one of these is importing.
inline constexpr Name kFamilyImport{"interpool.native.inside.lean_imports", "_Family.import_all"};
inline constexpr Name kArchiveImport{"interpool.native.archive.importer", "HermeticImporter._find_and_load"};

// Freeing what can be built again.
inline constexpr Name kPark{"interpool.native.inside.parking", "park"};

// Hermetic archives.
inline constexpr Name kOpenPackage{"interpool.native.inside.packages", "open_package"};
inline constexpr Name kWithdrawPackage{"interpool.native.inside.packages", "withdraw_package"};
inline constexpr Name kEndWithdrawal{"interpool.native.inside.packages", "end_withdrawal"};
inline constexpr Name kMakeObject{"interpool.native.inside.packages", "make_object"};
inline constexpr Name kLoadBytes{"interpool.native.inside.packages", "load_bytes"};

// Objects that move between interpreters; the host has this module, too.
inline constexpr Name kDump{"interpool.native.movable", "dump"};
inline constexpr Name kLoad{"interpool.native.movable", "load"};

// The module of interpool's own errors (include/interpool/errors.h), inside and in the host.
inline constexpr const char* kErrors = "interpool.native.errors";

// C++ makes the builtin module (slot/builtin_module.cc), and the module as which an interpreter's first
// Python code runs. It also makes the exception of an interrupted call, with its module.
inline constexpr const char* kBuiltinModule = "_interpool";
inline constexpr const char* kLoaderModule = "_interpool_loader";
inline constexpr const char* kCallInterrupted = "interpool.native.inside.CallInterrupted";

}  // namespace interpool::guest
