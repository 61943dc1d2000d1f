#include "start_python.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "../seam/guest_modules.h"
#include "builtin_module.h"
#include "python.h"

namespace interpool {
namespace {

void ok(const PyStatus& status, PyConfig* config) {
  if (PyStatus_Exception(status) != 0) {
    const std::string what = status.err_msg != nullptr ? status.err_msg : "unknown error";
    PyConfig_Clear(config);
    throw InterpreterStartError("Python did not start in a slot: " + what);
  }
}

}  // namespace

void initialise_python(const StartOptions& options) {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;  // never touches the process's locale
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  const PyStatus early = Py_PreInitialize(&before);
  ok(early, &config);
  config.install_signal_handlers = 0;  // the process's signals are the host's
  // Python's own variables mean in here what they mean to the host; docs/process.md has those that do not.
  config.isolated = 0;
  config.use_environment = 1;
  config.use_hash_seed = -1;
  // site runs .pth files, which may import extension modules: not before the
  // import hook is there. bootstrap.install() runs it.
  config.site_import = 0;
  config.pathconfig_warnings = 0;
  ok(PyConfig_SetBytesString(&config, &config.executable, options.executable.c_str()), &config);
  ok(PyConfig_SetBytesString(&config, &config.program_name, options.executable.c_str()), &config);
  if (!options.home.empty()) {  // instead of PYTHONHOME
    ok(PyConfig_SetBytesString(&config, &config.home, options.home.c_str()), &config);
  }
  config.module_search_paths_set = 1;
  for (const std::string& entry : options.search_path) {
    wchar_t* wide = Py_DecodeLocale(entry.c_str(), nullptr);
    if (wide == nullptr) {
      PyConfig_Clear(&config);
      throw InterpreterStartError("sys.path entry " + entry + " cannot be decoded");
    }
    const PyStatus status = PyWideStringList_Append(&config.module_search_paths, wide);
    PyMem_RawFree(wide);
    ok(status, &config);
  }
  add_builtin_module(options);
  ok(Py_InitializeFromConfig(&config), &config);
  PyConfig_Clear(&config);
}

void run_loader(const StartOptions& options) {
  std::ifstream file(options.loader);
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  if (source.empty()) {
    throw InterpreterStartError(options.loader + " cannot be read; reinstall interpool.");
  }
  const Ref code = checked(Py_CompileString(source.c_str(), options.loader.c_str(), Py_file_input));
  checked(PyImport_ExecCodeModuleEx(guest::kLoaderModule, code.get(), options.loader.c_str()));
}

void set_usual_flags() {
  const Ref sys = checked(PyImport_ImportModule("sys"));
  const Ref flags = checked(PyObject_GetAttrString(sys.get(), "flags"));
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(flags.get()));
  const Ref names = checked(PyObject_GetAttrString(type, "__match_args__"));
  const Ref fields = checked(PyObject_GetAttrString(type, "n_fields"));
  const Ref usual = checked(PyStructSequence_New(Py_TYPE(flags.get())));
  const Py_ssize_t count = PyLong_AsSsize_t(fields.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = PyStructSequence_GetItem(flags.get(), i);
    const std::string name = i < PyTuple_Size(names.get()) ? to_utf8(PyTuple_GetItem(names.get(), i)) : "";
    if (name == "no_site") {
      value = Py_False;
    } else if (name == "no_user_site") {
      value = std::getenv("PYTHONNOUSERSITE") != nullptr ? Py_True : Py_False;
    } else if (name == "safe_path") {
      value = std::getenv("PYTHONSAFEPATH") != nullptr ? Py_True : Py_False;
    }
    if (value == Py_True || value == Py_False) {
      const bool as_bool = PyBool_Check(PyStructSequence_GetItem(flags.get(), i)) != 0;
      PyStructSequence_SetItem(
          usual.get(), i,
          as_bool ? Py_NewRef(value) : checked(PyLong_FromLong(value == Py_True ? 1 : 0)).release());
    } else {
      PyStructSequence_SetItem(usual.get(), i, Py_XNewRef(value));
    }
  }
  check(PyObject_SetAttrString(sys.get(), "flags", usual.get()));
}

}  // namespace interpool
