// The words of a diagnosis: how ranks, operations and times are said. Only doctor*.cpp includes this.
#pragma once

#include <string>
#include <vector>

#include "observe/flight_reader.hpp"

namespace stretto::observe {

// Whether the operator, and whether the root, means anything to it.
bool isReduction(Collective function);
bool isRooted(Collective function);
// "rank 2" or "ranks 0, 1, 3 to 7"; `ranks` is sorted.
std::string sayRanks(const std::vector<int>& ranks);
// "rank 2 (host h, pid 123)", and that its process is stopped if it is.
std::string sayMember(const FlightSnapshot& member);
// "#1841 all_reduce bfloat16 x 4096", "send float32 x 64 to rank 1", "wait for 2 signals of rank 1".
std::string sayOperation(const FlightOperation& operation);
// "3.2 µs", "12.3 s", "5 min 12 s".
std::string sayTime(double seconds);

}  // namespace stretto::observe
