// What may be thrown across the seam. Visible types with inline definitions:
// private copies throw their own and the core catches them by name.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace interpool {

#define INTERPOOL_ERROR __attribute__((visibility("default")))

class INTERPOOL_ERROR Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

#define INTERPOOL_DEFINE_ERROR(name, base)   \
  class INTERPOOL_ERROR name : public base { \
   public:                                   \
    using base::base;                        \
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

#undef INTERPOOL_DEFINE_ERROR

// A Python exception raised inside an interpreter, as text.
class INTERPOOL_ERROR RemoteError : public Error {
 public:
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
