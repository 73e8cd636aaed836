// alone_steps.hpp: one operation of a lone lane, step by step, with the time of each. Device code, CPU and
// GPU lanes.
//
// What gnor::run does for a request of one command, by the same functions in the same order, with a look at
// the clock between them. So the parts of a latency can be told in one run; the whole is measured by the
// synchronous call itself, without these looks (alone_job.hpp). On a GPU the clock is %globaltimer: 32 ns a
// tick, so a step's mean is good to a few ns only because operations do not begin in step with it.
#pragma once

#include <gnstor/client/client.hpp>

#include "path_jobs.hpp"

namespace gnstor::bench {

enum class AloneStep : std::uint32_t {
    kPrepare,  ///< the newest map's address, the write's sequence
    kBegin,    ///< arguments, keys of the buffer, placement, command slot
    kCredit,   ///< of each replica's queue pair
    kReserve,  ///< send entries, waiting for send completions included
    kFill,     ///< capsule and send entry
    kPublish,  ///< the entry is the queue's
    kBell,     ///< doorbell record and bell
    kWait,     ///< trips to the completion queue that brought nothing, and the pauses between them
    kArrival,  ///< the trip that brought the answer: completion, filing, receive posted again
    kEnd,      ///< result, slot freed
};
inline constexpr std::uint32_t kAloneSteps = 10;
inline constexpr const char* kAloneStepNames[kAloneSteps] = {"prepare", "begin", "credit", "reserve", "fill",
                                                             "publish", "bell",  "wait",   "arrival", "end"};

/// What the lone lane notes: sums, in its own memory.
struct AloneSums {
    std::uint64_t step_ns[kAloneSteps];
    std::uint64_t trips;  ///< to the completion queue
    std::uint64_t operations;
};

class AloneClock {
  public:
    GN_HD
    explicit AloneClock(AloneSums& sums) : sums_(sums), last_ns_(simt::now_ns()) {}
    GN_HD
    void charge(AloneStep step) {
        const std::uint64_t now = simt::now_ns();
        sums_.step_ns[static_cast<std::uint32_t>(step)] += now - last_ns_;
        last_ns_ = now;
    }

  private:
    AloneSums& sums_;
    std::uint64_t last_ns_;
};

/// Sends the command of `work` to all of its drives. False: a queue pair is broken, or no send entry came.
template <class State>
GN_HD bool post_stepwise(State& c, const gnor::Operation& op, gnor::LaneWork& work, AloneClock& clock,
                         Deadline deadline) {
    for (std::uint32_t replica = 0; replica < work.targets; ++replica) {
        gnor::QueueLane& queue = c.queue(c.slot(work.current).target[replica]);
        if (gnor::take_credits(c, queue, 1) != 1) return false;  // nobody else has any
        clock.charge(AloneStep::kCredit);
        const auto send = c.send_queue(c.slot(work.current).target[replica]);
        rdma::SendTicket ticket = send.try_reserve();
        std::uint32_t backoff = 0;
        while (ticket.outcome == rdma::SendOutcome::kFull && !deadline.passed()) {
            simt::pause(backoff);
            ticket = send.try_reserve();
        }
        if (!ticket.granted()) return false;
        clock.charge(AloneStep::kReserve);
        gnor::fill_entry(c, send, ticket, op.context, work.current, replica);
        clock.charge(AloneStep::kFill);
        send.publish(ticket);
        clock.charge(AloneStep::kPublish);
        send.ring_bell();
        clock.charge(AloneStep::kBell);
    }
    return true;
}

/// One request of one command, by one lane, into a registered buffer. Not retried: a refusal is the result.
template <class Channel>
GN_HD nvme::Status one_stepwise(simt::Lane lane, const VolumeRef& volume, Channel channel,
                                nvme::IoOpcode opcode, const IoRequest& request, AloneSums& sums,
                                Deadline deadline) {
    const auto me = simt::self(lane);
    auto& c = channel.state();
    AloneClock clock(sums);
    gnor::Cursor cursor = volume.cursor_for(opcode, &request, 1);
    cursor.must_be_registered = true;
    if (VolumeRef::changes(opcode)) cursor.sequence = volume.take_sequences(me, 1);
    const gnor::Operation op = volume.operation();
    clock.charge(AloneStep::kPrepare);
    gnor::LaneWork work;
    gnor::begin_next(me, c, op, cursor, work, 1, Channel::hint(me), false);
    clock.charge(AloneStep::kBegin);
    const std::uint32_t index = work.current;
    if (index == gnor::kNone) return nvme::ok(cursor.result) ? nvme::Status::kNotSent : cursor.result;
    if (!post_stepwise(c, op, work, clock, deadline)) {
        gnor::leave_slot(c, index);
        return nvme::Status::kTimedOut;
    }
    std::uint32_t backoff = 0;
    while (gnor::pending_of(gnor::load_control<Channel::State::kScope>(c.slot(index))) != 0) {
        const std::uint32_t arrived = gnor::poll_trip(me, c);
        ++sums.trips;
        if (arrived == 0) gnor::pause_between_trips<typename Channel::State>(backoff);
        clock.charge(arrived == 0 ? AloneStep::kWait : AloneStep::kArrival);
        if (arrived != 0 || !deadline.passed()) continue;
        gnor::leave_slot(c, index);
        return nvme::Status::kTimedOut;
    }
    const nvme::Status status = gnor::outcome_of<Channel::State::kScope>(c.slot(index));
    gnor::free_slot(c, index);
    gnor::count_commands(c, opcode, work.targets);
    clock.charge(AloneStep::kEnd);
    ++sums.operations;
    return status;
}

}  // namespace gnstor::bench
