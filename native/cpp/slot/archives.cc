// Archives, as they are mapped into this interpreter's memory.
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "builtin_module.h"
#include "guarded.h"
#include "tensors.h"
#include "torch_python.h"

namespace interpool {
namespace {

struct Mapping {
  void* address = nullptr;
  std::shared_ptr<const Snapshot> snapshot;

  ~Mapping() {
    if (address != nullptr) {
      munmap(address, snapshot->bytes);
    }
  }
};

constexpr const char* kMapping = "interpool.mapping";

void drop_mapping(PyObject* capsule) {
  delete static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
}

// map_archive(path: str, snapshot: int) -> (mapping, size, fd)
//
// The snapshot of that number (from the host's Package), or 0: the one of `path`.
// Maps a snapshot of the archive copy-on-write into this interpreter: pages are
// shared with every other interpreter's mapping until a write changes them.
PyObject* map_archive(PyObject*, PyObject* args) {
  const char* path = nullptr;
  unsigned long long number = 0;
  if (PyArg_ParseTuple(args, "sK", &path, &number) == 0) {
    return nullptr;
  }
  auto mapping = std::make_shared<Mapping>();
  without_gil([&] {
    mapping->snapshot = start_options().services->open_archive(path, number);
    void* address = mmap(nullptr, mapping->snapshot->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                         mapping->snapshot->fd, 0);
    if (address == MAP_FAILED) {
      throw ArchiveError(std::string(path) + " cannot be mapped: " + std::strerror(errno));
    }
    mapping->address = address;
  });
  const auto size = static_cast<Py_ssize_t>(mapping->snapshot->bytes);
  const int fd = mapping->snapshot->fd;
  auto owner = std::make_unique<std::shared_ptr<Mapping>>(std::move(mapping));
  PyObject* capsule = PyCapsule_New(owner.get(), kMapping, drop_mapping);
  if (capsule == nullptr) {
    return nullptr;
  }
  owner.release();
  return Py_BuildValue("(Nni)", capsule, size, fd);
}

// The mapping that a capsule holds, or null and a Python error.
const Mapping* mapping_of(PyObject* capsule) {
  auto* owner = static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
  return owner == nullptr ? nullptr : owner->get();
}

// The caller's turn of Once. If an interruption keeps the caller from getting it, its destructor ends it.
struct OnceTurn {
  OnceTurn(std::shared_ptr<const Snapshot> of, std::string what)
      : snapshot(std::move(of)), work(std::move(what)) {}
  ~OnceTurn() { end(std::nullopt); }
  OnceTurn(const OnceTurn&) = delete;
  OnceTurn& operator=(const OnceTurn&) = delete;

  void end(const std::optional<std::string>& result) { snapshot->once.end(work, number, result); }

  const std::shared_ptr<const Snapshot> snapshot;
  const std::string work;
  uint64_t number = 0;  // no caller's
};

constexpr const char* kTurn = "interpool.turn";

void drop_turn(PyObject* capsule) {
  delete static_cast<OnceTurn*>(PyCapsule_GetPointer(capsule, kTurn));
}

// begin_once(mapping, work: str, patience: float) -> str | turn | None
//
// For what one interpreter does for all that map the same snapshot. Returns what came of it, or a turn if the
// caller is to do it and then to call end_once. None if another was still at it after `patience` seconds. The
// GIL is not held meanwhile; the caller holds the capsule.
PyObject* begin_once(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  const char* work = nullptr;
  double patience = 0;
  if (PyArg_ParseTuple(args, "Osd", &capsule, &work, &patience) == 0) {
    return nullptr;
  }
  const Mapping* mapping = mapping_of(capsule);
  if (mapping == nullptr) {
    return nullptr;
  }
  Once::Answer answer;
  std::unique_ptr<OnceTurn> turn;
  without_gil([&] {
    turn = std::make_unique<OnceTurn>(mapping->snapshot, work);
    answer = mapping->snapshot->once.begin(work, std::chrono::milliseconds(int64_t(patience * 1000)));
    turn->number = answer.number;
  });
  switch (answer.turn) {
    case Once::Turn::kDone:
      return PyUnicode_FromStringAndSize(answer.result.data(), static_cast<Py_ssize_t>(answer.result.size()));
    case Once::Turn::kBusy:
      Py_RETURN_NONE;
    case Once::Turn::kYours:
      break;
  }
  PyObject* mine = PyCapsule_New(turn.get(), kTurn, drop_turn);
  if (mine != nullptr) {
    static_cast<void>(turn.release());
  }
  return mine;
}

// end_once(turn, result: str | None) -> None
//
// Of begin_once. None: it was not done, and is the next caller's to do.
PyObject* end_once(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  const char* result = nullptr;
  if (PyArg_ParseTuple(args, "Oz", &capsule, &result) == 0) {
    return nullptr;
  }
  auto* turn = static_cast<OnceTurn*>(PyCapsule_GetPointer(capsule, kTurn));
  if (turn == nullptr) {
    return nullptr;
  }
  std::optional<std::string> found;
  if (result != nullptr) {
    found = result;
  }
  without_gil([&] { turn->end(found); });
  Py_RETURN_NONE;
}

// mapped_bytes(mapping, offset: int, bytes: int) -> torch.Tensor
//
// uint8, 1-D, over the mapping, which lives as long as the tensor.
PyObject* mapped_bytes(PyObject*, PyObject* args) {
  PyObject* capsule = nullptr;
  Py_ssize_t offset = 0;
  Py_ssize_t bytes = 0;
  if (PyArg_ParseTuple(args, "Onn", &capsule, &offset, &bytes) == 0) {
    return nullptr;
  }
  auto* owner = static_cast<std::shared_ptr<Mapping>*>(PyCapsule_GetPointer(capsule, kMapping));
  if (owner == nullptr) {
    return nullptr;
  }
  const Mapping& mapping = **owner;
  const auto size = static_cast<Py_ssize_t>(mapping.snapshot->bytes);
  if (offset < 0 || bytes < 0 || offset > size || bytes > size - offset) {
    PyErr_Format(PyExc_ValueError, "bytes %zd to %zd lie outside of an archive of %zd bytes", offset,
                 offset + bytes, size);
    return nullptr;
  }
  return wrap_tensor(
             tensor_over(static_cast<char*>(mapping.address) + offset, static_cast<size_t>(bytes), *owner))
      .release();
}

PyMethodDef archive_methods[] = {
    {"map_archive", guarded<map_archive>, METH_VARARGS, "map_archive(path, snapshot) -> (mapping, size, fd)"},
    {"begin_once", guarded<begin_once>, METH_VARARGS,
     "begin_once(mapping, work, patience) -> str, turn or None"},
    {"end_once", guarded<end_once>, METH_VARARGS, "end_once(turn, result) -> None"},
    {"mapped_bytes", guarded<mapped_bytes>, METH_VARARGS, "mapped_bytes(mapping, offset, bytes) -> Tensor"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyMethodDef* archive_functions() {
  return archive_methods;
}

}  // namespace interpool
