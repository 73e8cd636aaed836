// io_ring_test.cpp: a ring whose kernel is short of memory for a while loses no operation, and whoever only
// looks for what has ended is not left to look for ever.
//
// Stands between the program and liburing: io_uring_submit is this file's, which refuses when it is told to.
// One thread.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "scratch.hpp"
#include "ssd/flash/direct/aligned_buffer.hpp"
#include "ssd/flash/direct/io_queue.hpp"
#include "ssd/flash/file/posix_file.hpp"

namespace {
int refusals = 0;  // so many of the next calls take nothing
int refusal = 0;   // and say this
std::uint64_t refused = 0;
}  // namespace

extern "C" int io_uring_submit(struct io_uring* ring) {
    if (refusals > 0) {
        --refusals;
        ++refused;
        return refusal;
    }
    static const auto real =
        reinterpret_cast<int (*)(struct io_uring*)>(::dlsym(RTLD_NEXT, "io_uring_submit"));
    return real(ring);
}

namespace gnstor::ssd {
namespace {

struct Ring {
    Ring() : file(::open((scratch / "f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
        auto opened = open_io_ring(file.get(), 8);
        if (opened.ok()) queue = std::move(opened.value());
    }
    /// Looks, and does nothing else, until something has ended.
    std::optional<IoQueue::Done> look() {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        IoQueue::Done done{};
        while (std::chrono::steady_clock::now() < deadline)
            if (queue->reap(done)) return done;
        return std::nullopt;
    }
    testing::Scratch scratch;
    FileDescriptor file;
    std::unique_ptr<IoQueue> queue;
};

TEST(IoRing, RequestsNotSubmittedAtOnceAreSubmittedWhilePollingForCompletions) {
    for (const int why : {-EAGAIN, -EBUSY, -EINTR}) {
        Ring ring;
        ASSERT_NE(ring.queue, nullptr) << "no io_uring on this machine";
        AlignedBuffer page(4096);
        refusal = why;
        refusals = 3;
        ring.queue->write(page.data(), 4096, 0, 7);
        EXPECT_TRUE(ring.queue->submit()) << "it is only late";
        const auto done = ring.look();
        ASSERT_TRUE(done.has_value()) << "never handed over, error " << why;
        EXPECT_EQ(done->token, 7u);
        EXPECT_EQ(done->result, 4096);
        EXPECT_EQ(refusals, 0);
        ring.queue->sync(8);
        EXPECT_TRUE(ring.queue->submit());
        const auto synced = ring.look();
        ASSERT_TRUE(synced.has_value());
        EXPECT_EQ(synced->result, 0);
    }
    EXPECT_EQ(refused, 9u);
    std::printf("GN_COUNT ssd_ring_refusals=%llu\n", static_cast<unsigned long long>(refused));
}

TEST(IoRing, APermanentSubmissionErrorIsReturnedToTheSender) {
    Ring ring;
    ASSERT_NE(ring.queue, nullptr) << "no io_uring on this machine";
    AlignedBuffer page(4096);
    refusal = -EBADFD;
    refusals = 1;
    ring.queue->write(page.data(), 4096, 0, 7);
    EXPECT_FALSE(ring.queue->submit());
    EXPECT_TRUE(ring.queue->submit());
    EXPECT_TRUE(ring.look().has_value());
}

}  // namespace
}  // namespace gnstor::ssd
