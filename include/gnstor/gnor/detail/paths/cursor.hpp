// cursor.hpp: how a lane walks through its share of a user's requests, piece by piece. CPU and GPU lanes.
#pragma once

#include <gnstor/gnor/detail/paths/pieces.hpp>
#include <gnstor/gnor/detail/resources/buffers.hpp>
#include <gnstor/gnor/types/request.hpp>
#include <gnstor/gnor/types/status_order.hpp>
#include <gnstor/simt/copy.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kBounceShift = 4;  ///< at most 64 KiB a piece through pool buffers

/// One command to be sent, before it has any resource.
struct Step {
    nvme::IoOpcode opcode;
    std::uint8_t first_sector;
    std::uint8_t sectors;
    std::uint8_t attempts;
    std::uint32_t block;
    std::uint32_t blocks;
    std::uint32_t bytes;
    std::uint32_t request;
    std::uint32_t fixed_target;  ///< flush: the array's slot; else kNone
    std::uint64_t buffer;
    std::uint64_t sequence;
    bool registered;
    std::uint32_t lkey;
    std::uint32_t rkey;
};

/// The requests of a call, and the share of them that one lane carries out. Either one request whose pieces
/// are spread over the lanes (piece_step lanes), or many requests, each of them carried out by one lane as a
/// whole.
class Cursor {
  public:
    nvme::IoOpcode opcode = nvme::IoOpcode::kRead;
    const IoRequest* requests = nullptr;
    std::uint32_t request_count = 1;
    nvme::Status* statuses = nullptr;  ///< one a request, or null
    std::uint32_t request = 0, request_step = 1;
    std::uint32_t first_piece = 0, piece_step = 1;
    std::uint64_t sequence = 0;  ///< of request 0
    bool sequence_each = false;  ///< request i has sequence + i
    bool flush_slots = false;    ///< a flush: its pieces are the array's slots
    bool must_be_registered = false;
    bool together = false;  ///< several lanes copy the data of a buffer that is not registered
    std::uint32_t chunk_shift = 0;
    std::uint64_t capacity_blocks = 0;
    nvme::Status result = nvme::Status::kSuccess;  ///< worst status of this lane's share
    bool in_doubt = false;  ///< a change of this lane may have been made by some replicas only (resolved.hpp)

    /// Not inlined: it is called in many places, and seldom executed.
    GN_HD GN_NOINLINE void report(std::uint32_t i, nvme::Status status) {
        result = worst(result, status);
        if (statuses != nullptr) statuses[i] = worst(statuses[i], status);
    }

    /// The next step of this lane, or false when it has none left. Invalid requests are reported and skipped.
    template <class State>
    GN_HD bool next(State& c, Step& step) {
        while (request < request_count) {
            if (!opened_ && !open(c)) {
                advance();
                continue;
            }
            if (piece_ >= pieces_) {
                advance();
                continue;
            }
            make(step);
            piece_ += piece_step;
            return true;
        }
        return false;
    }

    /// Whether next() has no more steps, as far as is known without opening another request.
    GN_HD
    bool ended() const { return opened_ && piece_ >= pieces_ && request + request_step >= request_count; }

    /// How many commands this lane's share of its first request takes; 0: the request is invalid, which is
    /// reported. To be called before next().
    template <class State>
    GN_HD std::uint32_t commands(State& c) {
        if (request >= request_count) return 0;
        if (!opened_ && !open(c)) {
            advance();
            return 0;
        }
        return pieces_ > piece_ ? (pieces_ - piece_ + piece_step - 1) / piece_step : 0;
    }

    /// Goes back to the first piece of the current request and clears its result.
    GN_HD
    void begin_again() {
        opened_ = false;
        result = nvme::Status::kSuccess;
    }

    /// Reports `status` for every request of this lane that still has steps not begun.
    template <class State>
    GN_HD GN_NOINLINE void give_up(State& c, nvme::Status status) {
        Step unused;
        while (next(c, unused)) {
            report(unused.request, status);
            piece_ = pieces_;
        }
    }

