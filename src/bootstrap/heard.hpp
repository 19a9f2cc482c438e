// What hosts tell all members alike, the table and the results of exchanges: each member of a process hears
// it on a connection of its own, and the process keeps it once. For bootstrap/ only; one thread, the loop's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

// The last value, as long as somebody holds it.
template <typename T>
class LastHeard {
 public:
  // `heard`, or the last one if that is equal.
  std::shared_ptr<const T> keep(T heard) {
    auto last = last_.lock();
    if (last == nullptr || *last != heard) {
      last = std::make_shared<const T>(std::move(heard));
      last_ = last;
    }
    return last;
  }

 private:
  std::weak_ptr<const T> last_;
};

struct Heard {
  LastHeard<std::vector<MemberInfo>> tables;
  LastHeard<Bytes> results;
};

}  // namespace stretto::bootstrap
