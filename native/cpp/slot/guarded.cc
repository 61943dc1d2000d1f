#include "guarded.h"

#include <new>
#include <system_error>

#include <interpool/errors.h>

namespace interpool {

void raise_in_python() noexcept {
  if (PyErr_Occurred() != nullptr) {
    return;
  }
  try {
    throw;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const ProvisioningError& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  } catch (const ArchiveError& error) {
    PyErr_SetString(PyExc_OSError, error.what());
  } catch (const std::system_error& error) {
    PyErr_SetString(PyExc_OSError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace interpool
