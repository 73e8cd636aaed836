// stepped.hpp: a request that one lane carries out in steps, between other things. CPU and GPU lanes; nothing
// here waits.
//
// run() (operation.hpp) has a lane to itself until its request has ended. A lane that serves many requesters
// keeps a SteppedRequest for each: step() does what can be done for it now, in the order and by the rules of
// run() (resources, retries, other replicas, deadline), and the lane makes the trips to the completion queue
// for all of them. What waits for resources holds no later ones (operation.hpp), so requests of one lane
// never wait for each other for ever. Invariants
//   * between begin() and the step() that says it is done, the request's cursor, and what that points at,
//     stay;
//   * memory that is not registered is touched within step() alone: after the last one nobody does.
// One lane; from step to step it may be another one that was synchronized with.
#pragma once

#include <gnstor/gnor/operation.hpp>

namespace gnstor::gnor {

template <class State>
class SteppedRequest {
  public:
    /// The lane goes on with what `cursor` names, until `deadline`.
    GN_HD
    void begin(const Operation& op, const Cursor& cursor, simt::Deadline deadline) {
        op_ = op;
        cursor_ = cursor;
        work_ = LaneWork{};
        deadline_ = deadline;
        window_ = kLoneWindow;
        done_ = false;
    }

    /// From now on up to so many of its commands are under way; until then kLoneWindow.
    GN_HD
    void set_window(std::uint32_t commands) { window_ = commands; }

    /// Does what can be done now (simt::now_ns()); whether that was anything. Not once it is done().
    GN_HD
    bool step(State& c, std::uint32_t hint, std::uint64_t now_ns) {
        return step_until(c, hint, now_ns >= deadline_.at_ns);
    }

    /// Ends the wait, as the deadline does: what was sent goes into quarantine.
    GN_HD
    void give_up(State& c, std::uint32_t hint) {
        while (!done_) step_until(c, hint, true);
    }

    GN_HD
    bool done() const { return done_; }
    /// Once it is done.
    GN_HD
    nvme::Status result() const { return cursor_.result; }
    /// Likewise: of a change that did not work, whether replicas may differ by it (resolved.hpp).
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
    std::uint32_t window_ = kLoneWindow;
    bool done_ = true;
};

}  // namespace gnstor::gnor
