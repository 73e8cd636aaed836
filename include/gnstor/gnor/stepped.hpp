// stepped.hpp: a request that one lane carries out in steps, between other work. CPU and GPU lanes; nothing
// here waits.
//
// run() (operation.hpp) occupies a lane until its request has ended. A lane that serves many requesters keeps
// one SteppedRequest for each: step() does what can be done now, in the order and by the rules of run()
// (resources, retries, other replicas, deadline), and the lane polls the completion queue for all of them. A
// request that waits for a resource holds none that comes later in the order (operation.hpp), so requests of
// one lane never deadlock.
// Invariants
//   * the memory that the cursor points to stays valid from begin() until done();
//   * memory that is not registered is accessed within step() only: never after the last one.
// One lane at a time; another lane may take over between steps if it synchronizes with the one before.
#pragma once

#include <gnstor/gnor/detail/paths/operation.hpp>

namespace gnstor::gnor {

template <class State>
class SteppedRequest {
  public:
    /// Starts the requests of `cursor`, which end by `deadline`.
    GN_HD
    void begin(const Operation& op, const Cursor& cursor, simt::Deadline deadline) {
        op_ = op;
        cursor_ = cursor;
        work_ = LaneWork{};
        deadline_ = deadline;
        window_ = kFewLanesWindow;
        done_ = false;
    }

    /// Maximum of its commands in flight from now on; at first kFewLanesWindow.
    GN_HD
    void set_window(std::uint32_t commands) { window_ = commands; }

    /// Does what can be done at `now_ns` (simt::now_ns()); returns whether there was anything. Not after
    /// done().
    GN_HD
    bool step(State& c, std::uint32_t hint, std::uint64_t now_ns) {
        return step_until(c, hint, now_ns >= deadline_.at_ns);
    }

    /// Ends the request as its deadline would: commands that were sent go into quarantine.
    GN_HD
    void give_up(State& c, std::uint32_t hint) {
        while (!done_) step_until(c, hint, true);
    }

    GN_HD
    bool done() const { return done_; }
    /// Valid once done().
    GN_HD
    nvme::Status result() const { return cursor_.result; }
    /// Valid once done(): whether replicas may differ because of a failed change (resolved.hpp).
    GN_HD
    bool in_doubt() const { return !nvme::ok(cursor_.result) && cursor_.in_doubt; }

  private:
    GN_HD
    bool step_until(State& c, std::uint32_t hint, bool expired) {
        const auto me = simt::self(simt::Lane{});
        bool progress = reap_head(me, c, op_, cursor_, work_, expired);
        const bool had = work_.current != kNone;
        begin_next(me, c, op_, cursor_, work_, window_, hint, expired);
        const bool begun = !had && work_.current != kNone;
        progress = post_current(me, c, op_, cursor_, work_, begun, expired) || progress;
        if (work_.busy()) return progress || begun;
        count_commands(c, cursor_.opcode, work_.sent);
        c.count(&Counters::timeouts, work_.timeouts);
        c.count(&Counters::bounce_bytes, work_.bounced);
        done_ = true;
        return true;
    }

    Operation op_{};
    Cursor cursor_{};
    LaneWork work_{};
    simt::Deadline deadline_{0};
    std::uint32_t window_ = kFewLanesWindow;
    bool done_ = true;
};

}  // namespace gnstor::gnor
