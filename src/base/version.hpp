// The library's version. What was measured with another one does not decide here (planner/table.hpp), and
// ranks of different versions do not join (bootstrap).
#pragma once

namespace stretto {

inline constexpr const char* kLibraryVersion = "0.1.0";

}  // namespace stretto
