// How this library was built, for strettoBuild().
#pragma once

#include <string>

namespace stretto::api {

// Texts are empty where there is nothing to say.
struct BuildFacts {
  const char* commit;
  const char* compiler;
  const char* nvcc;     // its version
  const char* kernels;  // for which GPUs, as nvcc names them, with spaces between
};
// In a file of its own that each build makes (cmake/build_facts.cmake).
BuildFacts buildFacts();

// The JSON that stretto.h describes.
std::string buildJson();

}  // namespace stretto::api
