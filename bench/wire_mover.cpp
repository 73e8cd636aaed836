// wire_mover.cpp: see wire_mover.hpp.
#include "wire_mover.hpp"

#include <gnstor/simt/time.hpp>

#include "deengine.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gnstor::bench::wire_bench {
namespace {

constexpr std::uint64_t kStuckNs = 60'000'000'000;
constexpr std::uint64_t kEndNs = 1'000'000'000;  ///< for the end of a process to show
constexpr std::uint64_t kLookNs = 100'000'000;   // without a completion: does the other end still live?

/// One queue pair kept `depth` deep for a time; place i of both memories belongs to entry i.
class Mover {
  public:
    Mover(Pair& pair, const Work& work, Direction direction)
        : pair_(pair), work_(work), direction_(direction), began_at_(work.depth) {}

    Result<Repeat> run() {
        const std::uint64_t seed = work_.bytes;
        if (direction_ == Direction::kWrite)
            fill(pair_.here().memory(), seed);
        else
            GN_TRY(pair_.fill_there(seed));
        GN_ASSIGN(const double engine, pair_.engine_seconds());
        const double lanes = pair_.lane_seconds();
        const PacketCounts packets = pair_.packets();
        GN_TRY(move());
        Repeat r;
        r.seconds = seconds_;
        r.operations = latencies_.size();
        r.bytes = r.operations * work_.bytes;
        r.latency = summarize(std::move(latencies_));
        r.lane_cpu_seconds = pair_.lane_seconds() - lanes;
        GN_ASSIGN(const double engine_after, pair_.engine_seconds());
        r.engine_cpu_seconds = engine_after - engine;
        if (pair_.node_is_a_process()) {
            r.more["client_cpu_seconds"] = r.lane_cpu_seconds;
            r.more["node_cpu_seconds"] = r.engine_cpu_seconds;
        }
        if (pair_.has_packets()) {
            const PacketCounts now = pair_.packets();
            r.more["packets"] = static_cast<double>(now.sent - packets.sent);
            r.more["retransmissions"] = static_cast<double>(now.retransmissions - packets.retransmissions);
            r.more["receive_overruns"] = static_cast<double>(now.overruns);
            r.more["send_full"] = static_cast<double>(now.send_full - packets.send_full);
        }
        if (direction_ == Direction::kRead) {
            r.checked = count_good(pair_.here().memory(), seed, work_.bytes);
        } else {
            GN_ASSIGN(r.checked, pair_.count_good_there(seed, work_.bytes));
        }
        return r;
    }

  private:
    static Error ended(std::uint64_t under_way) {
        return error(Errc::kIo, "the node's process ended with {} operations under way", under_way);
    }
    /// The sockets of a process that ends are closed a moment before it can be seen to have ended.
    Error broken(const rdma::SendQueueRef& queue, std::uint64_t under_way) {
        const std::uint64_t until = simt::now_ns() + kEndNs;
        for (std::uint32_t backoff = 0; simt::now_ns() < until; simt::pause(backoff))
            if (!pair_.other_end_lives()) return ended(under_way);
        return error(Errc::kIo, "the queue pair failed with syndrome {:#x}",
                     static_cast<unsigned>(queue.syndrome()));
    }
    Result<void> move() {
        const rdma::SendQueueRef queue = pair_.here().queue();
        const std::uint64_t began = simt::now_ns();
        const auto end = began + static_cast<std::uint64_t>(work_.seconds * 1e9);
        std::uint64_t posted = queue.completed(), done = posted;
        std::uint64_t moved = began, looked = began, now = began;
        std::uint32_t backoff = 0;
        while (done < posted || now < end) {
            while (posted - done < work_.depth && now < end) GN_TRY(post(queue, posted++, now));
            queue.ring_bell();
            const std::uint64_t seen = queue.refresh_completed();
            now = simt::now_ns();
            if (queue.broken()) return broken(queue, posted - done);
            if (seen != done) {
                moved = now;
                backoff = 0;
            } else {
                simt::pause(backoff);  // the engines may need this very core
            }
            for (; done < seen; ++done)
                latencies_.push_back(static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(now - began_at_[done % work_.depth], ~0u)));
            if (now - std::max(moved, looked) > kLookNs) {
                if (!pair_.other_end_lives()) return ended(posted - done);
                looked = now;
            }
            if (now - moved > kStuckNs)
                return error(Errc::kTimedOut, "no operation completed for {} s", kStuckNs / 1'000'000'000);
        }
        seconds_ = static_cast<double>(now - began) * 1e-9;
        return {};
    }

    Result<void> post(const rdma::SendQueueRef& queue, std::uint64_t index, std::uint64_t now) {
        rdma::SendTicket ticket = queue.try_reserve();
        if (!ticket.granted())
            return error(Errc::kIo, "no free send entry although only {} operations may be in flight",
                         work_.depth);
        const std::size_t at = index % work_.depth * work_.bytes;
        if (direction_ == Direction::kWrite)
            queue.fill_write(ticket, pair_.there(at), pair_.here().local(at, work_.bytes));
        else
            queue.fill_read(ticket, pair_.there(at), pair_.here().local(at, work_.bytes));
        began_at_[index % work_.depth] = now;
        queue.publish(ticket);
        return {};
    }

    Pair& pair_;
    const Work work_;
    const Direction direction_;
    std::vector<std::uint64_t> began_at_;
    std::vector<std::uint32_t> latencies_;
    double seconds_ = 0;
};

}  // namespace

Result<Repeat> run_memcpy(const Work& work) {
    const std::size_t bytes = std::size_t{work.depth} * work.bytes;
    std::vector<std::byte> from(bytes, std::byte{1}), to(bytes);
    const double cpu = process_cpu_seconds();
    const deengine_bench::Stopwatch watch;
    std::uint64_t operations = 0;
    while (watch.seconds() < work.seconds)
        for (std::uint32_t i = 0; i < work.depth; ++i, ++operations) {
            std::memcpy(to.data() + std::size_t{i} * work.bytes, from.data() + std::size_t{i} * work.bytes,
                        work.bytes);
            deengine_bench::keep_value(to.data());
        }
    Repeat r = deengine_bench::repeat_of(watch.seconds(), operations, operations * work.bytes);
    r.engine_cpu_seconds = process_cpu_seconds() - cpu;
    return r;
}

Result<Repeat> run_on_wire(Pair::Plan plan, const Work& work, Direction direction) {
    plan.shape = {kEntriesLog2, std::uint64_t{work.depth} * work.bytes};
    GN_ASSIGN(const std::unique_ptr<Pair> pair, Pair::open(plan));
    GN_ASSIGN(const Repeat r, Mover(*pair, work, direction).run());
    const std::uint64_t touched = std::min<std::uint64_t>(work.depth, r.operations);
    if (r.checked != touched)
        return error(Errc::kCorrupt,
                     "only {} of {} places in the target memory hold the expected data, after {} operations",
                     r.checked, touched, r.operations);
    return r;
}

}  // namespace gnstor::bench::wire_bench
