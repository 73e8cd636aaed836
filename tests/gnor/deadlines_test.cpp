// deadlines_test.cpp: every call that waits ends at its deadline, though nobody answers. A call that does not
// is noticed by the processor time that it spins away, and then let go, so that the test ends too.
#include <gtest/gtest.h>

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <functional>
#include <thread>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

/// Watches the calling thread, and lets it go by `end` once it has used up ten seconds of processor time.
/// What ends at a deadline of 100 ms uses a hundredth of that, on a busy machine too: a thread that is not
/// run uses none, but for what a virtual machine counts while it stands still itself.
class SpinsForEver {
  public:
    explicit SpinsForEver(std::function<void()> end) : end_(std::move(end)) {
        pthread_getcpuclockid(pthread_self(), &clock_);
        until_ns_ = used_ns() + 10 * kSecond;
        thread_ = std::thread([this] { watch(); });
    }
    /// Whether it had to be let go. By the thread that is watched.
    bool over() {
        over_.store(true);
        thread_.join();
        return noticed_;
    }

  private:
    std::uint64_t used_ns() const {
        timespec t{};
        clock_gettime(clock_, &t);
        return static_cast<std::uint64_t>(t.tv_sec) * kSecond + static_cast<std::uint64_t>(t.tv_nsec);
    }
    void watch() {
        while (!over_.load()) {
            if (!noticed_ && used_ns() >= until_ns_) {
                noticed_ = true;
                end_();
            }
            std::this_thread::yield();
        }
    }
    std::function<void()> end_;
    clockid_t clock_{};
    std::uint64_t until_ns_ = 0;
    std::atomic<bool> over_{false};
    bool noticed_ = false;  // the watcher's, until it is joined
    std::thread thread_;
};

class Deadlines : public ::testing::Test {
  protected:
    void silence(bool on) {
        const auto kind = on ? Decision::kNever : Decision::kServe;
        for (auto& d : rig.drives)
            d->set_rule([kind](const auto&, const auto&) { return Decision{kind, {}, 0}; });
    }
    void answer_all() {
        silence(false);
        for (auto& d : rig.drives) d->answer_kept();
    }
    /// `call` ends by itself with kTimedOut or, where nothing of it is under way, kNotSent.
    template <class Call>
    void expect_end(const char* what, Call call) {
        if (HasFailure()) return;  // each costs its second
        silence(true);
        SpinsForEver spins([this] { answer_all(); });
        const Status status = call();
        EXPECT_FALSE(spins.over()) << what << " does not end at its deadline";
        EXPECT_TRUE(status == Status::kTimedOut || status == Status::kNotSent) << what;
        const Deadline end = late();
        do answer_all();  // one may have been on its way
        while (!rig.channels[0]->quiesce(soon()).ok() && !end.passed());
    }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::vector<std::byte> data = std::vector<std::byte>(64 * 4096);
};

TEST_F(Deadlines, EndAWaitForAToken) {
    void* const buffer = ch.alloc(kMe, 64 * 4096);
    for (const std::uint32_t blocks : {1u, 64u}) {
        expect_end("wait", [&] {
            const Token token = v.read_async(simt::Lane{}, ch, 0, blocks, buffer, late());
            EXPECT_TRUE(token.in_flight());
            return ch.wait(kMe, token, soon());
        });
        expect_end("wait with a deadline that has passed", [&] {
            const Token token = v.write_async(simt::Lane{}, ch, 0, blocks, buffer, late());
            EXPECT_TRUE(token.in_flight());
            return ch.wait(kMe, token, Deadline{0});
        });
    }
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Deadlines, EndEveryKindOfCall) {
    expect_end("read", [&] { return v.read(kMe, ch, 0, 40, data.data(), soon()); });
    expect_end("write", [&] { return v.write(kMe, ch, 0, 40, data.data(), soon()); });
    expect_end("read_sectors", [&] { return v.read_sectors(kMe, ch, 0, 1, 2, data.data(), soon()); });
    expect_end("trim", [&] { return v.trim(kMe, ch, 0, 40, soon()); });
    expect_end("write_zeroes", [&] { return v.write_zeroes(kMe, ch, 0, 40, soon()); });
    expect_end("flush", [&] { return v.flush(kMe, ch, soon()); });
    IoRequest requests[4];
    for (std::uint32_t i = 0; i < 4; ++i) requests[i] = IoRequest{i * 64, 1, data.data() + i * 4096, 0, 0};
    expect_end("read_many", [&] { return v.read_many(kMe, ch, requests, 4, nullptr, soon()); });
    expect_end("write_many", [&] { return v.write_many(kMe, ch, requests, 4, nullptr, soon()); });
    rig.expect_clean();
}

TEST_F(Deadlines, EndAnAsynchronousCallThatWaitsForCredits) {
    void* const buffer = ch.alloc(kMe, 4096);
    expect_end("read_async", [&] {
        // As many as a drive's queue takes, and one more.
        for (std::uint32_t i = 0; i < rig.options.depth; ++i) {
            const Token token = v.read_async(simt::Lane{}, ch, 0, 1, buffer, late());
            EXPECT_TRUE(token.in_flight());
            EXPECT_EQ(ch.drop(token), Status::kSuccess);
        }
        const Token token = v.read_async(simt::Lane{}, ch, 0, 1, buffer, soon());
        EXPECT_FALSE(token.in_flight());
        return token.status;
    });
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Deadlines, EndAnAllocationThatWaits) {
    std::vector<void*> all;
    while (void* at = ch.alloc(kMe, 1u << 20)) all.push_back(at);
    SpinsForEver spins([&] { EXPECT_EQ(ch.free(kMe, all.back()), Status::kSuccess); });
    auto status = Status::kSuccess;
    void* const got = ch.alloc(kMe, 4096, soon(), &status);
    ASSERT_FALSE(spins.over()) << "alloc does not end at its deadline";
    EXPECT_EQ(got, nullptr);
    EXPECT_EQ(status, Status::kNoBuffer);
    // A call that needs a pool buffer ends likewise, and says which.
    SpinsForEver again([&] { EXPECT_EQ(ch.free(kMe, all.back()), Status::kSuccess); });
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), soon()), Status::kNoBuffer);
    ASSERT_FALSE(again.over()) << "read does not end at its deadline";
    for (void* at : all) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
