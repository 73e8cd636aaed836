// gpu_fixture.hpp: what device tests of gnor begin with: skipped where no GPU is to be had, ended where they
// hang, and a rig whose lanes are the GPU's. Host threads. Compiled by nvcc.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "gnor/bench.hpp"

namespace gnstor::test {

inline constexpr simt::LanesKind kGpu = simt::LanesKind::kGpu;

/// The tool that watches this run (compute-sanitizer's, as `./run gpu-test` says), or "".
inline std::string tool() {
    const char* const name = std::getenv("GN_UNDER_TOOL");
    return name != nullptr ? name : "";
}
/// Under a tool that makes each access slow, so many times less does.
inline std::uint32_t scale() {
    return tool().empty() ? 1 : 16;
}

/// A thread beside a test, which is told when the test is over.
class Beside {
  public:
    using OverWithin = std::function<bool(std::chrono::seconds)>;  ///< waits so long at most
    explicit Beside(std::function<void(const OverWithin&)> work)
        : thread_([this, work = std::move(work)] { work([this](auto time) { return over_within(time); }); }) {
    }
    ~Beside() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    Beside(const Beside&) = delete;
    Beside& operator=(const Beside&) = delete;

  private:
    bool over_within(std::chrono::seconds time) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, time, [this] { return over_; });
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;  // the last: it uses the others
};

/// Ends the program when a test has not ended by itself: a kernel that hangs can be waited for by nobody, and
/// the end of its process ends it.
inline void end_when_hanging(const std::string& name, const Beside::OverWithin& over_within) {
    const auto patience = std::chrono::seconds(tool().empty() ? 150 : 240);
    if (over_within(patience)) return;
    std::fprintf(stderr, "%s has not ended after %lld s: the program ends here\n", name.c_str(),
                 static_cast<long long>(patience.count()));
    std::_Exit(124);
}

class OnGpu : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto usable = simt::check_lanes(kGpu);
        if (!usable.ok()) GTEST_SKIP() << usable.error().message;
    }

  private:
    const Beside watchdog_{
        [name = std::string(::testing::UnitTest::GetInstance()->current_test_info()->name())](
            const Beside::OverWithin& over_within) { end_when_hanging(name, over_within); }};
};

/// Says where a rig's channels stand while a kernel does not come to its end: twice in a row, so that one
/// sees what moves. For a Beside that lives while the kernel runs.
inline void describe_when_slow(const Rig& rig, const Beside::OverWithin& over_within) {
    for (const int seconds : {20, 2, 20, 2}) {
        if (over_within(std::chrono::seconds(seconds))) return;
        for (std::size_t i = 0; i < rig.channels.size(); ++i) {
            const auto text = rig.channels[i]->describe();
            std::fprintf(stderr, "channel %zu of a kernel that has not ended:\n%s", i,
                         text.ok() ? text.value().c_str() : text.error().message.c_str());
        }
    }
}

inline RigOptions gpu_options(std::uint32_t channels, std::uint32_t depth = 32, bool scatter = true) {
    RigOptions o = options_of(channels, depth, scatter);
    o.lanes = kGpu;
    return o;
}
inline RigOptions gpu_options(Sharing sharing, std::uint32_t channels, std::uint32_t depth = 8) {
    RigOptions o = gpu_options(channels, depth);
    o.sharing = sharing;
    return o;
}

/// Runs callbacks that are due, in a kernel of gpu_left.cu: of another module than other sources' kernels.
void poll_from_another_module(Bench& b);

}  // namespace gnstor::test
