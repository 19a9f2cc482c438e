// A shared library opened at run time. Its symbols stay private to whoever opened it, and all that it needs
// is bound at once, so that a library that lacks something fails here and not in a call.
#pragma once

#include <string>

namespace stretto::platform {

class DynamicLibrary {
 public:
  DynamicLibrary() = default;
  ~DynamicLibrary() { close(); }
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;

  // By path or by name, as the system's loader looks for it. Not open if it cannot be: `why` gets the
  // loader's words. That is no error here; many libraries are looked for that need not be there.
  static DynamicLibrary open(const std::string& name, std::string* why);
  // One of another maker, by its absolute path, so that nothing which is loaded already under the same name
  // is taken for it. Its own calls find its own functions first, whatever else shows functions of their
  // names.
  static DynamicLibrary openApart(const std::string& path, std::string* why);
  // One that is loaded already, by the name it was loaded under. Not open if there is none.
  static DynamicLibrary openLoaded(const std::string& path);
  // What the program itself, and the libraries it was linked with, show.
  static DynamicLibrary program(std::string* why);

  bool isOpen() const { return handle_ != nullptr; }
  // Null if there is none.
  void* symbol(const char* name) const;
  // Pointers into the library are dead from here, unless somebody else holds it open.
  void close();

 private:
  static DynamicLibrary openRaw(const char* name, int flags, std::string* why);
  void* handle_ = nullptr;
};

}  // namespace stretto::platform
