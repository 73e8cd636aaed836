// load_job.hpp: lanes that initiate I/O for many clients at once. Device code, CPU and GPU lanes.
//
// A warp is one stream of one client: `askers` of its lanes keep depth / askers requests each in flight, by
// the batch steps of gnor/batch.hpp; all lanes fill and compare each other's buffers, which are registered
// ones of the channel's pool. The straw designs differ in send(), take() and in the steps that a request has.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/gnor/batch.hpp>

#include "bench/initiators/lane_timer.hpp"
#include "bench/initiators/load_lanes.hpp"

namespace gnstor::bench {

inline constexpr std::uint64_t kLoadStallNs = 20'000'000'000;  ///< nothing came back for so long: give up
inline constexpr std::uint32_t kLoadBlockThreads = 128;
#if GN_DEVICE_PASS
inline constexpr std::uint32_t kFlightsMax = 4;
using LoadBatch = Batch<kLoadBlockThreads>;
#else
inline constexpr std::uint32_t kFlightsMax = 128;
using LoadBatch = Batch<32>;
#endif

/// What is the same for all lanes.
struct LoadJobShared {
    const ClientRefs* clients;
    std::uint32_t client_count;
    std::uint32_t warps_a_client;
    std::uint32_t askers;   ///< of a warp
    std::uint32_t flights;  ///< of an asker
    Discipline discipline;
    Load load;
    Plan plan;
    std::uint64_t* reads;     ///< a count a lane
    std::uint64_t* commands;  ///< likewise: that SSDs must have executed
    std::uint64_t* stage_ns;  ///< kLaneStages a warp
};

template <class Group>
class LoadLane {
  public:
    GN_HD
    LoadLane(const LoadJobShared& shared, Group group, simt::Lane lane, LoadBatch* batches)
        : s_(shared),
          client_(shared.clients[lane.warp_rank() / shared.warps_a_client]),
          own_warp_(static_cast<std::uint32_t>(lane.warp_rank() % shared.warps_a_client)),
          channel_(client_.channels[own_warp_ % client_.channels.count]),
          group_(group),
          lane_(lane),
          batches_(batches),
          recorder_(shared.plan, lane.grid_rank()),
          asks_(group.rank() < shared.askers),
          draw_(shared.load, std::uint64_t{own_warp_} * shared.askers + group.rank(),
                std::uint64_t{shared.warps_a_client} * shared.askers, lane.grid_rank()) {}

    GN_HD
    void run() {
        recorder_.begin();
        for (std::uint32_t d = 0; d < s_.flights; ++d) batches_[d].init(group_, lane_);
        take_buffers();
        work();
        give_buffers_back();
        recorder_.end();
        s_.reads[lane_.grid_rank()] = reads_;
        s_.commands[lane_.grid_rank()] = commands_;
        if (group_.is_leader()) timer_.store(s_.stage_ns + lane_.warp_rank() * kLaneStages);
    }

  private:
    /// Steps of a request; only a coordinating client has others than kData.
    enum class Step : std::uint32_t { kNone, kAgree, kMap, kData, kLog };
    struct Flight {
        std::uint64_t begin_ns = 0;
        Drawn drawn{};
        void* buffer = nullptr;
        void* metadata = nullptr;  ///< one block, of coordinating clients
        Step step = Step::kNone;
        bool flying = false;
    };

    GN_HD
    void* take_buffer(std::uint32_t bytes) {
        auto status = nvme::Status::kSuccess;
        void* const buffer = channel_.alloc(simt::self(lane_), bytes, &status);
        if (buffer == nullptr) recorder_.failure(status, 0);
        return buffer;
    }
    GN_HD
    void take_buffers() {
        for (std::uint32_t d = 0; asks_ && d < s_.flights; ++d) {
            flights_[d].buffer = take_buffer(s_.load.bytes);
            if (coordinates()) flights_[d].metadata = take_buffer(nvme::kBlockBytes);
        }
        group_.sync();
    }
    GN_HD
    void give_back(void* buffer) {
        if (buffer == nullptr) return;
        const nvme::Status freed = channel_.free(simt::self(lane_), buffer);
        if (!nvme::ok(freed)) recorder_.failure(freed, 0);
    }
    GN_HD
    void give_buffers_back() {
        for (std::uint32_t d = 0; d < s_.flights; ++d) {
            if (flights_[d].flying) continue;
            give_back(flights_[d].buffer);
            give_back(flights_[d].metadata);
        }
    }