  private:
    GN_HD
    void advance() {
        opened_ = false;
        request += request_step;
    }

    GN_HD
    bool has_data() const { return opcode == nvme::IoOpcode::kRead || opcode == nvme::IoOpcode::kWrite; }

    /// Checks request number `request` and finds its buffer's keys.
    template <class State>
    GN_HD bool open(State& c) {
        opened_ = true;
        piece_ = first_piece;
        if (statuses != nullptr) statuses[request] = nvme::Status::kSuccess;
        if (flush_slots) {
            pieces_ = c.queues;
            return true;
        }
        const IoRequest& r = requests[request];
        const nvme::Status bad = check(r);
        if (!nvme::ok(bad)) {
            report(request, bad);
            return false;
        }
        keys_ = Keys{};
        std::uint32_t shift = chunk_shift;
        if (has_data()) {
            const std::uint64_t bytes = r.sectors != 0 ? std::uint64_t{r.sectors} * nvme::kSectorBytes
                                                       : std::uint64_t{r.blocks} * nvme::kBlockBytes;
            const auto address = reinterpret_cast<std::uint64_t>(r.buffer);
            keys_ = find_buffer(c, address, bytes);
            if (keys_.unallocated) {
                report(request, nvme::Status::kNotAllocated);
                return false;
            }
            if (keys_.found && address % 4 != 0) {
                report(request, nvme::Status::kBadArgument);
                return false;
            }
            if (!keys_.found && must_be_registered) {
                report(request, nvme::Status::kNotRegistered);
                return false;
            }
            if (!keys_.found && together && simt::is_lane_private(r.buffer)) {
                report(request, nvme::Status::kBadArgument);
                return false;
            }
            if (!keys_.found && shift > kBounceShift) shift = kBounceShift;
        }
        shift_ = shift;
        pieces_ = piece_count(r.block, r.blocks, shift);
        return true;
    }

    GN_HD
    nvme::Status check(const IoRequest& r) const {
        if (r.blocks == 0) return nvme::Status::kBadArgument;
        if (std::uint64_t{r.block} + r.blocks > capacity_blocks) return nvme::Status::kLbaOutOfRange;
        if (has_data() && r.buffer == nullptr) return nvme::Status::kBadArgument;
        if (r.sectors == 0 && r.first_sector == 0) return nvme::Status::kSuccess;
        const bool part = opcode == nvme::IoOpcode::kRead && r.blocks == 1 && r.sectors != 0 &&
                          r.first_sector + r.sectors <= static_cast<int>(nvme::kSectorsPerBlock);
        return part ? nvme::Status::kSuccess : nvme::Status::kBadArgument;
    }

    GN_HD
    void make(Step& step) const {
        step = Step{};
        step.opcode = opcode;
        step.request = request;
        step.fixed_target = kNone;
        step.sequence = sequence + (sequence_each ? request : 0);
        if (flush_slots) {
            step.fixed_target = piece_;
            return;
        }
        const IoRequest& r = requests[request];
        const Piece p = piece_at(r.block, r.blocks, shift_, piece_);
        step.block = p.block;
        step.blocks = p.blocks;
        step.first_sector = r.first_sector;
        step.sectors = r.sectors;
        step.registered = keys_.found;
        step.lkey = keys_.lkey;
        step.rkey = keys_.rkey;
        step.bytes = payload_bytes(opcode, r.sectors, p.blocks);
        if (!has_data()) return;
        step.buffer = reinterpret_cast<std::uint64_t>(r.buffer) + std::uint64_t{p.offset} * nvme::kBlockBytes;
    }

    bool opened_ = false;
    std::uint32_t piece_ = 0, pieces_ = 0, shift_ = 0;
    Keys keys_;
};

}  // namespace gnstor::gnor
