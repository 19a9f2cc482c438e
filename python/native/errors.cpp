#include "errors.hpp"

#include <nanobind/nanobind.h>

#include <cstdarg>
#include <cstdio>

namespace stretto::python {
namespace {

namespace nb = nanobind;

[[noreturn]] void raise(ncclResult_t result, const char* text) {
  nb::object error =
      nb::module_::import_("stretto.errors").attr("from_result")(static_cast<int>(result), text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace

void check(ncclResult_t result, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  // This thread's own words first: the communicator's may already tell of what came after.
  const char* text = ncclGetLastError(nullptr);
  if ((text == nullptr || *text == 0) && comm != nullptr) text = ncclGetLastError(comm);
  raise(result, text != nullptr && *text != 0 ? text : ncclGetErrorString(result));
}

void refuse(ncclResult_t result, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  raise(result, text);
}

}  // namespace stretto::python
