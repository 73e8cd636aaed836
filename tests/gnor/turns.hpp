// turns.hpp: one lane's whole step in the middle of another's, at every place where they can meet.
//
// Nothing in a lane's steps waits, so another lane's step, or a look of the NIC, can be put before any one
// atomic of the first one's: at_every_atomic does that for all of them, one after the other. No threads, no
// chance. Only where atomics yield (GN_TEST_WARPS).
#pragma once

#if defined(GN_TEST_WARPS)
#include <gnstor/simt/yield.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "support/count.hpp"

namespace gnstor::test {

/// Calls `other` once, before the `at`-th atomic of this thread.
class InTheMiddle : public simt::YieldHook {
  public:
    InTheMiddle(std::uint32_t at, const std::function<void()>& other) : at_(at), other_(other) {
        simt::this_thread_yield_hook() = this;
    }
    ~InTheMiddle() override { simt::this_thread_yield_hook() = nullptr; }
    void on_atomic() override {
        if (inside_ || seen_++ != at_) return;
        inside_ = true;
        other_();
        inside_ = false;
        happened = true;
    }
    bool happened = false;

  private:
    const std::uint32_t at_;
    const std::function<void()>& other_;
    std::uint32_t seen_ = 0;
    bool inside_ = false;
};

/// Puts `other` before each atomic of `one` in turn, and behind the last; `begin` makes everything new
/// before, `end` looks at what came out.
inline void at_every_atomic(const std::function<void()>& begin, const std::function<void()>& one,
                            const std::function<void()>& other, const std::function<void()>& end) {
    std::uint64_t places = 0;
    for (bool more = true; more;) {
        begin();
        {
            InTheMiddle hook(static_cast<std::uint32_t>(places), other);
            one();
            more = hook.happened;
        }
        if (!more) other();  // behind the last one
        end();
        if (::testing::Test::HasFailure()) {
            ADD_FAILURE() << "failure with the other lane interleaved before atomic operation " << places;
            return;
        }
        ++places;
    }
    EXPECT_GT(places, 1u) << "the two lanes never interleaved, so the test covers nothing";
    count("gnor_places_of_meeting", places);
}

}  // namespace gnstor::test
#endif
