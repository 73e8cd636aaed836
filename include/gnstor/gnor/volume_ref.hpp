// volume_ref.hpp: an opened volume, as a kernel takes it by value. The public device interface. CPU and GPU
// lanes.
//
// Every call names a group: simt::self(lane), one lane alone, or several lanes of a warp, all of which call
// with the same arguments unless said otherwise and get the same result. Statuses are NVMe's or local
// (nvme/status.hpp); nothing traps and nothing waits beyond its deadline. Rules of buffers, deadlines and
// retries: docs/design.md, "A read, from end to end", "Using it".
//
//   * registered buffers (channel pool, or registered by the user; 4-byte aligned) are used in place; any
//     other memory, at any alignment, is copied through pool buffers by the calling group. A group of several
//     lanes cannot share a buffer on one lane's stack (kBadArgument);
//   * kTimedOut: a command was sent and its outcome is unknown; the NIC may still read or write a registered
//     buffer, until the answer or reclaim() on the host: do not use or free it before;
//   * kQueueError: a queue pair that the call needs is in error. Either a command was sent and will not be
//     answered, or nothing was sent (a write of which one replica cannot be reached; a read without a
//     reachable replica). The status does not say which: treat the buffer as in use until reclaim();
//   * kNotSent, kNoBuffer: the deadline passed while the call waited for a command slot or a credit, or for a
//     pool buffer. None of its commands is in flight and its buffer is free: the call may be repeated;
//   * temporary refusals (kBusy, kNotGranted) are retried until the deadline, with growing pauses; kStaleMap
//     too, as soon as the client has fetched and published a newer map. A call that ends with one of these
//     has nothing in flight. Asynchronous requests are sent once;
//   * one call is one write sequence, retries included; a call that is made again is a newer write;
//   * a failed write is indeterminate on every block it covers; where replicas may differ because of it,
//     drives remember trimmed blocks from then on, until the opening is renewed (client::Volume::renew).
#pragma once

#include <gnstor/gnor/channel_ref.hpp>
#include <gnstor/gnor/detail/paths/single_lane.hpp>
#include <gnstor/gnor/detail/resources/resolved.hpp>

namespace gnstor {

enum class VolumeMode : std::uint32_t { kRead = 0, kWrite = 1 };

class VolumeRef {
  public:
    placement::VolumeGeometry geometry{};
    nvme::Epoch epoch = 0;
    nvme::ClientId client = 0;
    VolumeMode mode = VolumeMode::kRead;
    /// FUA (NVMe NVM Command Set 1.0, CDW12 bit 30) on every write and read: see stable().
    bool force_unit_access = false;
    /// Where the address of the newest placement::LaneMap is stored, in memory that lanes see; the client
    /// stores a new one with a release.
    const std::uint64_t* current_map = nullptr;
    /// The last write sequence that this opening took; in lane memory. Null when opened for reading.
    std::uint64_t* last_sequence = nullptr;
    /// Which of these sequences are resolved (gnor/detail/resources/resolved.hpp); in lane memory. Null: not
    /// recorded.
    std::uint64_t* resolved = nullptr;

    /// The same volume with FUA: its writes (and write_zeroes) are answered only when their data is on stable
    /// media, also on drives with `durability = process`. For one call, `volume.stable().write(...)`, or for
    /// all calls of a kernel. Without it an answered write survives the end of any process always, and power
    /// loss with `durability = power`. (With `durability = process` a drive that is in use when its host
    /// stops begins empty again: docs/design.md, "Durability promise".) A trim becomes durable by flush
    /// alone. A read with FUA is answered when the SSD that serves it has made durable what it read.
    GN_HD
    VolumeRef stable() const {
        VolumeRef copy = *this;
        copy.force_unit_access = true;
        return copy;
    }

