// path_jobs.hpp: the kernels of `bench path` that use the array. Device code, CPU and GPU lanes.
//
// PathJob: each lane keeps `depth` reads or writes of random blocks in flight, by the batch steps of
// gnor/batch.hpp, each step a warp's work. FillJob and CheckJob write and read the whole working set in
// order, outside the measured time. A lane works with registered buffers of its channel's pool.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/gnor/batch.hpp>

#include "contents.hpp"
#include "recorder.hpp"

namespace gnstor::bench {

inline constexpr std::uint64_t kStallNs = 20'000'000'000;  ///< nothing came back for so long: give up
inline constexpr std::uint32_t kGpuBlockThreads = 128;
inline constexpr std::uint32_t kGpuDepthMax = 4;
inline constexpr std::uint32_t kCpuDepthMax = 64;
inline constexpr std::uint32_t kPieceBlocks = 64;  ///< 256 KiB: what Fill and Check move at once

#if GN_DEVICE_PASS
inline constexpr std::uint32_t kDepthMax = kGpuDepthMax;
using LaneBatch = Batch<kGpuBlockThreads>;
#else
inline constexpr std::uint32_t kDepthMax = kCpuDepthMax;
using LaneBatch = Batch<32>;
#endif

/// One lane's part of PathJob. All lanes of the warp do the same steps.
template <class Group>
class PathLane {
  public:
    GN_HD
    PathLane(const Plan& plan, const VolumeRef& volume, ChannelRef channel, std::uint32_t* written,
             Group group, simt::Lane lane, LaneBatch* batches)
        : plan_(plan),
          volume_(volume),
          channel_(channel),
          written_(written),
          group_(group),
          lane_(lane),
          batches_(batches),
          recorder_(plan, lane.grid_rank()),
          asks_(group.rank() < plan.lanes_a_warp) {}

    GN_HD
    void run() {
        recorder_.begin();
        for (std::uint32_t d = 0; d < plan_.depth; ++d) batches_[d].init(group_, lane_);
        take_buffers();
        work();
        give_buffers_back();
        recorder_.end();
    }

  private:
    enum class State : std::uint32_t { kEmpty, kDrawn, kFlying };
    struct Flight {
        std::uint64_t begin_ns = 0;
        std::uint64_t intended_ns = 0;  ///< open loop: when it was meant to be sent
        std::uint64_t offset = 0;
        void* buffer = nullptr;
        State state = State::kEmpty;
    };

    GN_HD
    void take_buffers() {
        for (std::uint32_t d = 0; asks_ && d < plan_.depth; ++d) {
            auto status = nvme::Status::kSuccess;
            flights_[d].buffer = channel_.alloc(simt::self(lane_), plan_.bytes, &status);
            if (flights_[d].buffer == nullptr) recorder_.failure(status, 0);
        }
        group_.sync();
    }
    GN_HD
    void give_buffers_back() {
        for (std::uint32_t d = 0; d < plan_.depth; ++d) {
            if (flights_[d].buffer == nullptr || flights_[d].state == State::kFlying) continue;
            const nvme::Status freed = channel_.free(simt::self(lane_), flights_[d].buffer);
            if (!nvme::ok(freed)) recorder_.failure(freed, 0);
        }
    }

    GN_HD
    void work() {
        std::uint32_t backoff = 0;
        std::uint64_t idle_since = 0;
        for (;;) {
            const std::uint64_t now = simt::now_ns();
            const bool more = asks_ && recorder_.wants_more(now);
            bool progress = false;
            for (std::uint32_t d = 0; d < plan_.depth; ++d) progress = send(d, more, now) || progress;
            if (!group_.any(more || in_flight_ != 0)) return;
            batches_[0].poll(group_, channel_);
            for (std::uint32_t d = 0; d < plan_.depth; ++d) progress = finish(d) || progress;
            if (group_.any(progress)) {
                if (idle_since != 0) recorder_.waited(now - idle_since);
                idle_since = 0;
                backoff = 0;
                continue;
            }
            if (idle_since == 0) idle_since = now;
            // In an open loop there may be nothing to wait for. What was drawn and finds no room waits, too.
            const bool waits = in_flight_ != 0 || (more && recorder_.due(now));
            if (group_.any(waits && now - idle_since > kStallNs)) return give_up();
            simt::pause(backoff);
        }
    }

    GN_HD
    void give_up() {
        for (std::uint32_t d = 0; d < plan_.depth; ++d) {
            if (flights_[d].state != State::kEmpty)
                recorder_.failure(nvme::Status::kTimedOut, flights_[d].offset);
            batches_[d].abandon(group_, lane_, channel_);
        }
    }

