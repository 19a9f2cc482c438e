// Which ranks of a communicator share a host, and which of other hosts are their counterparts: what a
// collective over hosts is cut into stages by. Plain values, equal on all ranks.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace stretto::links::net {

class HostMap {
 public:
  HostMap() = default;
  // By rank: the number of its host, counted from 0 in the order of the hosts' first ranks.
  explicit HostMap(std::vector<int> hostOf) : hostOf_(std::move(hostOf)) {
    for (size_t rank = 0; rank < hostOf_.size(); ++rank) {
      const auto host = static_cast<size_t>(hostOf_[rank]);
      if (host >= hosts_.size()) hosts_.resize(host + 1);
      indexOf_.push_back(static_cast<int>(hosts_[host].size()));
      hosts_[host].push_back(static_cast<int>(rank));
    }
    rails_.resize(static_cast<size_t>(perHost()));
    for (const std::vector<int>& host : hosts_) {
      for (size_t index = 0; index < rails_.size(); ++index) rails_[index].push_back(host[index]);
    }
  }

  int hosts() const { return static_cast<int>(hosts_.size()); }
  // Ranks of each host; 0: some have more than others.
  int perHost() const {
    const bool even = std::all_of(hosts_.begin(), hosts_.end(),
                                  [&](const auto& host) { return host.size() == hosts_[0].size(); });
    return even && !hosts_.empty() ? static_cast<int>(hosts_[0].size()) : 0;
  }
  // The size of NCCL's LSA teams: ranks 0 to size - 1, size to 2 size - 1 and so on are each on one host. It
  // is the greatest common divisor of the lengths of all runs of consecutive ranks on one host. 0 without
  // ranks.
  int largestTeam() const {
    int divisor = 0, run = 0;
    for (size_t rank = 0; rank < hostOf_.size(); ++rank) {
      if (rank > 0 && hostOf_[rank] != hostOf_[rank - 1]) divisor = std::gcd(divisor, std::exchange(run, 0));
      ++run;
    }
    return std::gcd(divisor, run);
  }
  int hostOf(int rank) const { return hostOf_[static_cast<size_t>(rank)]; }
  int indexOf(int rank) const { return indexOf_[static_cast<size_t>(rank)]; }
  // The ranks of a host, ascending.
  std::span<const int> home(int host) const { return hosts_[static_cast<size_t>(host)]; }
  // The ranks with this index on their hosts, in the order of these; only with equally many ranks a host.
  std::span<const int> rail(int index) const { return rails_[static_cast<size_t>(index)]; }

 private:
  std::vector<int> hostOf_, indexOf_;  // by rank
  std::vector<std::vector<int>> hosts_, rails_;
};

}  // namespace stretto::links::net