    GN_HD
    void work() {
        std::uint32_t backoff = 0;
        std::uint64_t idle_since = 0;
        for (;;) {
            const std::uint64_t now = simt::now_ns();
            timer_.begin_round(now);
            const bool more = asks_ && !draw_.exhausted(s_.load) && recorder_.wants_more(now);
            bool progress = false;
            for (std::uint32_t d = 0; d < s_.flights; ++d) progress = start(d, now) || progress;
            if (!group_.any(more || begun_ != 0)) return;
            progress = take() || progress;
            timer_.charge(LaneStage::kPoll);
            if (group_.any(progress)) {
                if (idle_since != 0) recorder_.waited(now - idle_since);
                idle_since = 0;
                backoff = 0;
                continue;
            }
            if (idle_since == 0) idle_since = now;
            // In an open loop there may be nothing to wait for.
            if (group_.any(begun_ != 0 && now - idle_since > kLoadStallNs)) return give_up();
            simt::pause(backoff);
            timer_.charge(LaneStage::kIdle);
        }
    }

    GN_HD
    void give_up() {
        for (std::uint32_t d = 0; d < s_.flights; ++d) {
            if (flights_[d].flying) recorder_.failure(nvme::Status::kTimedOut, flights_[d].drawn.offset);
            batches_[d].abandon(group_, lane_, channel_);
        }
    }

    /// Begins or continues the request of flight `d` of each member, and sends its commands.
    GN_HD
    bool start(std::uint32_t d, std::uint64_t now) {
        Flight& f = flights_[d];
        const bool fresh = asks_ && f.step == Step::kNone && !draw_.exhausted(s_.load) &&
                           recorder_.wants_more(now) && recorder_.due(now);
        if (!group_.any(fresh || (f.step != Step::kNone && !f.flying))) return false;
        if (fresh) {
            f.drawn = draw_.next(s_.load);
            f.step = coordinates() ? Step::kAgree : Step::kData;
            f.begin_ns = recorder_.take_intended(0);
            ++begun_;
            recorder_.issued();
        }
        timer_.charge(LaneStage::kSubmit);
        fill_each(fresh && f.drawn.write, f);
        timer_.charge(LaneStage::kPayload);
        if (fresh && coordinates() && f.begin_ns == 0) f.begin_ns = simt::now_ns();  // contents are made
        if (f.step == Step::kAgree && agree(f)) f.step = Step::kMap;
        if (coordinates()) timer_.charge(LaneStage::kAgree);
        const bool wants = !f.flying && f.step != Step::kNone && f.step != Step::kAgree;
        const bool out = wants && writes_now(f);
        bool sent = send(d, nvme::IoOpcode::kRead, wants && !out);
        sent = send(d, nvme::IoOpcode::kWrite, out) || sent;
        timer_.charge(LaneStage::kSubmit);
        return sent || fresh;
    }

    GN_HD
    bool send(std::uint32_t d, nvme::IoOpcode opcode, bool wants) {
        if (!group_.any(wants)) return false;
        Flight& f = flights_[d];
        const IoRequest request = request_of(f);
        // A request begins when it is first handed in, with whatever that costs; waiting for room counts.
        if (wants && f.begin_ns == 0) f.begin_ns = simt::now_ns();
        if (s_.discipline == Discipline::kPortedLocks) return send_locked(d, opcode, wants, request);
        const nvme::Status status =
            batches_[d].submit(group_, lane_, client_.volume, channel_, opcode, wants ? &request : nullptr);
        const bool sent = note_sent(f, wants, status);
        if (group_.any(sent)) batches_[d].commit(group_, lane_, channel_);
        return sent;
    }
    GN_HD
    bool note_sent(Flight& f, bool wants, nvme::Status status) {
        const bool sent = wants && nvme::ok(status);
        if (sent) {
            f.flying = true;
            commands_ += writes_now(f) ? client_.volume.geometry.replicas : 1;
        } else if (wants && status != nvme::Status::kTooManyPending) {
            recorder_.failure(status, f.drawn.offset);
            end(f);
        }
        return sent;
    }

    // ---- ported locks: as a CPU driver would, each lane takes the channel's lock for itself

