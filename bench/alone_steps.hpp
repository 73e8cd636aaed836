// alone_steps.hpp: one operation of a single lane, step by step, with the time of each. Device code, CPU and
// GPU lanes.
//
// The fast path itself (gnor/detail/paths/single_lane.hpp), which says after each step what it has done; a
// clock is looked at there. So the parts of a latency can be told in one run; the whole is measured by the
// synchronous call itself, without these looks (alone_job.hpp). On a GPU the clock is %globaltimer: 32 ns a
// tick, so a step's mean is good to a few ns only because operations do not begin in step with it.
#pragma once

#include <gnstor/client/client.hpp>

#include "path_jobs.hpp"

namespace gnstor::bench {

enum class AloneStep : std::uint32_t {
    kPrepare,  ///< the newest map's address, the write's sequence
    kChoose,   ///< arguments, drives, keys of the buffer, command slot
    kFill,     ///< capsules and send entries
    kRecord,   ///< a fence and the records
    kBell,     ///< a fence and the bells
    kWait,     ///< looks at the completion queue that brought nothing
    kArrival,  ///< the look that brought an answer, which is consumed
    kEnd,      ///< slot and counters
};
inline constexpr std::uint32_t kAloneSteps = 8;
inline constexpr const char* kAloneStepNames[kAloneSteps] = {"prepare", "choose", "fill",    "record",
                                                             "bell",    "wait",   "arrival", "end"};

/// What the single lane notes: sums, in its own memory.
struct AloneSums {
    std::uint64_t step_ns[kAloneSteps];
    std::uint64_t trips;  ///< looks at the completion queue
    std::uint64_t operations;
    std::uint64_t total_ns;  ///< of the same operations, as their latency is taken
    std::uint64_t others;    ///< that left the fast path: in no sum
    /// Of an operation that took the fast path; total_ns is added by who takes its latency.
    GN_HD
    void add(const AloneSums& more) {
        for (std::uint32_t i = 0; i < kAloneSteps; ++i) step_ns[i] += more.step_ns[i];
        trips += more.trips;
        operations += more.operations;
    }
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

/// Charges what the fast path says that it has done.
struct AloneProbe {
    AloneClock& clock;
    AloneSums& sums;
    GN_HD
    void operator()(gnor::SingleLaneStep step) const {
        constexpr AloneStep kSteps[] = {AloneStep::kChoose, AloneStep::kFill, AloneStep::kRecord,
                                        AloneStep::kBell,   AloneStep::kWait, AloneStep::kArrival};
        if (step == gnor::SingleLaneStep::kLooked || step == gnor::SingleLaneStep::kArrived) ++sums.trips;
        clock.charge(kSteps[static_cast<std::uint32_t>(step)]);
    }
};

/// One request of one command, by one lane, into a registered buffer.
template <class Channel>
GN_HD nvme::Status one_stepwise(simt::Lane lane, const VolumeRef& volume, Channel channel,
                                nvme::IoOpcode opcode, const IoRequest& request, AloneSums& sums,
                                Deadline deadline) {
    const auto me = simt::self(lane);
    AloneSums own{};
    AloneClock clock(own);
    gnor::OneCommand command{.opcode = opcode,
                             .first_sector = request.first_sector,
                             .sectors = request.sectors,
                             .block = request.block,
                             .blocks = request.blocks,
                             .address = reinterpret_cast<std::uint64_t>(request.buffer),
                             .sequence = 0};
    if (VolumeRef::changes(opcode)) command.sequence = volume.take_sequences(me, 1);
    gnor::Operation op = volume.operation();
    clock.charge(AloneStep::kPrepare);
    std::uint32_t index = gnor::kNone;
    auto& c = channel.state();
    const AloneProbe probe{clock, own};
    const auto end =
        opcode == nvme::IoOpcode::kRead
            ? gnor::try_single_lane<1>(c, op, command, deadline, index, probe)
            : gnor::try_single_lane<gnor::kSingleLaneReplicas>(c, op, command, deadline, index, probe);
    clock.charge(AloneStep::kEnd);
    if (end == gnor::SingleLaneOutcome::kDone) {
        own.operations = 1;
        sums.add(own);
        return nvme::Status::kSuccess;
    }
    ++sums.others;
    gnor::Cursor cursor = volume.cursor_for(opcode, &request, 1);
    cursor.sequence = command.sequence;
    gnor::LaneWork work;
    if (end == gnor::SingleLaneOutcome::kUnderWay) work.adopt(index);
    return gnor::run_to_completion(me, c, op, cursor, work, Channel::hint(me), deadline);
}

}  // namespace gnstor::bench
