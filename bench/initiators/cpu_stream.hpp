// cpu_stream.hpp: one client's stream of requests, driven by a CPU thread: what a conventional initiator does
// with each request, and how long each stage takes. Host; one thread.
//
// A read: post, wait for the answer, [copy to the lanes' memory,] tell the lanes, wait until they took it.
// A write: ask the lanes for the data, wait, [copy from the lanes' memory,] post, wait for the answer, tell
// the lanes.
//
// In a closed loop the lanes take latencies (mailbox.hpp); it decides on a flight's next request where the
// last one ended, so the thread draws it for them. In an open loop the thread takes them by its own clock, as
// it is the one that knows when a request was meant to be sent: a read ends when the lanes have taken it
// (compared, where that is asked for: so it does where lanes initiate, load_job.hpp), a write with the
// array's answer.
//
// Invariants
//   * a flight is in one stage at a time, and its buffers belong to that stage;
//   * a mailbox's `taken` rises in the order in which flights were put in it;
//   * a flight has one mailbox, so that one warp sees both its begin and its end.
#pragma once

#include "bench/initiators/load_lanes.hpp"
#include "bench/initiators/port.hpp"
#include "bench/initiators/stage_timer.hpp"

#include <array>
#include <deque>
#include <span>
#include <vector>

namespace gnstor::bench {

/// What a stream works with; all of it outlives the stream.
struct StreamParts {
    Port* port = nullptr;
    Copier* copier = nullptr;           ///< null: lanes use the buffers where data lands
    std::byte* landing = nullptr;       ///< host memory: `depth` buffers of `stride` bytes
    std::byte* lane_buffers = nullptr;  ///< the same buffers, or those copied to, as lanes see them
    std::size_t stride = 0;
    std::uint32_t depth = 1;  ///< requests in flight
    std::span<Mailbox> mailboxes;
    std::uint32_t* written = nullptr;       ///< the client's bitmap
    std::uint64_t member = 0, members = 1;  ///< among the client's streams
    std::uint64_t rank = 0;                 ///< among all streams
};

/// Sums over requests, waiting included; divide by `count`.
struct StageTimes {
    std::uint64_t array_ns = 0, array_count = 0;  ///< from posting to the answer
    std::uint64_t copy_ns = 0, copy_count = 0;    ///< from beginning the copy to knowing that it is done
    std::uint64_t handover_ns = 0, handover_count = 0;  ///< from the mailbox to its being taken
};

class CpuStream {
  public:
    CpuStream(const StreamParts& parts, const Load& load, const Plan& plan);
    void begin();
    /// Does what there is to do. False: nothing was.
    bool step();
    [[nodiscard]] bool done() const { return done_; }
    void end();

    [[nodiscard]] const StageTimes& times() const { return times_; }
    /// Adds what the thread did for this stream, in seconds of its time.
    void add_work(StageSums& seconds) const { timer_.add_to(seconds); }
    [[nodiscard]] std::uint64_t reads() const { return reads_; }

  private:
    enum class FlightStage : std::uint8_t { kEmpty, kToPost, kPosted, kCopying, kMailed };
    struct Flight {
        Drawn drawn{};
        FlightStage stage = FlightStage::kEmpty;
        std::uint64_t stage_ns = 0;     ///< begin of the stage
        std::uint64_t intended_ns = 0;  ///< open loop: when it was meant to be sent
        bool owes_word = false;         ///< a write that the lanes do not know to be done
    };

    bool take_mail();
    bool take_copies();
    bool take_answers();
    bool start_fresh();
    bool post_ready();
    void mail(std::uint32_t flight, Errand errand, bool finishes);
    void put(std::uint32_t flight, Errand errand, bool finishes);
    void copy(std::uint32_t flight);
    void finish(std::uint32_t flight, nvme::Status status);
    void give_up();
    [[nodiscard]] std::byte* landing(std::uint32_t flight) const {
        return parts_.landing + flight * parts_.stride;
    }
    [[nodiscard]] std::byte* lane_buffer(std::uint32_t flight) const {
        return parts_.lane_buffers + flight * parts_.stride;
    }
    [[nodiscard]] Request request_of(std::uint32_t flight) const;

    const StreamParts parts_;
    const Load load_;
    Recorder recorder_;
    Draw draw_;
    std::vector<Flight> flights_;
    std::vector<std::uint16_t> empty_;
    std::deque<std::uint16_t> to_post_;
    struct Box {
        std::uint64_t posted = 0, taken = 0;
        std::array<std::uint16_t, Mailbox::kEntries> flights{};
    };
    std::vector<Box> boxes_;
    std::uint64_t now_ns_ = 0;
    std::uint64_t idle_since_ns_ = 0;
    std::uint64_t reads_ = 0;
    StageTimes times_;
    StageTimer timer_;
    bool done_ = false;
};

}  // namespace gnstor::bench
