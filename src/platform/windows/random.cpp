#include "platform/random.hpp"

#include "platform/windows/native.hpp"

namespace stretto {

Status fillRandom(std::span<uint8_t> bytes) {
  const auto count = static_cast<ULONG>(bytes.size());
  const NTSTATUS status = BCryptGenRandom(nullptr, bytes.data(), count, BCRYPT_USE_SYSTEM_PREFERRED_RNG);
  if (status >= 0) return kOkStatus;
  return fail(Code::kSystem, "the system gives no random bytes (status %08lx)",
              static_cast<unsigned long>(status));
}

}  // namespace stretto
