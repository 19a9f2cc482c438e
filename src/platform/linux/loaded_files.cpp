#include "platform/loaded_files.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

namespace stretto::platform {
namespace {

void addOnce(std::vector<std::string>& all, const std::string& one) {
  if (!one.empty() && std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

// What dlinfo says of one loaded object.
void addSearchPath(const char* object, std::vector<std::string>& all) {
  void* const handle = ::dlopen(*object == 0 ? nullptr : object, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  Dl_serinfo sizes{};
  if (::dlinfo(handle, RTLD_DI_SERINFOSIZE, &sizes) == 0 && sizes.dls_size >= sizeof sizes) {
    std::vector<std::max_align_t> storage(sizes.dls_size / sizeof(std::max_align_t) + 1);
    auto* const info = reinterpret_cast<Dl_serinfo*>(storage.data());
    info->dls_size = sizes.dls_size;
    info->dls_cnt = sizes.dls_cnt;
    if (::dlinfo(handle, RTLD_DI_SERINFO, info) == 0) {
      const Dl_serpath* const paths = info->dls_serpath;
      for (unsigned int place = 0; place < info->dls_cnt; ++place) addOnce(all, paths[place].dls_name);
    }
  }
  ::dlclose(handle);
}

int collectName(dl_phdr_info* info, size_t, void* into) {
  static_cast<std::vector<std::string>*>(into)->emplace_back(info->dlpi_name);
  return 0;
}

bool inodeOf(const std::string& path, struct stat& status) {
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace

std::vector<std::string> mappedFiles() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // The path is the sixth field and may hold spaces; no field before it has a slash.
    const size_t path = line.find('/');
    if (path != std::string::npos) addOnce(files, line.substr(path));
  }
  return files;
}

std::vector<std::string> librarySearchPath() {
  // The names first: nothing may be loaded while the loader goes through its list.
  std::vector<std::string> objects;
  ::dl_iterate_phdr(collectName, &objects);
  std::vector<std::string> folders;
  for (const std::string& object : objects) addSearchPath(object.c_str(), folders);
  return folders;
}

CodePlace placeOfCode(const void* code) {
  Dl_info info{};
  if (::dladdr(code, &info) == 0) return {};
  const auto text = [](const char* words) { return std::string(words == nullptr ? "" : words); };
  return {text(info.dli_fname), text(info.dli_sname)};
}

std::string ownFile() {
  return placeOfCode(reinterpret_cast<const void*>(&ownFile)).file;
}

bool sameFile(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  return inodeOf(a, first) && inodeOf(b, second) && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool isFile(const std::string& path) {
  struct stat status {};
  return inodeOf(path, status) && S_ISREG(status.st_mode);
}

}  // namespace stretto::platform
