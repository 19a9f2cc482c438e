// Mapped memory of emulated devices: what runtime.cpp and tests ask of it. STRETTO_EMULATED_VMM=0 makes
// devices that have none.
#pragma once

#include <cstddef>

namespace stretto::emulator {

// The driver's function of that name; null if it is no function of mapped memory.
void* vmmFunction(const char* name);
// The device whose mapped memory lies at `address`; -1 if none does.
int vmmDeviceAt(const void* address);
// False if a peer of `device` has mapped it there, and not for `device`.
bool vmmMayUse(int device, const void* address);
// Whether all of it is mapped memory that some device may use.
bool vmmHolds(const void* address, size_t bytes);
// Pieces that somebody holds or maps, and reservations of addresses, of this process.
size_t vmmPieces();
size_t vmmReservations();

}  // namespace stretto::emulator
