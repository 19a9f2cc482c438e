// Variables of the environment that are named as if they were Stretto's and that nothing of Stretto reads: a
// misspelt one would otherwise have no effect and say nothing. Any thread.
#pragma once

#include <string>
#include <vector>

namespace stretto {

// One sentence for each of `names` that begins with STRETTO_ and is unknown, with the known name that is
// nearest to it, if one is near.
std::vector<std::string> aboutUnknownVariables(const std::vector<std::string>& names);
// The same of this process's environment.
std::vector<std::string> aboutUnknownVariables();
// The same, once in the life of the process, as warnings in the log.
void warnOfUnknownVariables();

}  // namespace stretto
