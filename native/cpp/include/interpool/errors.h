// Every error that interpool throws, in one tree. Visible types with inline
// definitions: private copies throw their own, and the core catches them by name.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "export.h"

namespace interpool {

class INTERPOOL_PUBLIC Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::vector<std::string> arguments = {})
      : std::runtime_error(message), arguments_(std::move(arguments)) {}

  // What the Python class is made with again, if that is more than the message: the rule that an archive
  // breaks, for instance. Empty otherwise.
  const std::vector<std::string>& arguments() const noexcept { return arguments_; }

  // The class that stands for it in interpool/native/errors.py.
  virtual const char* python_class() const noexcept { return "InterpoolError"; }

 private:
  std::vector<std::string> arguments_;
};

// The table of errors, bases first: name, base, and whether Python code inside an interpreter may raise it.
// It then arrives as itself, any other exception as RemoteError. For a new one, a line here and a class of
// the same name and base in interpool/native/errors.py are all.
#define INTERPOOL_ERRORS(ERROR)                       \
  ERROR(ProvisioningError, Error, true)               \
  ERROR(InterpreterStartError, Error, false)          \
  ERROR(SessionError, Error, true)                    \
  ERROR(WrongInterpreterError, SessionError, false)   \
  ERROR(SessionClosedError, SessionError, false)      \
  ERROR(PoolClosedError, SessionError, false)         \
  ERROR(LeaseTimeoutError, SessionError, false)       \
  ERROR(CallTimeoutError, SessionError, false)        \
  ERROR(InterpreterRetiredError, SessionError, false) \
  ERROR(ConversionError, Error, true)                 \
  ERROR(ArchiveError, Error, true)                    \
  ERROR(StructureError, ArchiveError, true)           \
  ERROR(ManifestError, ArchiveError, true)            \
  ERROR(DigestError, ArchiveError, true)              \
  ERROR(SignatureError, ArchiveError, true)           \
  ERROR(ExternError, ArchiveError, true)              \
  ERROR(PickleError, ArchiveError, true)              \
  ERROR(SelfTestError, ArchiveError, true)

#define INTERPOOL_DEFINE_ERROR(name, base, from_inside)                  \
  class INTERPOOL_PUBLIC name : public base {                            \
   public:                                                               \
    using base::base;                                                    \
    const char* python_class() const noexcept override { return #name; } \
  };
INTERPOOL_ERRORS(INTERPOOL_DEFINE_ERROR)
#undef INTERPOOL_DEFINE_ERROR

// An argument that makes no sense, such as a negative timeout: ValueError in Python.
class INTERPOOL_PUBLIC ArgumentError : public SessionError {
 public:
  using SessionError::SessionError;
};

// A Python exception raised inside an interpreter, as text.
class INTERPOOL_PUBLIC RemoteError : public Error {
 public:
  // A qualified class name such as ValueError, str() of the exception, and the
  // formatted traceback inside the interpreter.
  RemoteError(std::string type, std::string message, std::string traceback)
      : Error(type + ": " + message),
        type_name(std::move(type)),
        text(std::move(message)),
        traceback_text(std::move(traceback)) {}
  const char* python_class() const noexcept override { return "RemoteError"; }

  std::string type_name;
  std::string text;
  std::string traceback_text;
};

}  // namespace interpool
