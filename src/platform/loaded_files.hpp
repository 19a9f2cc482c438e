// Which files this process has loaded, and where its loader would look for more. The linux/ half does it. Any
// folder may include this; any thread.
#pragma once

#include <string>
#include <vector>

namespace stretto::platform {

// The files that are mapped into this process, by address, each once.
std::vector<std::string> mappedFiles();
// Where the loader would look for what the loaded objects need: the DT_RPATH, LD_LIBRARY_PATH and DT_RUNPATH
// of each, and the system's own folders; each once, in the order of loading.
std::vector<std::string> librarySearchPath();
// Where an instruction lies: the file, by the name it was loaded under, and the exported function around it,
// as far as there are such. Takes the loader's lock.
struct CodePlace {
  std::string file;
  std::string function;
};
CodePlace placeOfCode(const void* code);
// The file that holds this very code.
std::string ownFile();
// The same file, whatever it is called; false when either cannot be seen.
bool sameFile(const std::string& a, const std::string& b);
bool isFile(const std::string& path);

}  // namespace stretto::platform