    /// Sends flight `d` of each member that has none under way and wants more.
    GN_HD
    bool send(std::uint32_t d, bool more, std::uint64_t now) {
        Flight& f = flights_[d];
        const bool fresh = more && f.state == State::kEmpty && recorder_.due(now);
        const bool wants = fresh || (more && f.state == State::kDrawn);
        if (!group_.any(wants)) return false;
        if (fresh) {
            f.intended_ns = recorder_.take_intended(0);
            f.offset = recorder_.draw_offset();
            f.state = State::kDrawn;
        }
        if (plan_.write) fill_each(fresh, f);
        const IoRequest request = request_of(f);
        const std::uint64_t begin = simt::now_ns();
        const nvme::Status status =
            batches_[d].submit(group_, lane_, volume_, channel_, opcode(), wants ? &request : nullptr);
        const bool sent = wants && nvme::ok(status);
        if (sent) {
            f.begin_ns = f.intended_ns != 0 ? f.intended_ns : begin;
            f.state = State::kFlying;
            ++in_flight_;
            recorder_.issued();
        } else if (wants && status != nvme::Status::kTooManyPending) {
            recorder_.failure(status, f.offset);
        }
        if (group_.any(sent)) batches_[d].commit(group_, lane_, channel_);
        return sent || fresh;
    }

    GN_HD
    bool finish(std::uint32_t d) {
        Flight& f = flights_[d];
        if (!group_.any(f.state == State::kFlying)) return false;
        const BatchResult result = batches_[d].dispatch(group_, lane_, channel_);
        bool check = false;
        if (result.finished) {
            f.state = State::kEmpty;
            --in_flight_;
            if (nvme::ok(result.status)) {
                recorder_.success(simt::now_ns() - f.begin_ns);
                if (plan_.write) mark_written(f.offset);
                check = !plan_.write && recorder_.chooses_to_check();
            } else {
                recorder_.failure(result.status, f.offset);
            }
        }
        check_each(check, f);
        return result.finished;
    }

    /// Each member's buffer in turn, filled by all.
    GN_HD
    void fill_each(bool wanted, const Flight& f) {
        const Contents contents{plan_.contents_seed + 1, volume_.geometry.volume};
        for (auto rest = group_.ballot(wanted); !rest.empty(); rest = rest.without_lowest()) {
            const std::uint64_t to = group_.shfl(reinterpret_cast<std::uint64_t>(f.buffer), rest.lowest());
            const std::uint64_t offset = group_.shfl(f.offset, rest.lowest());
            fill(group_, contents, offset, plan_.bytes, reinterpret_cast<void*>(to));
        }
        group_.sync();
    }
    GN_HD
    void check_each(bool wanted, const Flight& f) {
        const Contents contents{plan_.contents_seed, volume_.geometry.volume};
        for (auto rest = group_.ballot(wanted); !rest.empty(); rest = rest.without_lowest()) {
            const std::uint32_t who = rest.lowest();
            const std::uint64_t from = group_.shfl(reinterpret_cast<std::uint64_t>(f.buffer), who);
            const std::uint64_t offset = group_.shfl(f.offset, who);
            const bool right =
                matches(group_, contents, offset, plan_.bytes, reinterpret_cast<const void*>(from));
            if (group_.lane() == who) recorder_.compared(right, offset);
        }
    }

    GN_HD
    void mark_written(std::uint64_t offset) {
        const auto first = static_cast<std::uint32_t>(offset / nvme::kBlockBytes);
        const std::uint32_t blocks = plan_.bytes / nvme::kBlockBytes;  // 1 .. 16, never across a word
        const std::uint32_t bits = ((1u << blocks) - 1) << (first % 32);
        simt::fetch_or<simt::Scope::kDevice>(&written_[first / 32], bits);
    }

    GN_HD
    nvme::IoOpcode opcode() const { return plan_.write ? nvme::IoOpcode::kWrite : nvme::IoOpcode::kRead; }
    GN_HD
    IoRequest request_of(const Flight& f) const {
        IoRequest request;
        request.block = static_cast<nvme::BlockAddress>(f.offset / nvme::kBlockBytes);
        request.buffer = f.buffer;
        if (plan_.bytes >= nvme::kBlockBytes) {
            request.blocks = plan_.bytes / nvme::kBlockBytes;
            return request;
        }
        request.first_sector = static_cast<std::uint8_t>(f.offset % nvme::kBlockBytes / nvme::kSectorBytes);
        request.sectors = static_cast<std::uint8_t>(plan_.bytes / nvme::kSectorBytes);
        return request;
    }

