// Shared libraries at run time: opening one by its path, and where this process has found others. The linux/
// half does it. Any folder may include this; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"

namespace stretto::platform {

// A library of another maker, opened for good: its threads and its handlers at exit forbid to close it.
class Library {
 public:
  // `path` is absolute, so that no library which is loaded already under the same name is taken for it. Its
  // symbols serve nobody else, and its own calls find its own functions first, whatever else the process has
  // loaded under their names. kSystem, with the loader's words.
  static Result<Library> open(const std::string& path);

  // The address of a symbol in it or in what it needs; null when there is none.
  void* symbol(const char* name) const;
  // Only for one that turned out to be the wrong one, before anything of it was called.
  void close();

 private:
  void* handle_ = nullptr;
};

// The files that are mapped into this process, by address, each once.
std::vector<std::string> mappedFiles();
// Where the loader would look for what the loaded objects need: the DT_RPATH, LD_LIBRARY_PATH and DT_RUNPATH
// of each, and the system's own folders; each once, in the order of loading.
std::vector<std::string> librarySearchPath();
// The file that holds this very code.
std::string ownFile();
// The same file, whatever it is called; false when either cannot be seen.
bool sameFile(const std::string& a, const std::string& b);
bool isFile(const std::string& path);

}  // namespace stretto::platform