    /// Reads `blocks` blocks from `block` on. ONE request: the group splits it at chunk boundaries, and each
    /// member carries out some of the pieces. kLbaOutOfRange past the end; kBadArgument for no blocks, no
    /// buffer, a misaligned registered buffer.
    template <class Group, ChannelView Channel>
    GN_HD Status read(Group group, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                      void* buffer, Deadline deadline) const {
        const IoRequest request{block, blocks, buffer, 0, 0};
        return one(group, channel, nvme::IoOpcode::kRead, request, deadline);
    }
    /// Reads `sectors` sectors of 512 bytes (1 .. 8) of one block, from `first_sector` on.
    template <class Group, ChannelView Channel>
    GN_HD Status read_sectors(Group group, Channel channel, nvme::BlockAddress block,
                              std::uint32_t first_sector, std::uint32_t sectors, void* buffer,
                              Deadline deadline) const {
        if (sectors == 0 || sectors > nvme::kSectorsPerBlock || first_sector >= nvme::kSectorsPerBlock)
            return Status::kBadArgument;
        const IoRequest request{block, 1, buffer, static_cast<std::uint8_t>(first_sector),
                                static_cast<std::uint8_t>(sectors)};
        return one(group, channel, nvme::IoOpcode::kRead, request, deadline);
    }
    /// Writes to all replicas. Success: durable on every replica, as the array's durability (or stable())
    /// says.
    template <class Group, ChannelView Channel>
    GN_HD Status write(Group group, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                       const void* buffer, Deadline deadline) const {
        const IoRequest request{block, blocks, const_cast<void*>(buffer), 0, 0};
        return one(group, channel, nvme::IoOpcode::kWrite, request, deadline);
    }
    /// Makes the blocks read as zeroes; drives may free what they stored for them.
    template <class Group, ChannelView Channel>
    GN_HD Status trim(Group group, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                      Deadline deadline) const {
        const IoRequest request{block, blocks, nullptr, 0, 0};
        return one(group, channel, nvme::IoOpcode::kDatasetManagement, request, deadline);
    }
    template <class Group, ChannelView Channel>
    GN_HD Status write_zeroes(Group group, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                              Deadline deadline) const {
        const IoRequest request{block, blocks, nullptr, 0, 0};
        return one(group, channel, nvme::IoOpcode::kWriteZeroes, request, deadline);
    }
    /// NVMe flush on every drive of the volume's map: everything answered before it is on stable media.
    template <class Group, ChannelView Channel>
    GN_HD Status flush(Group group, Channel channel, Deadline deadline) const {
        Channel::template check_group<Group>();
        if (const Status unusable = channel.usable(); !nvme::ok(unusable)) return unusable;
        gnor::Cursor cursor = cursor_for(nvme::IoOpcode::kFlush, nullptr, 1);
        cursor.flush_slots = true;
        cursor.first_piece = group.rank();
        cursor.piece_step = group.size();
        gnor::Operation op = operation();
        return gnor::run(group, channel.state(), op, cursor, Channel::hint(group), deadline);
    }

    /// Many independent requests, spread over the members. `statuses`: one per request, or null. Returns the
    /// worst. Requests, statuses and buffers must lie where all members reach them, not on a lane's stack.
    template <class Group, ChannelView Channel>
    GN_HD Status read_many(Group group, Channel channel, const IoRequest* requests, std::uint32_t count,
                           Status* statuses, Deadline deadline) const {
        return many(group, channel, nvme::IoOpcode::kRead, requests, count, statuses, deadline);
    }
    template <class Group, ChannelView Channel>
    GN_HD Status write_many(Group group, Channel channel, const IoRequest* requests, std::uint32_t count,
                            Status* statuses, Deadline deadline) const {
        return many(group, channel, nvme::IoOpcode::kWrite, requests, count, statuses, deadline);
    }

