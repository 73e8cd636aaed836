// responder_execute.cpp: checks and executes the packet at the expected number: order of operations,
// lengths, keys. IBA volume 1, 9.7.4.1 (validation of inbound requests), in its order.
#include "rdma/roce/mutation.hpp"
#include "rdma/roce/pacer.hpp"
#include "rdma/roce/responder.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce {

// Whether the operation is allowed now, with this many bytes. Sets `message_` at the first packet of a
// message.
bool Responder::fits(const Packet& packet) {
    const OpcodeTraits& is = traits(packet.opcode);
    const auto invalid = [&] { return refuse(NakCode::kInvalidRequest, mlx5::kLocalQpOperationError); };
    if (!is.request || is.atomic || is.immediate || is.deth) return invalid();
    const bool write = packet.opcode >= Opcode::kWriteFirst && packet.opcode <= Opcode::kWriteOnly;
    const Message kind = write ? Message::kWrite : Message::kSend;
    // A message begins only after the previous one ended, and continues with its own kind (9.7.4.1.2).
    if (is.first ? message_ != Message::kNone : message_ != kind) return invalid();
    const std::uint32_t bytes = packet.payload.bytes;
    if (bytes > options_.mtu || (!is.last && bytes != options_.mtu) || (is.last && !is.first && bytes == 0)) {
        return invalid();
    }
    if (packet.opcode != Opcode::kReadRequest) message_ = kind;
    return true;
}

bool Responder::execute_send(const Packet& packet) {
    const OpcodeTraits& is = traits(packet.opcode);
    if (is.first) {
        if (!port_.take_receive(receive_)) {
            message_ = Message::kNone;
            nak(rnr_syndrome(options_.rnr_timer));
            return false;
        }
        receiving_ = true;
        received_bytes_ = 0;
    }
    const auto pieces = std::span(receive_.pieces).first(std::min(receive_.count, kPiecesMax));
    std::uint64_t room = 0;
    for (const std::span<std::byte> piece : pieces) room += piece.size();
    if (std::uint64_t{received_bytes_} + packet.payload.bytes > room) {
        return refuse(NakCode::kInvalidRequest, mlx5::kLocalLengthError);
    }
    scatter(packet.payload.pieces[0], pieces, received_bytes_);
    received_bytes_ += packet.payload.bytes;
    if (!is.last) return true;
    if (is.ieth && !port_.invalidate(packet.invalidate_rkey)) {
        return refuse(NakCode::kRemoteAccess, mlx5::kRemoteInvalidRequest);
    }
    receiving_ = false;
    port_.received({receive_.id, mlx5::kSyndromeNone, received_bytes_, packet.solicited, is.ieth,
                    packet.invalidate_rkey});
    return true;
}

bool Responder::execute_write(const Packet& packet) {
    const OpcodeTraits& is = traits(packet.opcode);
    const std::uint32_t bytes = packet.payload.bytes;
    const Right right = planted(Mutation::kSkipKeyCheck) ? Right::kRemoteRead : Right::kRemoteWrite;
    if (is.first) {
        write_address_ = packet.address;
        write_rkey_ = packet.rkey;
        write_left_ = packet.length;
    }
    // The length in the first packet's header is the message's (9.7.4.1.6): exactly so many bytes must
    // arrive.
    if (write_left_ > kMessageBytesMax || (is.last ? bytes != write_left_ : bytes >= write_left_)) {
        return refuse(NakCode::kInvalidRequest, mlx5::kLocalQpOperationError);
    }
    if (is.first && write_left_ > 0 &&
        port_.reach(write_rkey_, write_address_, write_left_, right) == nullptr) {
        return refuse(NakCode::kRemoteAccess, mlx5::kLocalAccessError);
    }
    if (bytes == 0) return true;  // without data the key is not checked (9.7.4.1.5)
    std::byte* to = port_.reach(write_rkey_, write_address_, bytes, right);
    if (to == nullptr) return refuse(NakCode::kRemoteAccess, mlx5::kLocalAccessError);
    std::memcpy(to, packet.payload.pieces[0].data(), bytes);
    write_address_ += bytes;
    write_left_ -= bytes;
    return true;
}

bool Responder::execute_read(TimeNs now, const Packet& packet) {
    if (packet.length > kMessageBytesMax) {
        return refuse(NakCode::kInvalidRequest, mlx5::kLocalQpOperationError);
    }
    Read& read = reads_[reads_begun_ % reads_.size()];
    // More READs at once than agreed (9.7.4.1.8). The ring reuses the oldest slot first. A repetition
    // still in progress there may be dropped: the peer has got those responses late, otherwise it would
    // not send a new READ.
    if (read.next < read.end && !read.answered) {
        return refuse(NakCode::kInvalidRequest, mlx5::kLocalQpOperationError);
    }
    if (packet.length > 0 &&
        port_.reach(packet.rkey, packet.address, packet.length, Right::kRemoteRead) == nullptr) {
        return refuse(NakCode::kRemoteAccess, mlx5::kLocalAccessError);
    }
    ++reads_begun_;
    if (options_.pacer != nullptr) options_.pacer->asked(now, packet.length);
    const std::uint32_t packets = packets_of(packet.length, options_.mtu);
    read = Read{};
    read.first = read.next = read.start = expected_;
    read.end = expected_ + packets;
    read.address = packet.address;
    read.rkey = packet.rkey;
    read.bytes = packet.length;
    read.message_number = (message_number_ + 1) & 0xFFFFFFu;
    expected_ += packets;
    return true;
}

}  // namespace gnstor::rdma::roce
