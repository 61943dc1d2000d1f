// Every error that interpool throws, in one tree. Visible types with inline
// definitions: private copies throw their own, and the core catches them by name.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "export.h"

namespace interpool {

class INTERPOOL_PUBLIC Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

#define INTERPOOL_DEFINE_ERROR(name, base)    \
  class INTERPOOL_PUBLIC name : public base { \
   public:                                    \
    using base::base;                         \
  }

INTERPOOL_DEFINE_ERROR(ProvisioningError, Error);
INTERPOOL_DEFINE_ERROR(InterpreterStartError, Error);
INTERPOOL_DEFINE_ERROR(SessionError, Error);
INTERPOOL_DEFINE_ERROR(WrongInterpreterError, SessionError);
INTERPOOL_DEFINE_ERROR(SessionClosedError, SessionError);
INTERPOOL_DEFINE_ERROR(PoolClosedError, SessionError);
INTERPOOL_DEFINE_ERROR(LeaseTimeoutError, SessionError);
INTERPOOL_DEFINE_ERROR(CallTimeoutError, SessionError);
INTERPOOL_DEFINE_ERROR(InterpreterRetiredError, SessionError);
INTERPOOL_DEFINE_ERROR(ConversionError, Error);
INTERPOOL_DEFINE_ERROR(ArchiveError, Error);
INTERPOOL_DEFINE_ERROR(StructureError, ArchiveError);
INTERPOOL_DEFINE_ERROR(ManifestError, ArchiveError);
INTERPOOL_DEFINE_ERROR(DigestError, ArchiveError);
INTERPOOL_DEFINE_ERROR(SignatureError, ArchiveError);
INTERPOOL_DEFINE_ERROR(ExternError, ArchiveError);
INTERPOOL_DEFINE_ERROR(PickleError, ArchiveError);
INTERPOOL_DEFINE_ERROR(SelfTestError, ArchiveError);

#undef INTERPOOL_DEFINE_ERROR

// Throws the error that interpool's Python side knows by that name, if there is one.
inline void throw_by_name(const std::string& name, const std::string& message) {
  if (name == "interpool.native.errors.ProvisioningError") throw ProvisioningError(message);
  if (name == "interpool.native.errors.SessionError") throw SessionError(message);
  if (name == "interpool.native.errors.ConversionError") throw ConversionError(message);
  if (name == "interpool.native.errors.ArchiveError") throw ArchiveError(message);
  if (name == "interpool.native.errors.StructureError") throw StructureError(message);
  if (name == "interpool.native.errors.ManifestError") throw ManifestError(message);
  if (name == "interpool.native.errors.DigestError") throw DigestError(message);
  if (name == "interpool.native.errors.SignatureError") throw SignatureError(message);
  if (name == "interpool.native.errors.ExternError") throw ExternError(message);
  if (name == "interpool.native.errors.PickleError") throw PickleError(message);
  if (name == "interpool.native.errors.SelfTestError") throw SelfTestError(message);
}

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

  std::string type_name;
  std::string text;
  std::string traceback_text;
};

}  // namespace interpool
