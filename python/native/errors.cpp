#include "errors.hpp"

#include <cstdarg>
#include <cstdio>

namespace stretto::python {
namespace {

namespace nb = nanobind;

[[noreturn]] void raise(ncclResult_t result, const char* text, nb::handle cause = {}) {
  nb::object error =
      nb::module_::import_("stretto.errors").attr("from_result")(static_cast<int>(result), text);
  if (cause.is_valid()) PyException_SetCause(error.ptr(), nb::object(nb::borrow(cause)).release().ptr());
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

void refuseBecause(nanobind::python_error& error, const std::string& what) {
  if (!error.matches(PyExc_Exception)) throw error;
  const nb::object value = nb::borrow(error.value());
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())));
  PyObject* const text = PyObject_Str(value.ptr());
  if (text == nullptr) PyErr_Clear();
  const char* const words = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
  if (words == nullptr) PyErr_Clear();
  const std::string whole = what + " raised " + reinterpret_cast<PyTypeObject*>(type.ptr())->tp_name + ": " +
                            (words != nullptr ? words : "(no text)");
  Py_XDECREF(text);
  raise(ncclInvalidArgument, whole.c_str(), value);
}

}  // namespace stretto::python
