// A host sends every member the same table of members and the same results of exchanges. Each member of a
// process receives them on its own connection; the process keeps one copy for all of them. For bootstrap/
// only; one thread, the loop's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bootstrap/wire.hpp"

namespace stretto::bootstrap {

// Remembers the value that came last, for as long as a member holds it. Owns nothing itself.
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
