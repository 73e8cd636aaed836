// private_file_test.cpp: secrets are read, and folders used, only where no other user could have put something.
#include <gnstor/base/private_file.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace gnstor {
namespace {

namespace fs = std::filesystem;

constexpr PrivateFileWords kWords{"key", "make a new key"};
constexpr uid_t kOther = 65534;

class PrivateFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string name = "/tmp/gnstor-private-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        root = name;
        ::umask(022);
    }
    void TearDown() override { fs::remove_all(root); }
    [[nodiscard]] fs::path file(const char* name, mode_t mode = 0600) const {
        const fs::path path = root / name;
        std::ofstream(path) << "secret";
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }
    static Errc refused(const fs::path& path) {
        const Result<std::string> text = read_private_file(path, 100, kWords);
        return text.ok() ? Errc::kInternal : text.error().code;
    }
    [[nodiscard]] static mode_t mode_of(const fs::path& path) {
        struct stat info {};
        EXPECT_EQ(::stat(path.c_str(), &info), 0);
        return info.st_mode & 07777u;
    }
    fs::path root;
};

TEST_F(PrivateFileTest, IsReadIfItIsOurOwnAndNobodyElseMayAccessIt) {
    EXPECT_EQ(read_private_file(file("good"), 100, kWords).value(), "secret");
    EXPECT_EQ(refused(file("group", 0640)), Errc::kPermission);
    EXPECT_EQ(refused(file("others", 0604)), Errc::kPermission);
    EXPECT_EQ(refused(root / "absent"), Errc::kNotFound);
    EXPECT_EQ(refused(root), Errc::kInvalidArgument);
}

TEST_F(PrivateFileTest, OfAnotherUserIsRefusedAlsoThroughALink) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
    const fs::path path = file("planted");
    ASSERT_EQ(::chown(path.c_str(), kOther, kOther), 0);
    EXPECT_EQ(refused(path), Errc::kPermission);
    fs::create_symlink(path, root / "link");
    EXPECT_EQ(refused(root / "link"), Errc::kPermission);
}

TEST_F(PrivateFileTest, AFolderIsMadeWithItsParentsAndOthersCannotListIt) {
    const fs::path folder = root / "a" / "b";
    ASSERT_TRUE(make_private_folder(folder).ok());
    EXPECT_EQ(mode_of(folder), 0711u);
    EXPECT_TRUE(make_private_folder(folder).ok()) << "that it exists is no reason to refuse it";
    ASSERT_TRUE(make_private_folder(root / "c" / "").ok());
    EXPECT_EQ(mode_of(root / "c"), 0711u) << "written with a slash behind it";
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
    EXPECT_TRUE(make_private_folder(folder).ok());
    EXPECT_EQ(mode_of(folder), 0755u) << "the mode that its owner chose is kept";
    EXPECT_EQ(make_private_folder(file("file")).error().code, Errc::kIo);
}

TEST_F(PrivateFileTest, AFolderInWhichOthersMayPutFilesIsRefused) {
    const fs::path folder = root / "open";
    ASSERT_TRUE(fs::create_directory(folder));
    ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
    EXPECT_EQ(make_private_folder(folder).error().code, Errc::kPermission);
    if (::geteuid() != 0) return;
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
    ASSERT_EQ(::chown(folder.c_str(), kOther, kOther), 0);
    EXPECT_EQ(make_private_folder(folder).error().code, Errc::kPermission) << "its owner may";
}

}  // namespace
}  // namespace gnstor
