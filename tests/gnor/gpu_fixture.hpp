// gpu_fixture.hpp: what device tests of gnor begin with: skipped where no GPU is to be had, ended where they
// hang, and a rig whose lanes are the GPU's. Host threads. Compiled by nvcc.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

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

/// Ends the program when a test has not ended by itself: a kernel that hangs can be waited for by nobody, and
/// the end of its process ends it.
class Watchdog {
  public:
    Watchdog() : thread_([this] { watch(); }) {}
    ~Watchdog() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

  private:
    void watch() {
        std::unique_lock lock(mutex_);
        const auto patience = std::chrono::seconds(tool().empty() ? 150 : 240);
        if (changed_.wait_for(lock, patience, [this] { return over_; })) return;
        std::fprintf(stderr, "%s has not ended after %lld s: the program ends here\n", name_.c_str(),
                     static_cast<long long>(patience.count()));
        std::_Exit(124);
    }
    const std::string name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;  // the last: it uses the others
};

class OnGpu : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto usable = simt::check_lanes(kGpu);
        if (!usable.ok()) GTEST_SKIP() << usable.error().message;
    }

  private:
    Watchdog watchdog_;
};

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
