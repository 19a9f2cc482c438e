// The layout of NCCL's net plugin interface, in numbers: where each function stands in a table, and each
// field in the properties of a device.
#include "net/plugin/abi.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace stretto::net::abi {
namespace {

template <typename Object, typename Field>
size_t offsetOf(const Object& object, const Field& field) {
  return static_cast<size_t>(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&object));
}

// NCCL's names in NCCL's order; null: not in this version.
template <typename Table>
void expectOrder(size_t beforeTheLast) {
  const Table t{};
  const std::vector<size_t> offsets{
      offsetOf(t, t.name),          offsetOf(t, t.init),       offsetOf(t, t.devices),
      offsetOf(t, t.getProperties), offsetOf(t, t.listen),     offsetOf(t, t.connect),
      offsetOf(t, t.accept),        offsetOf(t, t.regMr),      offsetOf(t, t.regMrDmaBuf),
      offsetOf(t, t.deregMr),       offsetOf(t, t.isend),      offsetOf(t, t.irecv),
      offsetOf(t, t.iflush),        offsetOf(t, t.test),       offsetOf(t, t.closeSend),
      offsetOf(t, t.closeRecv),     offsetOf(t, t.closeListen)};
  for (size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(offsets[i], i * sizeof(void*)) << i;
  EXPECT_EQ(sizeof t, (offsets.size() + beforeTheLast) * sizeof(void*));
}

TEST(NetAbi, FunctionsStandInTheirPlaces) {
  expectOrder<TableV6>(0);
  expectOrder<TableV7>(2);
  expectOrder<TableV8>(2);
  expectOrder<TableV9>(3);
  expectOrder<TableV10>(3);
  expectOrder<TableV11>(5);
  expectOrder<TableV12>(5);
  const TableV12 t{};
  EXPECT_EQ(offsetOf(t, t.getDeviceMr), 17 * sizeof(void*));
  EXPECT_EQ(offsetOf(t, t.irecvConsumed), 18 * sizeof(void*));
  EXPECT_EQ(offsetOf(t, t.makeVDevice), 19 * sizeof(void*));
  EXPECT_EQ(offsetOf(t, t.finalize), 20 * sizeof(void*));
  EXPECT_EQ(offsetOf(t, t.setNetAttr), 21 * sizeof(void*));
}

TEST(NetAbi, FieldsStandInTheirPlaces) {
  const PropertiesV6 six{};
  EXPECT_EQ(offsetOf(six, six.pointers), 24u);
  EXPECT_EQ(offsetOf(six, six.mostGrouped), 44u);
  const PropertiesV7 seven{};
  EXPECT_EQ(offsetOf(seven, seven.speed), 28u);
  EXPECT_EQ(offsetOf(seven, seven.deviceVersion), 52u);
  const PropertiesV8 eight{};
  EXPECT_EQ(offsetOf(eight, eight.speed), 32u);
  EXPECT_EQ(offsetOf(eight, eight.mostGrouped), 48u);
  const PropertiesV9 nine{};
  EXPECT_EQ(offsetOf(nine, nine.speed), 36u);
  EXPECT_EQ(offsetOf(nine, nine.parts), 64u);
  EXPECT_EQ(offsetOf(nine, nine.mostBytes), 88u);
  const PropertiesV11 eleven{};
  EXPECT_EQ(offsetOf(eleven, eleven.mostInMultiRequest), 104u);
  const PropertiesV12 twelve{};
  EXPECT_EQ(offsetOf(twelve, twelve.mostBytes), 104u);
  EXPECT_EQ(offsetOf(twelve, twelve.mostInMultiRequest), 120u);
  EXPECT_EQ(offsetOf(twelve, twelve.rail), 124u);
  EXPECT_EQ(offsetOf(twelve, twelve.plane), 126u);
}

}  // namespace
}  // namespace stretto::net::abi
