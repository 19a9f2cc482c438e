// How the binding sees a caller's array: an address, a number of elements and their type, whatever object
// they came from. Four ways in: the buffer protocol (NumPy, memoryview, array.array, bytearray), DLPack
// (PyTorch, JAX, CuPy; CPU memory only), NumPy arrays of ml_dtypes' types, which the buffer protocol cannot
// name, and the bare address in a Memory. Only python/native uses it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>

#include "nccl.h"

namespace stretto::python {

namespace nb = nanobind;

enum class Access { kRead, kWrite };

// An array by its address, from a caller that has looked at it already: PyTorch's backend, whose tensors
// would take longer to say this by DLPack than a small operation takes. `owner` keeps the memory.
struct Memory {
  void* address;
  size_t count;
  ncclDataType_t type;
  nb::object owner;
};

// A view of the buffer protocol, given back when this goes. Holds nothing if obj is null.
struct HeldBuffer {
  Py_buffer view{};
  HeldBuffer() = default;
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    if (view.obj != nullptr) PyBuffer_Release(&view);
  }
};

// Borrowed memory and what keeps it alive. Move-only. Made and destroyed with the GIL held; in between `data`
// may be used without it.
class Array {
 public:
  Array() = default;
  // Refuses with the reason: not an array, not contiguous, read-only, not on the CPU, no such type. `asType`
  // is ncclNumTypes to take the array's own type; otherwise the bytes are taken as that type, whose size must
  // be that of the array's elements, or theirs must be 1. `name` is how the message calls the argument.
  Array(nb::handle object, Access access, ncclDataType_t asType, const char* name);
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;

  void* data() const { return data_; }
  size_t count() const { return count_; }
  ncclDataType_t type() const { return type_; }

 private:
  void openBuffer(nb::handle object, Access access, const char* name);
  void openDlpack(nb::handle object, Access access, const char* name);
  void openExtendedNumpy(nb::handle object, Access access, const char* name);
  void retype(ncclDataType_t asType, const char* name);

  void* data_ = nullptr;
  size_t count_ = 0;
  size_t elementBytes_ = 0;
  ncclDataType_t type_ = ncclNumTypes;  // ncclNumTypes: a type that needs an explicit dtype=
  const char* format_ = "";             // for messages: the type as its owner calls it
  HeldBuffer buffer_;
  nb::object owner_;
};

size_t sizeOf(ncclDataType_t type);
const char* nameOf(ncclDataType_t type);
// ncclNumTypes for a name that is none of the twelve (aliases of other libraries included).
ncclDataType_t typeNamed(const char* name);

}  // namespace stretto::python
