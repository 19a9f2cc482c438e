// Memory of GPUs is what goes through here, and GPUs are not used on Windows.
#include "platform/descriptors.hpp"

namespace stretto::platform {
namespace {

Status refuse() {
  return fail(Code::kInvalidUsage, "processes cannot hand memory of GPUs to each other on Windows");
}

}  // namespace

Result<std::unique_ptr<DescriptorSource>> DescriptorSource::create(size_t, Open) {
  return refuse();
}
DescriptorSource::~DescriptorSource() = default;

Status takeDescriptors(const DescriptorAddress&, double, const TakeDescriptor&) {
  return refuse();
}

}  // namespace stretto::platform
