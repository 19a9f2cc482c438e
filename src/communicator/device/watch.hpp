// A thread of the process for each GPU that has ranks of communicators: it looks after them while their users
// wait for streams or do something else. It ends when there is nobody left to look after.
#pragma once

#include <functional>

namespace stretto::communicator {

// Calls `look` twenty times a second until it returns false, one call after the other with those of the
// device's other ranks: it must be quick, share what it needs, and may let go of it. Any thread. False, and
// logged, if there is no thread for it.
bool watchOver(int rank, int device, std::function<bool()> look);

}  // namespace stretto::communicator
