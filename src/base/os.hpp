// The little that base/ needs of the operating system. It is declared here, as base/ includes nobody, and
// defined in platform/linux and platform/windows. Any folder may include this; any thread.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

namespace stretto::os {

// Wide enough for the numbers of both systems.
using ProcessId = int;

// A forked child gets its own.
ProcessId processId();
int threadId();
// This host's name, cut to fit, with a zero at its end. False with errno, and an empty text, if there is
// none.
bool hostName(char* into, size_t bytes);

// Opens a file without waiting for anybody: a pipe that nobody reads is an error. Null with errno if it
// cannot be had. kAppend makes the file, and later writes wait as usual; kReplace makes it empty.
enum class Access { kRead, kAppend, kReplace };
FILE* openFile(const std::string& path, Access access);
// Not a folder, a pipe or a device.
bool isRegularFile(FILE* file);

// "NAME=value" of each variable of the environment.
std::vector<std::string> environmentEntries();

}  // namespace stretto::os
