#include "array.hpp"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "errors.hpp"

namespace stretto::python {
namespace {

// The public layout of DLPack (github.com/dmlc/dlpack, dlpack.h), as far as a consumer on the CPU needs it.
struct DlTensor {
  void* data;
  int32_t deviceType;
  int32_t deviceId;
  int32_t dimensions;
  uint8_t typeCode;
  uint8_t typeBits;
  uint16_t typeLanes;
  const int64_t* shape;
  const int64_t* strides;  // in elements; null for row-major
  uint64_t byteOffset;
};
struct DlManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr int kDlCpu = 1;
constexpr uint64_t kDlReadOnly = 1;
enum DlCode : uint8_t { kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4, kDlE4m3fn = 10, kDlE5m2 = 12 };

struct TypeRow {
  const char* name;
  ncclDataType_t type;
};
// The first twelve are in the order of their values and are the names in messages.
constexpr TypeRow kTypes[] = {
    {"int8", ncclInt8},
    {"uint8", ncclUint8},
    {"int32", ncclInt32},
    {"uint32", ncclUint32},
    {"int64", ncclInt64},
    {"uint64", ncclUint64},
    {"float16", ncclFloat16},
    {"float32", ncclFloat32},
    {"float64", ncclFloat64},
    {"bfloat16", ncclBfloat16},
    {"float8e4m3", ncclFloat8e4m3},
    {"float8e5m2", ncclFloat8e5m2},
    {"float8_e4m3fn", ncclFloat8e4m3},
    {"float8_e4m3", ncclFloat8e4m3},
    {"float8_e5m2", ncclFloat8e5m2},
    {"half", ncclFloat16},
    {"float", ncclFloat32},
    {"double", ncclFloat64},
};

// The buffer protocol's format letter, without its byte order; ncclNumTypes for what no rank can reduce.
ncclDataType_t typeOfFormat(const char* format, size_t bytes) {
  if (format == nullptr) return ncclUint8;
  if (*format == '@' || *format == '=' || *format == '<') format++;
  if (format[0] == 0 || format[1] != 0) return ncclNumTypes;
  switch (*format) {
    case 'e':
      return ncclFloat16;
    case 'f':
      return ncclFloat32;
    case 'd':
      return ncclFloat64;
    case 'b':
      return ncclInt8;
    case 'B':
    case 'c':
      return ncclUint8;
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return bytes == 4 ? ncclInt32 : bytes == 8 ? ncclInt64 : ncclNumTypes;
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return bytes == 4 ? ncclUint32 : bytes == 8 ? ncclUint64 : ncclNumTypes;
    default:
      return ncclNumTypes;
  }
}

ncclDataType_t typeOfDlpack(const DlTensor& tensor) {
  if (tensor.typeLanes != 1) return ncclNumTypes;
  const auto bySize = [&](ncclDataType_t one, ncclDataType_t four, ncclDataType_t eight) {
    return tensor.typeBits == 8    ? one
           : tensor.typeBits == 32 ? four
           : tensor.typeBits == 64 ? eight
                                   : ncclNumTypes;
  };
  switch (tensor.typeCode) {
    case kDlInt:
      return bySize(ncclInt8, ncclInt32, ncclInt64);
    case kDlUint:
      return bySize(ncclUint8, ncclUint32, ncclUint64);
    case kDlFloat:
      return tensor.typeBits == 16 ? ncclFloat16 : bySize(ncclNumTypes, ncclFloat32, ncclFloat64);
    case kDlBfloat:
      return tensor.typeBits == 16 ? ncclBfloat16 : ncclNumTypes;
    case kDlE4m3fn:
      return ncclFloat8e4m3;
    case kDlE5m2:
      return ncclFloat8e5m2;
    default:
      return ncclNumTypes;
  }
}

bool isRowMajor(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int d = tensor.dimensions - 1; d >= 0; d--) {
    if (tensor.shape[d] == 0) return true;
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

[[noreturn]] void refuseLayout(const char* name) {
  refuse(ncclInvalidArgument,
         "%s is not contiguous in row-major (C) order. Pass a contiguous array: numpy.ascontiguousarray(%s) "
         "makes a "
         "copy of one.",
         name, name);
}

[[noreturn]] void refuseReadOnly(const char* name) {
  refuse(ncclInvalidArgument, "%s is read-only, and the result goes there. Pass a writable array, or out=.",
         name);
}

std::string typeName(nb::handle object) {
  return nb::cast<std::string>(
      nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"));
}

// What a producer's method gives; `arguments` are those by keyword.
template <typename... Arguments>
nb::object ask(nb::handle object, const char* method, const char* name, Arguments&&... arguments) {
  try {
    return object.attr(method)(std::forward<Arguments>(arguments)...);
  } catch (nb::python_error& error) {
    refuseBecause(error, std::string(name) + " is a " + typeName(object) + ", whose " + method);
  }
}

nb::object capsuleOf(nb::handle object, const char* name) {
  try {
    return object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) {
      refuseBecause(error, std::string(name) + " is a " + typeName(object) + ", whose __dlpack__");
    }
  }
  return ask(object, "__dlpack__", name);  // A producer from before versions.
}

void expectOnCpu(nb::handle object, const char* name) {
  const nb::object device = ask(object, "__dlpack_device__", name);
  const bool pair = PyTuple_Check(device.ptr()) && PyTuple_GET_SIZE(device.ptr()) == 2;
  int type = 0;
  if (!pair || !nb::try_cast(nb::handle(PyTuple_GET_ITEM(device.ptr(), 0)), type)) {
    refuse(ncclInvalidArgument,
           "%s is a %s, whose __dlpack_device__ returned a %s: it must be a tuple of two whole numbers", name,
           typeName(object).c_str(), typeName(device).c_str());
  }
  if (type != kDlCpu) {
    refuse(ncclInvalidArgument,
           "%s lives on a device that is not the CPU (DLPack device type %d): copy it to the CPU", name,
           type);
  }
}

// The number of elements. A tensor is made by whoever wrote __dlpack__, and nothing of it is believed.
size_t countOf(const DlTensor& tensor, const char* name) {
  constexpr int kMaxDimensions = 1024;
  size_t count = 1;
  bool sane = tensor.dimensions >= 0 && tensor.dimensions <= kMaxDimensions &&
              (tensor.dimensions == 0 || tensor.shape != nullptr) && tensor.typeBits * tensor.typeLanes >= 8;
  for (int d = 0; sane && d < tensor.dimensions; d++) {
    sane =
        tensor.shape[d] >= 0 && !__builtin_mul_overflow(count, static_cast<size_t>(tensor.shape[d]), &count);
  }
  size_t bytes = 0;
  const size_t element = tensor.typeBits * tensor.typeLanes / 8u;
  sane = sane && !__builtin_mul_overflow(count, element, &bytes) && bytes <= PTRDIFF_MAX;
  if (!sane || (tensor.data == nullptr && count != 0)) {
    refuse(ncclInvalidArgument,
           "%s: the tensor of its __dlpack__ makes no sense (%d dimensions, elements of %d bits, %s)", name,
           tensor.dimensions, tensor.typeBits * tensor.typeLanes,
           tensor.data == nullptr ? "no data" : "some data");
  }
  return count;
}

}  // namespace

size_t sizeOf(ncclDataType_t type) {
  constexpr size_t kSizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}

const char* nameOf(ncclDataType_t type) {
  return type < ncclNumTypes ? kTypes[type].name : "a type of its own";
}

ncclDataType_t typeNamed(const char* name) {
  for (const TypeRow& row : kTypes) {
    if (strcmp(row.name, name) == 0) return row.type;
  }
  return ncclNumTypes;
}

Array::Array(nb::handle object, Access access, ncclDataType_t asType, const char* name) {
  if (const Memory* memory = nullptr; nb::try_cast(object, memory) && memory != nullptr) {
    data_ = memory->address;
    count_ = memory->count;
    elementBytes_ = sizeOf(memory->type);
    type_ = memory->type;
    owner_ = memory->owner;
  } else if (PyObject_CheckBuffer(object.ptr())) {
    openBuffer(object, access, name);
  } else if (nb::hasattr(object, "__dlpack__")) {
    openDlpack(object, access, name);
  } else {
    refuse(ncclInvalidArgument,
           "%s is a %s: pass a NumPy array or anything with the buffer protocol or DLPack", name,
           typeName(object).c_str());
  }
  retype(asType, name);
}

Array::Array(Array&& other) noexcept {
  *this = std::move(other);
}

Array& Array::operator=(Array&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(count_, other.count_);
  std::swap(elementBytes_, other.elementBytes_);
  std::swap(type_, other.type_);
  std::swap(format_, other.format_);
  std::swap(buffer_.view, other.buffer_.view);
  std::swap(owner_, other.owner_);
  return *this;
}

void Array::openBuffer(nb::handle object, Access access, const char* name) {
  constexpr int kFlags = PyBUF_FORMAT | PyBUF_STRIDES;
  Py_buffer& view = buffer_.view;
  if (PyObject_GetBuffer(object.ptr(), &view, kFlags | (access == Access::kWrite ? PyBUF_WRITABLE : 0)) !=
      0) {
    nb::python_error reason;
    HeldBuffer probe;
    if (PyObject_GetBuffer(object.ptr(), &probe.view, kFlags) == 0) refuseReadOnly(name);
    PyErr_Clear();
    if (!nb::hasattr(object, "dtype")) {
      refuseBecause(reason, std::string(name) + " is a " + typeName(object) + ", whose buffer");
    }
    return openExtendedNumpy(object, access, name);
  }
  if (!PyBuffer_IsContiguous(&view, 'C')) refuseLayout(name);
  data_ = view.buf;
  elementBytes_ = static_cast<size_t>(view.itemsize);
  count_ = elementBytes_ == 0 ? 0 : static_cast<size_t>(view.len) / elementBytes_;
  format_ = view.format != nullptr ? view.format : "B";
  if (strchr(format_, 'O') != nullptr) {
    refuse(ncclInvalidArgument, "%s holds Python objects (numpy dtype object): convert it to numbers", name);
  }
  type_ = typeOfFormat(view.format, elementBytes_);
}

void Array::openDlpack(nb::handle object, Access access, const char* name) {
  if (!nb::hasattr(object, "__dlpack_device__")) {
    refuse(ncclInvalidArgument, "%s is a %s, which has __dlpack__ and no __dlpack_device__", name,
           typeName(object).c_str());
  }
  expectOnCpu(object, name);
  owner_ = capsuleOf(object, name);  // Its own destructor gives the tensor back: we never rename the capsule.
  if (!PyCapsule_CheckExact(owner_.ptr())) {
    refuse(ncclInvalidArgument, "%s is a %s, whose __dlpack__ returned a %s: it must be a DLPack capsule",
           name, typeName(object).c_str(), typeName(owner_).c_str());
  }
  const char* label = PyCapsule_GetName(owner_.ptr());
  void* pointer = label != nullptr ? PyCapsule_GetPointer(owner_.ptr(), label) : nullptr;
  const bool versioned = label != nullptr && strcmp(label, "dltensor_versioned") == 0;
  if (pointer == nullptr || (!versioned && strcmp(label, "dltensor") != 0)) {
    refuse(ncclInvalidArgument, "%s: __dlpack__ did not return a fresh DLPack capsule (its name is %s)", name,
           label != nullptr ? label : "missing");
  }
  const auto* managed = static_cast<const DlManagedVersioned*>(pointer);
  if (versioned && managed->major != 1)
    refuse(ncclInvalidArgument, "%s: DLPack version %u", name, managed->major);
  if (versioned && access == Access::kWrite && (managed->flags & kDlReadOnly) != 0) refuseReadOnly(name);
  const DlTensor& tensor = versioned ? managed->tensor : *static_cast<const DlTensor*>(pointer);
  count_ = countOf(tensor, name);
  if (count_ != 0 && !isRowMajor(tensor)) refuseLayout(name);
  data_ = static_cast<char*>(tensor.data) + tensor.byteOffset;
  elementBytes_ = tensor.typeBits * tensor.typeLanes / 8u;
  format_ = "its DLPack type";
  type_ = typeOfDlpack(tensor);
}

// ml_dtypes' types have no letter in the buffer protocol; the same bytes seen as integers do.
void Array::openExtendedNumpy(nb::handle object, Access access, const char* name) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const std::string type =
      dtype.is_none() ? "" : nb::cast<std::string>(nb::str(nb::getattr(dtype, "name", dtype)));
  const ncclDataType_t named = typeNamed(type.c_str());
  if (named == ncclNumTypes || !nb::hasattr(object, "view")) {
    refuse(ncclInvalidArgument, "%s has elements of type %s, which no collective takes", name,
           type.empty() ? typeName(object).c_str() : type.c_str());
  }
  const nb::object plain = object.attr("view")(sizeOf(named) == 2 ? "uint16" : "uint8");
  *this = Array(plain, access, named, name);
}

void Array::retype(ncclDataType_t asType, const char* name) {
  if (asType == ncclNumTypes && type_ != ncclNumTypes) return;
  if (asType == ncclNumTypes) {
    refuse(ncclInvalidArgument,
           "%s has elements of a type that no collective takes (%s, %zu bytes). Convert it, or say dtype= if "
           "its bytes "
           "are of another type",
           name, format_, elementBytes_);
  }
  const size_t size = sizeOf(asType);
  const size_t bytes = count_ * elementBytes_;
  if ((elementBytes_ != size && elementBytes_ != 1) || bytes % size != 0) {
    refuse(ncclInvalidArgument,
           "%s has %zu elements of %zu bytes, which cannot be taken as %s (%zu bytes each)", name, count_,
           elementBytes_, nameOf(asType), size);
  }
  count_ = bytes / size;
  elementBytes_ = size;
  type_ = asType;
}

}  // namespace stretto::python
