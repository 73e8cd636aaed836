// A store's descriptor is never a standard one.
#include "ssd/flash/file/posix_file.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

namespace gnstor::ssd {
namespace {

TEST(PosixFile, AStoreNeverGetsAStandardDescriptor) {
    const FileDescriptor kept(::dup(STDIN_FILENO));
    ASSERT_GE(kept.get(), 0) << errno_text();
    ::close(STDIN_FILENO);
    const int lowest = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_EQ(lowest, STDIN_FILENO);
    const FileDescriptor moved(above_standard(lowest));
    EXPECT_GT(moved.get(), STDERR_FILENO);
    EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1) << "the standard descriptor must be closed again";
    EXPECT_NE(::fcntl(moved.get(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_EQ(::dup2(kept.get(), STDIN_FILENO), STDIN_FILENO);
    EXPECT_EQ(above_standard(kept.get()), kept.get());
    EXPECT_EQ(above_standard(-1), -1);
}

}  // namespace
}  // namespace gnstor::ssd
