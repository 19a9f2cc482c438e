// What a process knows of itself: its cores, threads, files and libraries, and its environment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/os.hpp"
#include "base/scoped_variable.hpp"
#include "harness/temporary_folder.hpp"
#include "platform/cores.hpp"
#include "platform/dynamic_library.hpp"
#include "platform/identity.hpp"
#include "platform/loaded_files.hpp"
#include "platform/this_thread.hpp"

namespace stretto {
namespace {

using namespace platform;
using namespace testing;

int codeOfThisProgram() {
  return 17;
}

TEST(Cores, AreSomeAndAscend) {
  const std::vector<int> cores = usableCoreNumbers(8192);
  ASSERT_FALSE(cores.empty());
  EXPECT_TRUE(std::is_sorted(cores.begin(), cores.end()));
  EXPECT_GE(cores.front(), 0);
  EXPECT_EQ(usableCores(), static_cast<int>(std::min<size_t>(cores.size(), kMostCores)));
  EXPECT_TRUE(usableCoreSet().test(static_cast<size_t>(cores.front())));
  EXPECT_LE(usableCoreNumbers(1).size(), 1u);
}

TEST(Threads, HaveNumbersOfTheirOwn) {
  const uintptr_t mine = thisThread();
  EXPECT_EQ(thisThread(), mine);
  EXPECT_NE(mine, 0u);
  uintptr_t others = mine;
  int number = os::threadId();
  std::thread([&] {
    nameThisThread("stretto-test");
    others = thisThread();
    number = os::threadId();
  }).join();
  EXPECT_NE(others, mine);
  EXPECT_NE(number, os::threadId());
}

TEST(Files, AreOpenedAsAskedFor) {
  const TemporaryFolder folder("files");
  const std::string path = folder / "one";
  EXPECT_EQ(os::openFile(path, os::Access::kRead), nullptr);
  EXPECT_EQ(errno, ENOENT);
  for (const char* word : {"one", "two"}) {
    FILE* const file = os::openFile(path, os::Access::kAppend);
    ASSERT_NE(file, nullptr);
    EXPECT_TRUE(os::isRegularFile(file));
    fputs(word, file);
    fclose(file);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 6u);
  fclose(os::openFile(path, os::Access::kReplace));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

TEST(Files, AreTheSameOrNot) {
  const TemporaryFolder folder("files");
  fclose(os::openFile(folder / "one", os::Access::kReplace));
  fclose(os::openFile(folder / "two", os::Access::kReplace));
  EXPECT_TRUE(sameFile(folder / "one", folder / "one"));
  EXPECT_FALSE(sameFile(folder / "one", folder / "two"));
  EXPECT_FALSE(sameFile(folder / "one", folder / "none"));
  EXPECT_TRUE(isFile(folder / "one"));
  EXPECT_FALSE(isFile(folder.path().string()));
  EXPECT_FALSE(isFile(folder / "none"));
}

TEST(Environment, ShowsWhatIsSet) {
  const ScopedVariable variable("STRETTO_TEST_SHOWN", "a=b");
  const auto entries = os::environmentEntries();
  EXPECT_NE(std::find(entries.begin(), entries.end(), "STRETTO_TEST_SHOWN=a=b"), entries.end());
}

TEST(LoadedFiles, HoldThisProgram) {
  const std::string own = ownFile();
  ASSERT_FALSE(own.empty());
  const auto files = mappedFiles();
  const auto isOwn = [&](const std::string& one) { return sameFile(one, own); };
  EXPECT_TRUE(isFile(own)) << own;
  EXPECT_TRUE(std::any_of(files.begin(), files.end(), isOwn)) << own;
  EXPECT_FALSE(librarySearchPath().empty());
}

TEST(LoadedFiles, TellWhereCodeLies) {
  EXPECT_TRUE(sameFile(placeOfCode(reinterpret_cast<const void*>(&codeOfThisProgram)).file, ownFile()));
  EXPECT_EQ(placeOfCode(nullptr).file, "");
}

TEST(DynamicLibrary, ThatIsNotThereIsNamed) {
  std::string why;
  EXPECT_FALSE(DynamicLibrary::open("/nonexistent/libthing.so", &why).isOpen());
  EXPECT_NE(why.find("/nonexistent/libthing.so"), std::string::npos) << why;
  EXPECT_FALSE(DynamicLibrary::openLoaded("libnobodyhasthis.so").isOpen());
  EXPECT_EQ(DynamicLibrary().symbol("malloc"), nullptr);
}

TEST(DynamicLibrary, IsTheProgramToo) {
  std::string why;
  DynamicLibrary program = DynamicLibrary::program(&why);
  ASSERT_TRUE(program.isOpen()) << why;
  EXPECT_NE(program.symbol("malloc"), nullptr) << "of the C library that it was linked with";
  EXPECT_EQ(program.symbol("strettoNobodyHasThis"), nullptr);
  DynamicLibrary moved = std::move(program);
  EXPECT_TRUE(moved.isOpen());
  EXPECT_FALSE(program.isOpen());
  moved.close();
  EXPECT_FALSE(moved.isOpen());
}

TEST(Processes, ThatAreNotThereHaveNoStart) {
  EXPECT_EQ(startTimeOf(0x7ffffff0), 0u);
  EXPECT_NE(startTimeOf(static_cast<uint32_t>(os::processId())), 0u);
}

}  // namespace
}  // namespace stretto
