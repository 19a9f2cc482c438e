// Segments of shared memory, as their owner and as others have them. That another process may do the same is
// for api's and primitives' tests of processes; here a process opens its own segments as if it were another.
#include "platform/shared_memory.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "harness/now.hpp"
#include "harness/temporary_folder.hpp"

namespace stretto::platform {
namespace {

using namespace stretto::testing;

constexpr size_t kSharedBytes = 3 * 4096;

SharedMemory made(size_t bytes = kSharedBytes) {
  auto memory = SharedMemory::create("test", bytes);
  EXPECT_TRUE(memory.ok()) << lastError();
  return std::move(memory.value());
}

TEST(SharedMemory, IsZeroAndOfTheLengthThatWasAskedFor) {
  const SharedMemory memory = made();
  ASSERT_EQ(memory.size(), kSharedBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
  for (size_t i = 0; i < kSharedBytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0});
  EXPECT_GE(memory.descriptor(), 0);
}

TEST(SharedMemory, IsOneInTwoMappings) {
  const SharedMemory memory = made();
  const auto other = SharedMemory::open(os::processId(), memory.descriptor(), kSharedBytes);
  ASSERT_TRUE(other.ok()) << lastError();
  EXPECT_NE(other.value().data(), memory.data());
  memory.data()[kSharedBytes - 1] = std::byte{7};
  EXPECT_EQ(other.value().data()[kSharedBytes - 1], std::byte{7});
  other.value().data()[0] = std::byte{9};
  EXPECT_EQ(memory.data()[0], std::byte{9});
}

TEST(SharedMemory, OutlivesItsOwnersMapping) {
  SharedMemory memory = made();
  const auto other = SharedMemory::open(os::processId(), memory.descriptor(), kSharedBytes);
  memory.data()[5] = std::byte{5};
  memory = SharedMemory();
  EXPECT_EQ(other.value().data()[5], std::byte{5});
}

TEST(SharedMemory, OfAnotherLengthIsRefused) {
  const SharedMemory memory = made();
  EXPECT_FALSE(SharedMemory::open(os::processId(), memory.descriptor(), kSharedBytes - 4096).ok());
  EXPECT_FALSE(SharedMemory::open(os::processId(), memory.descriptor(), kSharedBytes + 4096).ok());
}

TEST(SharedMemory, WhoseDescriptorIsClosedIsNotOpened) {
  SharedMemory memory = made();
  const int descriptor = memory.descriptor();
  memory.closeDescriptor();
  EXPECT_EQ(memory.descriptor(), -1);
  EXPECT_FALSE(SharedMemory::open(os::processId(), descriptor, kSharedBytes).ok());
  memory.data()[0] = std::byte{1};  // the mapping stays
}

TEST(SharedMemory, LeavesNothingBehind) {
  for (int i = 0; i < 5; ++i) made();
  const size_t descriptors = descriptorsNow();
  const size_t mappings = mappingsNow();
  for (int i = 0; i < 100; ++i) {
    const SharedMemory memory = made();
    EXPECT_TRUE(SharedMemory::open(os::processId(), memory.descriptor(), kSharedBytes).ok());
  }
  EXPECT_LE(descriptorsNow(), descriptors + 5);
  EXPECT_LE(mappingsNow(), mappings + 20);
}

TEST(SharedMemory, OfOneProcessHasNoDescriptor) {
  auto memory = SharedMemory::createPrivate(kSharedBytes);
  ASSERT_TRUE(memory.ok()) << lastError();
  EXPECT_EQ(memory.value().descriptor(), -1);
  for (size_t i = 0; i < kSharedBytes; ++i) ASSERT_EQ(memory.value().data()[i], std::byte{0});
  const SharedMemory moved = std::move(memory.value());
  EXPECT_EQ(moved.size(), kSharedBytes);
}

TEST(SharedMemory, InAFileIsTheFilesText) {
  const TemporaryFolder folder("segment");
  const std::string path = folder / "one";
  const auto memory = SharedMemory::createFile(path, kSharedBytes);
  ASSERT_TRUE(memory.ok()) << lastError();
  memory.value().data()[4097] = std::byte{42};
  EXPECT_EQ(std::filesystem::file_size(path), kSharedBytes);
  FILE* const file = os::openFile(path, os::Access::kRead);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(fseek(file, 4097, SEEK_SET), 0);
  EXPECT_EQ(fgetc(file), 42);
  fclose(file);
}

TEST(SharedMemory, TakesNoFileThatIsThere) {
  const TemporaryFolder folder("segment");
  const std::string path = folder / "one";
  ASSERT_TRUE(SharedMemory::createFile(path, kSharedBytes).ok()) << lastError();
  EXPECT_FALSE(SharedMemory::createFile(path, kSharedBytes).ok());
  EXPECT_EQ(errno, EEXIST);
}

TEST(ProcessMemory, IsReadAndWritten) {
  const char text[] = "there and back";
  char copy[sizeof text] = "";
  if (!readProcess(os::processId(), copy, text, sizeof text)) GTEST_SKIP() << "refused: " << strerror(errno);
  EXPECT_STREQ(copy, text);
  const char other[] = "and once more.";
  ASSERT_TRUE(writeProcess(os::processId(), copy, other, sizeof other));
  EXPECT_STREQ(copy, other);
}

TEST(ProcessMemory, ThatIsNotThereIsAnError) {
  char byte = 0;
  errno = 0;
  EXPECT_FALSE(readProcess(os::processId(), &byte, reinterpret_cast<const void*>(uintptr_t{16}), 1));
  EXPECT_NE(errno, 0);
}

}  // namespace
}  // namespace stretto::platform