    /// One lane sends a request now and ends it later with ChannelRef::wait, poll or drop. This call waits,
    /// until `deadline`, for slots and credits only (kNotSent: nothing was sent; kTimedOut: a part was, and
    /// the buffer stays in use). The buffer must be registered (kNotRegistered) and stays in use until the
    /// request ends.
    template <ChannelView Channel>
    GN_HD Token read_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                           void* buffer, Deadline deadline) const {
        return send(lane, channel, nvme::IoOpcode::kRead, IoRequest{block, blocks, buffer, 0, 0}, true,
                    deadline);
    }
    template <ChannelView Channel>
    GN_HD Token write_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                            const void* buffer, Deadline deadline) const {
        const IoRequest request{block, blocks, const_cast<void*>(buffer), 0, 0};
        return send(lane, channel, nvme::IoOpcode::kWrite, request, true, deadline);
    }
    /// The same without any wait (kTooManyPending instead): allowed in callbacks.
    template <ChannelView Channel>
    GN_HD Token try_read_async(simt::Lane lane, Channel channel, nvme::BlockAddress block,
                               std::uint32_t blocks, void* buffer) const {
        return send(lane, channel, nvme::IoOpcode::kRead, IoRequest{block, blocks, buffer, 0, 0}, false,
                    Deadline{0});
    }
    template <ChannelView Channel>
    GN_HD Token try_write_async(simt::Lane lane, Channel channel, nvme::BlockAddress block,
                                std::uint32_t blocks, const void* buffer) const {
        const IoRequest request{block, blocks, const_cast<void*>(buffer), 0, 0};
        return send(lane, channel, nvme::IoOpcode::kWrite, request, false, Deadline{0});
    }
    /// With a callback: `handler(status)` (callbacks.hpp: small, trivially copyable) runs once, when the
    /// request is done, in a lane whose view of the channel knows its type; never if this call returns an
    /// error. It must not make calls that wait. `deadline` as in read_async; Deadline{0}: no wait, as
    /// try_read_async.
    template <ChannelView Channel, class Handler>
    GN_HD Status read_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                            void* buffer, const Handler& handler, Deadline deadline) const {
        return attach(channel, handler,
                      send(lane, channel, nvme::IoOpcode::kRead, IoRequest{block, blocks, buffer, 0, 0},
                           deadline.at_ns != 0, deadline));
    }
    template <ChannelView Channel, class Handler>
    GN_HD Status write_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                             const void* buffer, const Handler& handler, Deadline deadline) const {
        const IoRequest request{block, blocks, const_cast<void*>(buffer), 0, 0};
        return attach(channel, handler,
                      send(lane, channel, nvme::IoOpcode::kWrite, request, deadline.at_ns != 0, deadline));
    }
    template <ChannelView Channel, class Handler>
    GN_HD Status try_read_async(simt::Lane lane, Channel channel, nvme::BlockAddress block,
                                std::uint32_t blocks, void* buffer, const Handler& handler) const {
        return read_async(lane, channel, block, blocks, buffer, handler, Deadline{0});
    }
    template <ChannelView Channel, class Handler>
    GN_HD Status try_write_async(simt::Lane lane, Channel channel, nvme::BlockAddress block,
                                 std::uint32_t blocks, const void* buffer, const Handler& handler) const {
        return write_async(lane, channel, block, blocks, buffer, handler, Deadline{0});
    }
    /// The same with a pointer to a function.
    template <ChannelView Channel>
    GN_HD Status read_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                            void* buffer, Callback callback, void* argument, Deadline deadline) const {
        return read_async(lane, channel, block, blocks, buffer, PointerCallback{callback, argument},
                          deadline);
    }
    template <ChannelView Channel>
    GN_HD Status write_async(simt::Lane lane, Channel channel, nvme::BlockAddress block, std::uint32_t blocks,
                             const void* buffer, Callback callback, void* argument, Deadline deadline) const {
        return write_async(lane, channel, block, blocks, buffer, PointerCallback{callback, argument},
                           deadline);
    }

    // Used by Batch (batch.hpp).
    GN_HD
    gnor::Operation operation() const {
        gnor::Operation op;
        op.context.volume = geometry.volume;
        op.context.client = client;
        op.context.epoch = epoch;
        op.context.fua = force_unit_access;
        op.geometry = geometry;
        op.current_map = current_map;
        op.load_map();
        return op;
    }
    GN_HD
    gnor::Cursor cursor_for(nvme::IoOpcode opcode, const IoRequest* requests, std::uint32_t count) const {
        gnor::Cursor cursor;
        cursor.opcode = opcode;
        cursor.requests = requests;
        cursor.request_count = count;
        cursor.chunk_shift = geometry.chunk_shift;
        cursor.capacity_blocks = geometry.capacity_blocks;
        return cursor;
    }
    GN_HD
    static bool changes(nvme::IoOpcode opcode) {
        return opcode != nvme::IoOpcode::kRead && opcode != nvme::IoOpcode::kFlush;
    }
    GN_HD
    bool allows(nvme::IoOpcode opcode) const { return !changes(opcode) || mode == VolumeMode::kWrite; }
    /// The first of `count` new sequences; the same for all members. The first ever is 1.
    template <class Group>
    GN_HD std::uint64_t take_sequences(Group group, std::uint32_t count) const {
        std::uint64_t first = 0;
        if (group.is_leader())
            // Relaxed: the atomic alone makes later takers' sequences higher; nothing else is ordered by it.
            first = simt::fetch_add<simt::Scope::kDevice, simt::Order::kRelaxed>(last_sequence,
                                                                                 std::uint64_t{count}) +
                    1;
        return group.shfl(first, group.leader());
    }
    /// Called by one lane, once: the requests with these sequences have ended, and all replicas are alike, or
    /// (`in_doubt`) may differ (resolved.hpp).
    GN_HD
    void resolve(std::uint64_t first, std::uint64_t count, bool in_doubt = false) const {
        if (in_doubt)
            gnor::mark_in_doubt(resolved, count);
        else
            gnor::mark_resolved(resolved, first, count);
    }

  private:
    template <class Group, ChannelView Channel>
    GN_HD Status one(Group group, Channel channel, nvme::IoOpcode opcode, const IoRequest& request,
                     Deadline deadline) const {
        Channel::template check_group<Group>();
        gnor::LaneWork work;
        std::uint64_t sequence = 0;  // 0: none taken, the first one is 1
        if constexpr (Channel::kSharing == Sharing::kLane) {
            // On a GPU try_single_lane() checks the channel's mode along with its other loads: a load of its
            // own costs a round trip.
            const bool here = GN_DEVICE_PASS ? channel.is_here() : nvme::ok(channel.usable());
            const bool may = here && allows(opcode) && request.buffer != nullptr && current_map != nullptr;
            if (may && opcode == nvme::IoOpcode::kRead)
                if (try_fast_path<1>(channel, opcode, request, deadline, sequence, work))
                    return Status::kSuccess;
            if (may && opcode == nvme::IoOpcode::kWrite)
                if (try_fast_path<gnor::kSingleLaneReplicas>(channel, opcode, request, deadline, sequence,
                                                             work)) {
                    resolve(sequence, 1);
                    return Status::kSuccess;
                }
        }
        if (const Status unusable = channel.usable(); !nvme::ok(unusable)) return unusable;
        if (!allows(opcode)) return Status::kNotWritable;
        gnor::Cursor cursor = cursor_for(opcode, &request, 1);
        cursor.first_piece = group.rank();
        cursor.piece_step = group.size();
        cursor.together = group.size() > 1;
        if (changes(opcode)) cursor.sequence = sequence != 0 ? sequence : take_sequences(group, 1);
        gnor::Operation op = operation();
        const Status status =
            gnor::run_to_completion(group, channel.state(), op, cursor, work, Channel::hint(group), deadline);
        if (changes(opcode)) end(group, cursor, 1, status);
        return status;
    }

    /// Fast path of a single lane's read or write of one command. False: not carried out; then `work` has its
    /// command if that is in flight, and `sequence` what was taken for it.
    template <std::uint32_t kMost, ChannelView Channel>
    GN_HD bool try_fast_path(Channel channel, nvme::IoOpcode opcode, const IoRequest& request,
                             Deadline deadline, std::uint64_t& sequence, gnor::LaneWork& work) const {
        if (changes(opcode)) sequence = take_sequences(simt::self(simt::Lane{}), 1);
        const gnor::OneCommand command{.opcode = opcode,
                                       .first_sector = request.first_sector,
                                       .sectors = request.sectors,
                                       .block = request.block,
                                       .blocks = request.blocks,
                                       .address = reinterpret_cast<std::uint64_t>(request.buffer),
                                       .sequence = sequence};
        std::uint32_t index = gnor::kNone;
        const auto end = gnor::try_single_lane<kMost>(channel.state(), operation(), command, deadline, index);
        if (end == gnor::SingleLaneOutcome::kUnderWay) work.adopt(index);
        return end == gnor::SingleLaneOutcome::kDone;
    }

    template <class Group, ChannelView Channel>
    GN_HD Status many(Group group, Channel channel, nvme::IoOpcode opcode, const IoRequest* requests,
                      std::uint32_t count, Status* statuses, Deadline deadline) const {
        Channel::template check_group<Group>();
        if (const Status unusable = channel.usable(); !nvme::ok(unusable)) return unusable;
        if (!allows(opcode)) return Status::kNotWritable;
        gnor::Cursor cursor = cursor_for(opcode, requests, count);
        cursor.statuses = statuses;
        cursor.request = group.rank();
        cursor.request_step = group.size();
        cursor.together = group.size() > 1;
        if (changes(opcode)) cursor.sequence = take_sequences(group, count);
        cursor.sequence_each = changes(opcode);
        gnor::Operation op = operation();
        const Status status = gnor::run(group, channel.state(), op, cursor, Channel::hint(group), deadline);
        group.sync();  // orders each member's statuses before all members' return
        if (changes(opcode)) end(group, cursor, count, status);
        return status;
    }

    /// Resolves the `count` sequences of a call that ended with `status`, the same for all members.
    template <class Group>
    GN_HD void end(Group group, const gnor::Cursor& cursor, std::uint32_t count, Status status) const {
        const bool in_doubt = !nvme::ok(status) && group.any(cursor.in_doubt);
        if (group.is_leader()) resolve(cursor.sequence, count, in_doubt);
    }

    template <ChannelView Channel>
    GN_HD Token send(simt::Lane lane, Channel channel, nvme::IoOpcode opcode, const IoRequest& request,
                     bool helps, Deadline deadline) const {
        if (const Status unusable = channel.usable(); !nvme::ok(unusable))
            return Token{gnor::kNone, 0, unusable};
        if (!allows(opcode)) return Token{gnor::kNone, 0, Status::kNotWritable};
        const auto group = simt::self(lane);
        gnor::Cursor cursor = cursor_for(opcode, &request, 1);
        cursor.must_be_registered = true;
        if (changes(opcode)) cursor.sequence = take_sequences(group, 1);
        gnor::Operation op = operation();
        auto& c = channel.state();
        const Token token = helps ? gnor::send_all(group, c, op, cursor, Channel::hint(group), deadline)
                                  : gnor::send_at_once(group, c, op, cursor, Channel::hint(group), true);
        if (!changes(opcode)) return token;
        // The lane that finds the request ended records that; if it failed already or was not sent, it is
        // recorded here.
        if (!token.in_flight() || cursor.in_doubt) resolve(cursor.sequence, 1, cursor.in_doubt);
        if (token.in_flight()) gnor::keep_resolved(c.slot(token.head), cursor.in_doubt ? nullptr : resolved);
        return token;
    }

    template <ChannelView Channel, class Handler>
    GN_HD static Status attach(Channel channel, const Handler& handler, const Token& token) {
        static_assert(Channel::Runs::template kKnows<Handler>,
                      "this view of the channel runs other handlers: name this handler in with<...>(), or it "
                      "may never be called");
        if (token.in_flight()) gnor::attach_callback(channel.state(), token.head, handler);
        return token.status;
    }
};
static_assert(std::is_trivially_copyable_v<VolumeRef>, "kernels take it by value");

}  // namespace gnstor
