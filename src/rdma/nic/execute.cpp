// execute.cpp: how the engine executes one send entry. A fault becomes the syndrome of the entry, and
// both ends go to error.
#include "rdma/nic/engine.hpp"

#include "rdma/nic/copy_once.hpp"
#include "rdma/nic/delays.hpp"
#include "rdma/nic/remote_queue.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/atomic.hpp>

#include <algorithm>
#include <cstring>

namespace gnstor::rdma {

using simt::Scope;

namespace {

constexpr std::uint32_t kSmallMessage = 64;

/// Copies a message's parts, one after the other, to `to`.
void copy_parts(std::byte* to, std::span<const Segment> parts) {
    for (const Segment& part : parts) {
        std::memcpy(to, part.data, part.bytes);
        to += part.bytes;
    }
}

/// Stores small messages word by word, as lanes may read them meanwhile; large ones are payload, ordered
/// by the completion.
void store_message(std::byte* to, std::span<const Segment> parts, std::uint32_t bytes) {
    if (bytes > kSmallMessage || bytes % 4 != 0 || reinterpret_cast<std::uintptr_t>(to) % 4 != 0) {
        copy_parts(to, parts);
        return;
    }
    std::uint32_t words[kSmallMessage / 4];
    copy_parts(reinterpret_cast<std::byte*>(words), parts);
    auto* const target = reinterpret_cast<std::uint32_t*>(to);
    for (std::uint32_t i = 0; i < bytes / 4; ++i) simt::store_relaxed<Scope::kSystem>(target + i, words[i]);
}

}  // namespace

void NicEngine::Gather::unpin() noexcept {
    for (std::uint32_t i = 0; i < count; ++i) regions[i]->unpin();
    count = 0;
}

void NicEngine::execute(QueuePair& qp, std::uint64_t index) {
    InFlight& flight = qp.flight(index);
    copy_once(flight.entry, qp.config.send_ring + (index & (qp.config.send_entries - 1)));
    flight.region_count = 0;
    flight.held = false;
    flight.delay = 0;
    flight.payload_crc = 0;
    flight.syndrome = mlx5::kFlushed;
    qp.executed = index + 1;
    mark_dirty(qp);
    if (!qp.ready()) return;
    flight.syndrome = mlx5::kSyndromeNone;
    std::uint8_t syndrome = check_entry(qp, index, flight.entry);
    const std::uint8_t opcode = mlx5::control_opcode(flight.entry.control);
    if (syndrome == mlx5::kSyndromeNone) {
        if (qp.strict()) strict_remember(qp, flight);
        switch (opcode) {
            case mlx5::kNop:
                break;
            case mlx5::kSend:
            case mlx5::kSendInvalidate:
                syndrome = run_send(qp, index, flight, opcode);
                break;
            case mlx5::kRdmaWrite:
            case mlx5::kRdmaRead:
                syndrome = qp.remote != nullptr ? run_remote(qp, index, flight, opcode)
                                                : run_one_sided(qp, flight.entry, opcode == mlx5::kRdmaWrite);
                break;
            default:
                syndrome = mlx5::kLocalQpOperationError;
                break;
        }
    }
    if (syndrome == mlx5::kSyndromeNone) return;
    flight.syndrome = syndrome;
    fail(qp);
}

/// Checks index, queue pair number, size and signature: a wrong one means that the program that posts has
/// a bug.
std::uint8_t NicEngine::check_entry(QueuePair& qp, std::uint64_t index, const mlx5::SendEntry& entry) {
    const mlx5::ControlSegment& control = entry.control;
    const std::uint32_t segments = mlx5::control_segments(control);
    const char* fault = nullptr;
    if (mlx5::control_index(control) != (index & mlx5::kIndexMask)) fault = "entry index";
    if (mlx5::control_qpn(control) != qp.qpn) fault = "queue pair number";
    if (segments < 1 || segments > 4) fault = "size (1 to 4 segments are allowed)";
    if (mlx5::control_signature(control) != 0) fault = "signature";
    if (fault == nullptr) return mlx5::kSyndromeNone;
    if (qp.nic->may_complain())
        log_error("rdma: queue pair {0:#x}: send entry {2} has a wrong {1}", qp.qpn, fault, index);
    if (qp.strict()) strict_violation(qp, fault, index);
    return mlx5::kLocalQpOperationError;
}

std::uint8_t NicEngine::gather_local(QueuePair& qp, const mlx5::SendEntry& entry, std::uint32_t first,
                                     std::uint32_t access, Gather& out) {
    const std::uint32_t segments = mlx5::control_segments(entry.control) - 1;
    if (segments <= first) return mlx5::kLocalQpOperationError;
    for (std::uint32_t i = first; i < segments; ++i) {
        const mlx5::DataSegment& data = entry.segment[i].data;
        const std::uint32_t bytes = be32(data.byte_count);
        if (bytes == 0 ||
            (bytes & 0x80000000u) != 0) {  // 0 means 2 GiB on hardware; bit 31 means inline data
            out.unpin();
            return mlx5::kLocalLengthError;
        }
        const MemoryTable::Pin pin = qp.nic->memory.pin(be32(data.lkey), be64(data.address), bytes, access);
        if (pin.fault != MemoryFault::kNone) {
            out.unpin();
            return mlx5::kLocalProtectionError;
        }
        out.part[out.count] = {pin.data, bytes};
        out.regions[out.count++] = pin.region;
        out.bytes += bytes;
        __builtin_prefetch(pin.data);
    }
    return mlx5::kSyndromeNone;
}

/// Executes an entry whose peer is in another process: it ends when the link calls finish_entry().
std::uint8_t NicEngine::run_remote(QueuePair& qp, std::uint64_t index, InFlight& flight,
                                   std::uint8_t opcode) {
    const bool one_sided = opcode == mlx5::kRdmaWrite || opcode == mlx5::kRdmaRead;
    Gather local;
    if (const std::uint8_t fault =
            gather_local(qp, flight.entry, one_sided ? 1 : 0,
                         opcode == mlx5::kRdmaRead ? std::uint32_t{kLocalWrite} : 0u, local);
        fault != mlx5::kSyndromeNone)
        return fault;
    Segment parts[3];
    for (std::uint32_t i = 0; i < local.count; ++i) {
        parts[i] = {local.part[i].data, local.part[i].bytes};
        flight.regions[i] = local.regions[i];
    }
    const std::uint8_t fault = qp.remote->post(index, flight.entry, opcode, {parts, local.count});
    if (fault != mlx5::kSyndromeNone) {
        local.unpin();
        return fault;
    }
    auto& tally = qp.nic->tally.mine();
    count(!one_sided ? tally.sends : opcode == mlx5::kRdmaWrite ? tally.rdma_writes : tally.rdma_reads);
    flight.region_count = local.count;
    flight.held = true;
    qp.holds.store(qp.holds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return mlx5::kSyndromeNone;
}

std::uint8_t NicEngine::run_send(QueuePair& qp, std::uint64_t index, InFlight& flight, std::uint8_t opcode) {
    if (qp.remote != nullptr) return run_remote(qp, index, flight, opcode);
    Gather local;
    if (const std::uint8_t fault = gather_local(qp, flight.entry, 0, 0, local); fault != mlx5::kSyndromeNone)
        return fault;
    QueuePair* const peer = qp.peer.load(std::memory_order_acquire);
    if (peer == nullptr || !peer->ready()) {
        local.unpin();
        return mlx5::kTransportRetryExceeded;
    }
    count(qp.nic->tally.mine().sends);
    const bool invalidate = opcode == mlx5::kSendInvalidate;
    const std::uint32_t rkey = be32(flight.entry.control.imm);
    Segment parts[3];
    for (std::uint32_t i = 0; i < local.count; ++i) parts[i] = {local.part[i].data, local.part[i].bytes};
    const auto bytes = static_cast<std::uint32_t>(local.bytes);
    if (!peer->offload()) {
        const std::uint8_t fault = deliver(*peer, {parts, local.count}, bytes, rkey, invalidate);
        local.unpin();
        return fault;
    }
    if (invalidate) {  // an offload end hands out no keys, so none can be invalidated
        local.unpin();
        return mlx5::kRemoteInvalidRequest;
    }
    InboundMessage message;
    message.qp = peer->qpn;
    message.token = make_token(index, qp.incarnation);
    message.segment_count = local.count;
    message.bytes = bytes;
    for (std::uint32_t i = 0; i < local.count; ++i) {
        message.segments[i] = parts[i];
        flight.regions[i] = local.regions[i];
    }
    flight.region_count = local.count;
    flight.held = true;
    qp.holds.store(qp.holds.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (peer->nic->link != nullptr)
        delay_message(qp, *peer, index, message);
    else
        peer->sink->on_message(message);  // may release, send or fail at once
    return mlx5::kSyndromeNone;
}

/// RDMA WRITE and RDMA READ between the local segments, in order, and one range of the peer.
std::uint8_t NicEngine::run_one_sided(QueuePair& qp, const mlx5::SendEntry& entry, bool write) {
    Gather local;
    if (const std::uint8_t fault = gather_local(qp, entry, 1, write ? 0u : std::uint32_t{kLocalWrite}, local);
        fault != mlx5::kSyndromeNone)
        return fault;
    QueuePair* const peer = qp.peer.load(std::memory_order_acquire);
    if (peer == nullptr || !peer->ready()) {
        local.unpin();
        return mlx5::kTransportRetryExceeded;
    }
    if (peer->offload()) {  // an offload end exposes no memory: it reads and writes the peer's
        local.unpin();
        return mlx5::kRemoteAccessError;
    }
    const mlx5::RemoteAddressSegment& remote = entry.segment[0].remote;
    const MemoryTable::Pin there = peer->nic->memory.pin(be32(remote.rkey), be64(remote.address), local.bytes,
                                                         write ? kRemoteWrite : kRemoteRead);
    std::uint8_t fault = mlx5::kRemoteAccessError;
    if (there.fault == MemoryFault::kNone) {
        std::byte* at = there.data;
        for (std::uint32_t i = 0; i < local.count; ++i) {
            const auto& part = local.part[i];
            std::memcpy(write ? at : part.data, write ? part.data : at, part.bytes);
            at += part.bytes;
        }
        there.region->unpin();
        count(write ? qp.nic->tally.mine().rdma_writes : qp.nic->tally.mine().rdma_reads);
        fault = mlx5::kSyndromeNone;
    }
    local.unpin();
    return fault;
}

/// Whether a receive is posted. Lanes write the record after every poll, so its cache line is read only
/// when all receives known to be posted are used.
bool NicEngine::has_receive(QueuePair& to) {
    if (to.receives_seen != to.receives_used) return true;
    // Acquire: pairs with the poster's release of the receive record: the receive entries are complete,
    // and lanes no longer read their buffers.
    const std::uint32_t record =
        be32(simt::load_acquire<Scope::kSystem>(to.config.doorbell_record + mlx5::kReceiveRecord));
    const std::uint32_t waiting = (record - static_cast<std::uint32_t>(to.receives_used)) & mlx5::kIndexMask;
    if (waiting > to.config.receive_entries) return false;
    to.receives_seen = to.receives_used + waiting;
    return waiting != 0;
}

const mlx5::DataSegment* NicEngine::next_receive(QueuePair& qp) {
    if (!has_receive(qp)) return nullptr;
    return &qp.config.receive_ring[qp.receives_used & (qp.config.receive_entries - 1)];
}

std::uint8_t NicEngine::deliver(QueuePair& to, std::span<const Segment> message, std::uint32_t bytes,
                                std::uint32_t invalidate_rkey, bool invalidate) {
    if (!has_receive(to)) {
        count(to.nic->tally.mine().rnr);
        if (to.strict()) strict_violation(to, "no receive is posted for an arriving SEND", to.receives_used);
        return mlx5::kRnrRetryExceeded;
    }
    mlx5::DataSegment receive;
    copy_once(receive, to.config.receive_ring + (to.receives_used & (to.config.receive_entries - 1)));
    CompletionFields fields;
    fields.qpn = to.qpn;
    fields.wqe_counter = static_cast<std::uint16_t>(to.receives_used++);
    fields.opcode = invalidate ? mlx5::kCqeSendInvalidate : mlx5::kCqeSend;
    fields.bytes = bytes;
    fields.invalidated_rkey = invalidate ? invalidate_rkey : 0;
    std::uint8_t fault = mlx5::kSyndromeNone;
    std::byte small[mlx5::kInlineScatterBytes];
    if (bytes > be32(receive.byte_count)) {
        fields.syndrome = mlx5::kLocalLengthError;
        fault = mlx5::kRemoteInvalidRequest;
    } else if (invalidate && !to.nic->memory.invalidate(invalidate_rkey)) {
        fields.syndrome = mlx5::kLocalQpOperationError;
        fault = mlx5::kRemoteInvalidRequest;
    } else if (to.config.scatter_to_cqe && bytes <= mlx5::kInlineScatterBytes) {
        if (message.size() != 1) copy_parts(small, message);
        fields.inline_data = message.size() == 1 ? message[0].data : small;
    } else {
        const MemoryTable::Pin pin =
            to.nic->memory.pin(be32(receive.lkey), be64(receive.address), bytes, kLocalWrite);
        if (pin.fault == MemoryFault::kNone) {
            store_message(pin.data, message, bytes);
            pin.region->unpin();
        } else {
            fields.syndrome = mlx5::kLocalProtectionError;
            fault = mlx5::kRemoteOperationError;
        }
    }
    if (fields.syndrome != mlx5::kSyndromeNone) {
        fields.opcode = mlx5::kCqeResponseError;
        count(to.nic->tally.mine().error_completions);
    }
    count(to.nic->tally.mine().completions);
    if (!to.receive_cq->write(fields)) {
        if (to.strict()) strict_violation(to, "receive completion queue overrun", to.receives_used);
        if (to.nic->may_complain())
            log_error("rdma: queue pair {:#x}: its receive completion queue has overrun", to.qpn);
        return mlx5::kRemoteOperationError;
    }
    return fault;
}

void NicEngine::send(QueuePair& qp, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey,
                     std::uint32_t written_before) {
    if (!qp.ready()) return;  // in error: the sink has been told
    QueuePair* const peer = qp.peer.load(std::memory_order_acquire);
    const bool remote = qp.remote != nullptr;
    if (!remote && (peer == nullptr || !peer->ready())) return;
    if ((!remote && peer->offload()) || bytes == 0 || bytes > kOffloadSendBytes) {
        log_error(
            "rdma: queue pair {:#x}: cannot send for an offload: a SEND must have 1 to {} bytes, and the "
            "peer must be a queue pair with receives",
            qp.qpn, kOffloadSendBytes);
        fail(qp);
        return;
    }
    count(qp.nic->tally.mine().sends);
    if (remote)
        qp.remote->send(data, bytes, invalidate_rkey);
    else if (qp.nic->link != nullptr)
        delay_send(qp, data, bytes, invalidate_rkey, written_before);
    else
        deliver_send(qp, *peer, data, bytes, invalidate_rkey);
}

void NicEngine::deliver_send(QueuePair& from, QueuePair& to, const void* data, std::uint32_t bytes,
                             std::uint32_t invalidate_rkey) {
    const Segment part{static_cast<const std::byte*>(data), bytes};
    if (deliver(to, {&part, 1}, bytes, invalidate_rkey, invalidate_rkey != 0) != mlx5::kSyndromeNone)
        fail(from);
}

}  // namespace gnstor::rdma