    GN_HD
    bool try_lock() {
        std::uint32_t* const lock = client_.locks + own_warp_ % client_.channels.count;
        // Acquires what the last holder did; pairs with the release of unlock.
        return simt::compare_exchange<simt::Scope::kDevice>(lock, 0u, 1u) == 0;
    }
    GN_HD
    void unlock() {
        // Pairs with the compare_exchange of try_lock.
        simt::store_release<simt::Scope::kDevice>(client_.locks + own_warp_ % client_.channels.count, 0u);
    }
    /// A round of all lanes around the lock: of `stage` where one of them had it. After the lock was given
    /// back, so that it is held no longer for being measured.
    GN_HD
    void charge_round(bool had, LaneStage stage) {
        if (timer_.timed()) timer_.charge(group_.any(had) ? stage : LaneStage::kLock);
    }
    GN_HD
    bool send_locked(std::uint32_t d, nvme::IoOpcode opcode, bool wants, const IoRequest& request) {
        bool sent = false;
        const auto alone = simt::self(lane_);
        std::uint32_t backoff = 0;
        for (bool todo = wants; group_.any(todo);) {
            const bool todo_before = todo;
            if (todo && try_lock()) {
                const nvme::Status status =
                    batches_[d].submit(alone, lane_, client_.volume, channel_, opcode, &request);
                sent = note_sent(flights_[d], true, status);
                if (sent) batches_[d].commit(alone, lane_, channel_);
                unlock();
                todo = false;
            }
            if (todo) simt::pause(backoff);
            charge_round(todo_before && !todo, LaneStage::kSubmit);
        }
        return sent;
    }
    GN_HD
    bool take_locked() {
        bool progress = false;
        const auto alone = simt::self(lane_);
        std::uint32_t backoff = 0;
        for (bool todo = begun_ != 0; group_.any(todo);) {
            const bool todo_before = todo;
            if (todo && try_lock()) {
                batches_[0].poll(alone, channel_);
                unlock();
                todo = false;
            }
            if (todo) simt::pause(backoff);
            charge_round(todo_before && !todo, LaneStage::kPoll);
        }
        for (std::uint32_t d = 0; d < s_.flights; ++d) progress = finish(d) || progress;
        return progress;
    }

    // ---- coordinating clients

    GN_HD
    bool coordinates() const { return s_.discipline == Discipline::kCoordinating; }
    GN_HD
    std::uint32_t chunk_of(const Flight& f) const {
        return static_cast<std::uint32_t>(f.drawn.offset / nvme::kBlockBytes) >>
               client_.volume.geometry.chunk_shift;
    }
    static constexpr std::uint32_t kWriterHolds = 0x80000000u;
    /// Readers of a chunk share it, a writer has it alone. True: agreed.
    GN_HD
    bool agree(const Flight& f) {
        std::uint32_t* const lock = client_.locks + chunk_of(f);
        const std::uint32_t seen = simt::load_relaxed<simt::Scope::kDevice>(lock);
        if ((seen & kWriterHolds) != 0 || (f.drawn.write && seen != 0)) return false;
        const std::uint32_t next = f.drawn.write ? kWriterHolds : seen + 1;
        return simt::compare_exchange<simt::Scope::kDevice>(lock, seen, next) == seen;
    }
    GN_HD
    void part(const Flight& f) {
        simt::fetch_add<simt::Scope::kDevice>(client_.locks + chunk_of(f),
                                              f.drawn.write ? 0u - kWriterHolds : ~0u);
    }
    GN_HD
    bool writes_now(const Flight& f) const {
        return f.step == Step::kLog || (f.step == Step::kData && f.drawn.write);
    }
    GN_HD
    IoRequest request_of(Flight& f) {
        IoRequest request;
        request.blocks = 1;
        if (f.step == Step::kMap) {
            request.block =
                client_.data_blocks +
                static_cast<std::uint32_t>(f.drawn.offset / nvme::kBlockBytes) / kMapEntriesABlock;
            request.sectors = 1;
            request.buffer = f.metadata;
            return request;
        }
        if (f.step == Step::kLog) {
            // Lanes of a client write different blocks of its log, in turn.
            const auto at = static_cast<std::uint32_t>(lane_.grid_rank() * 37 + logged_);
            request.block =
                client_.data_blocks + client_.data_blocks / kMapEntriesABlock + 1 + at % kLogBlocks;
            request.buffer = f.metadata;
            return request;
        }
        request.block = static_cast<nvme::BlockAddress>(f.drawn.offset / nvme::kBlockBytes);
        request.buffer = f.buffer;
        if (s_.load.bytes >= nvme::kBlockBytes) {
            request.blocks = s_.load.bytes / nvme::kBlockBytes;
            return request;
        }
        request.first_sector =
            static_cast<std::uint8_t>(f.drawn.offset % nvme::kBlockBytes / nvme::kSectorBytes);
        request.sectors = static_cast<std::uint8_t>(s_.load.bytes / nvme::kSectorBytes);
        return request;
    }

    // ---- completions

    GN_HD
    bool take() {
        if (s_.discipline == Discipline::kPortedLocks) return take_locked();
        bool progress = false;
        batches_[0].poll(group_, channel_);
        for (std::uint32_t d = 0; d < s_.flights; ++d) progress = finish(d) || progress;
        return progress;
    }

