// Net plugins of others, made for NCCL, as a Net: any table from version 6 to 12. net/ and those above it may
// use this.
#pragma once

#include <memory>
#include <string>

#include "net/net.hpp"

namespace stretto::net::plugin {

// The plugin of that name, found by NCCL's rules: as it stands, then as libnccl-net-<name>.so if it is no
// path; STATIC_PLUGIN is the program itself. The newest table that it exports is used. `wanted` is the name
// that the table must have, whatever the case of its letters; empty: any. Null if there is no such plugin or
// it cannot be used here: then `why` says so. Its init, which may do as it likes, has `seconds` for it; one
// that takes longer is left alone in its thread. No table that is newer than `newest` is looked at.
std::unique_ptr<Net> open(const std::string& name, const std::string& wanted, double seconds,
                          std::string& why, int newest = 12);

}  // namespace stretto::net::plugin