    const Plan& plan_;
    const VolumeRef& volume_;
    const ChannelRef channel_;
    std::uint32_t* const written_;
    const Group group_;
    const simt::Lane lane_;
    LaneBatch* const batches_;
    Recorder recorder_;
    const bool asks_;
    std::uint32_t in_flight_ = 0;
    Flight flights_[kDepthMax];
};

/// Random reads or writes. Writes store the contents of seed + 1 and mark their blocks in `written`.
struct PathJob {
    VolumeRef volume;
    ChannelSet channels;
    Plan plan;
    std::uint32_t* written;  ///< a bit a block of the working set; writes only

    GN_HD
    void operator()(simt::Lane lane) const {
#if GN_DEVICE_PASS
        __shared__ LaneBatch batches[kDepthMax];
#else
        LaneBatch batches[kDepthMax];
#endif
        const auto group = simt::warp(lane);
        PathLane lane_work(plan, volume, channels.mine(lane), written, group, lane, batches);
        lane_work.run();
    }
};

/// What Fill and Check note. Lane memory.
struct SetTotals {
    std::uint64_t wrong_blocks;
    std::uint32_t failures;
    std::uint32_t first_status;
};

/// The whole working set, a piece of 256 KiB at a time: writes the contents of `seed`, or reads and compares
/// each block with those of seed + 1 where it is marked in `written`, else with those of `seed`.
struct WorkingSetJob {
    VolumeRef volume;
    ChannelSet channels;
    std::uint32_t blocks;
    std::uint64_t seed;
    bool write;
    const std::uint32_t* written;
    SetTotals* totals;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef channel = channels.mine(lane);
        const auto warps = static_cast<std::uint32_t>((lane.grid_size() + group.size() - 1) / group.size());
        auto status = nvme::Status::kSuccess;
        void* const buffer = channel.alloc(group, std::uint64_t{kPieceBlocks} * nvme::kBlockBytes, &status);
        if (buffer == nullptr) return note_failure(group, status);
        for (auto piece = static_cast<std::uint32_t>(lane.warp_rank());
             std::uint64_t{piece} * kPieceBlocks < blocks; piece += warps) {
            const std::uint32_t first = piece * kPieceBlocks;
            const std::uint32_t count = blocks - first < kPieceBlocks ? blocks - first : kPieceBlocks;
            status = write ? store(group, channel, first, count, buffer)
                           : compare(group, channel, first, count, buffer);
            if (!nvme::ok(status)) note_failure(group, status);
        }
        status = channel.free(group, buffer);
        if (!nvme::ok(status)) note_failure(group, status);
    }

  private:
    template <class Group>
    GN_HD nvme::Status store(Group group, ChannelRef channel, std::uint32_t first, std::uint32_t count,
                             void* buffer) const {
        fill(group, Contents{seed, volume.geometry.volume}, std::uint64_t{first} * nvme::kBlockBytes,
             count * nvme::kBlockBytes, buffer);
        group.sync();
        return volume.write(group, channel, first, count, buffer, Deadline::in_ns(kStallNs));
    }
    template <class Group>
    GN_HD nvme::Status compare(Group group, ChannelRef channel, std::uint32_t first, std::uint32_t count,
                               void* buffer) const {
        const nvme::Status status =
            volume.read(group, channel, first, count, buffer, Deadline::in_ns(kStallNs));
        if (!nvme::ok(status)) return status;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::uint32_t block = first + i;
            const bool changed = ((written[block / 32] >> (block % 32)) & 1u) != 0;
            const Contents contents{changed ? seed + 1 : seed, volume.geometry.volume};
            const bool right =
                matches(group, contents, std::uint64_t{block} * nvme::kBlockBytes, nvme::kBlockBytes,
                        static_cast<const std::byte*>(buffer) + std::size_t{i} * nvme::kBlockBytes);
            if (!right && group.is_leader())
                simt::fetch_add<simt::Scope::kDevice>(&totals->wrong_blocks, std::uint64_t{1});
        }
        group.sync();
        return nvme::Status::kSuccess;
    }
    template <class Group>
    GN_HD void note_failure(Group group, nvme::Status status) const {
        if (!group.is_leader()) return;
        if (simt::fetch_add<simt::Scope::kDevice>(&totals->failures, 1u) == 0)
            totals->first_status = static_cast<std::uint32_t>(status);
    }
};

}  // namespace gnstor::bench