    GN_HD
    bool finish(std::uint32_t d) {
        Flight& f = flights_[d];
        if (!group_.any(f.flying)) return false;
        const BatchResult result = batches_[d].dispatch(group_, lane_, channel_);
        bool check = false;
        if (result.finished) {
            f.flying = false;
            if (!nvme::ok(result.status)) {
                recorder_.failure(result.status, f.drawn.offset);
                end(f);
            } else {
                check = f.step == Step::kData && !f.drawn.write && recorder_.chooses_to_check();
                advance(f, check);
            }
        }
        timer_.charge(LaneStage::kPoll);
        check_each(check, f);
        timer_.charge(LaneStage::kPayload);
        return result.finished;
    }
    GN_HD
    void advance(Flight& f, bool check) {
        if (f.step == Step::kMap) {
            f.step = Step::kData;
            return;
        }
        if (f.step == Step::kData && f.drawn.write) mark_written(f.drawn.offset);
        if (f.step == Step::kData && f.drawn.write && coordinates()) {
            f.step = Step::kLog;
            ++logged_;
            return;
        }
        if (!check || s_.load.interval_ps == 0) recorder_.success(simt::now_ns() - f.begin_ns);
        if (!f.drawn.write) ++reads_;
        end(f);
    }
    GN_HD
    void end(Flight& f) {
        if (coordinates()) part(f);
        f.step = Step::kNone;
        --begun_;
    }

    /// Each member's buffer in turn, filled by all.
    GN_HD
    void fill_each(bool wanted, const Flight& f) {
        if (!group_.any(wanted)) return;
        const std::uint64_t seed = s_.load.contents_seed + (s_.load.pass == Pass::kFill ? 0 : 1);
        const Contents contents{seed, client_.volume.geometry.volume};
        for (auto rest = group_.ballot(wanted); !rest.empty(); rest = rest.without_lowest()) {
            const std::uint64_t to = group_.shfl(reinterpret_cast<std::uint64_t>(f.buffer), rest.lowest());
            const std::uint64_t offset = group_.shfl(f.drawn.offset, rest.lowest());
            fill(group_, contents, offset, s_.load.bytes, reinterpret_cast<void*>(to));
        }
        group_.sync();
    }
    GN_HD
    void check_each(bool wanted, const Flight& f) {
        const Expected expected{client_.volume.geometry.volume, s_.load.contents_seed,
                                s_.load.pass == Pass::kCompare ? client_.written : nullptr,
                                s_.load.pass == Pass::kMeasure};
        for (auto rest = group_.ballot(wanted); !rest.empty(); rest = rest.without_lowest()) {
            const std::uint32_t who = rest.lowest();
            const std::uint64_t from = group_.shfl(reinterpret_cast<std::uint64_t>(f.buffer), who);
            const std::uint64_t offset = group_.shfl(f.drawn.offset, who);
            const bool right =
                as_expected(group_, expected, offset, s_.load.bytes, reinterpret_cast<const void*>(from));
            if (group_.lane() != who) continue;
            recorder_.compared(right, offset);
            if (s_.load.interval_ps != 0) recorder_.success(simt::now_ns() - f.begin_ns);  // cpu_stream.hpp
        }
        group_.sync();
    }
    GN_HD
    void mark_written(std::uint64_t offset) {
        if (s_.load.pass != Pass::kMeasure) return;
        const auto first = static_cast<std::uint32_t>(offset / nvme::kBlockBytes);
        const std::uint32_t blocks = s_.load.bytes / nvme::kBlockBytes;  // 1 .. 16, never across a word
        const std::uint32_t bits = ((1u << blocks) - 1) << (first % 32);
        simt::fetch_or<simt::Scope::kDevice>(&client_.written[first / 32], bits);
    }

    const LoadJobShared& s_;
    const ClientRefs& client_;
    const std::uint32_t own_warp_;
    const ChannelRef channel_;
    const Group group_;
    const simt::Lane lane_;
    LoadBatch* const batches_;
    Recorder recorder_;
    LaneTimer timer_;
    const bool asks_;
    Draw draw_;
    std::uint32_t begun_ = 0;  ///< requests of this lane between their draw and their end
    std::uint32_t logged_ = 0;
    std::uint64_t reads_ = 0, commands_ = 0;
    Flight flights_[kFlightsMax];
};

struct LoadJob {
    LoadJobShared shared;

    GN_HD
    void operator()(simt::Lane lane) const {
#if GN_DEVICE_PASS
        __shared__ LoadBatch batches[kFlightsMax];
#else
        LoadBatch batches[kFlightsMax];
#endif
        const auto group = simt::warp(lane);
        if (lane.warp_rank() >= std::uint64_t{shared.client_count} * shared.warps_a_client) return;
        LoadLane work(shared, group, lane, batches);
        work.run();
    }
};

}  // namespace gnstor::bench
