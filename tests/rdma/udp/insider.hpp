// insider.hpp: an attacker who has a connection, made with the right messages by hand, and misuses it: old
// packets again, numbers out of the air, keys and addresses that are not its own. A connection that ended so
// is followed by another one. One thread at a time.
#pragma once

#include <gnstor/base/hash.hpp>

#include "rdma/roce/psn.hpp"
#include "rdma/udp/stranger.hpp"

namespace gnstor::rdma::udp::rig {

class Insider {
  public:
    static constexpr std::uint32_t kReadBytes = 16u << 10;

    /// Its connections are from `numbers` on.
    Insider(const char* address, std::uint16_t port, std::uint32_t numbers)
        : socket_(address, port, port), next_number_(numbers), dice_(numbers) {}

    /// Sends some dozen packets, and returns when the right has taken them; false: it does not answer. Every
    /// so often its connection then ends, by something that is not allowed.
    bool burst() {
        if (!connected_ && !connect()) return false;
        for (std::uint32_t i = 0; i < kReplays; ++i)
            socket_.send(i % 8 == 0 && !old_read_.empty() ? old_read_ : old_write_);
        for (std::uint32_t i = 0; i < kJumps; ++i)
            socket_.send(request(i % 4 == 0 ? roce::Opcode::kReadRequest : roce::Opcode::kWriteOnly,
                                 static_cast<std::uint32_t>(dice_.next()) & roce::kPsnMask));
        if (!confirm(roce::Opcode::kWriteOnly)) return connected_ = false;
        if (++bursts % kBurstsOfALife == 0) misbehave();
        return true;
    }

    std::uint64_t bursts = 0, lives = 0;
    [[nodiscard]] std::uint64_t sent() const { return socket_.sent; }

  private:
    static constexpr std::uint32_t kReplays = 8, kJumps = 8, kBurstsOfALife = 8, kTries = 40;
    static constexpr std::uint32_t kMtu = 1024;  // connection_request()'s
    static constexpr auto kAnswerTime = std::chrono::milliseconds(100);

    void tell(const roce::CmMessage& message) {
        std::array<std::byte, roce::kMadBytes> mad;
        roce::encode_cm(message, mad);
        socket_.send(roce::management_packet(mad, next_number_));
    }
    /// A DREQ among what came is answered: the place in the right's table is wanted again.
    std::optional<roce::CmMessage> management(const roce::Packet& packet) {
        const auto mad = roce::management_datagram(packet);
        auto message = mad ? roce::decode_cm(*mad) : std::nullopt;
        if (!message || message->kind != roce::CmKind::kDisconnect) return message;
        roce::CmMessage answer;
        answer.kind = roce::CmKind::kDisconnected;
        answer.transaction = message->transaction;
        answer.local_id = message->remote_id;
        answer.remote_id = message->local_id;
        tell(answer);
        return std::nullopt;
    }
    bool connect() {
        const std::uint32_t number = next_number_++;
        roce::Packet packet;
        for (std::uint32_t i = 0; i < kTries; ++i) {
            tell(connection_request(number));
            while (socket_.receive(packet, kAnswerTime)) {
                const auto reply = management(packet);
                if (!reply || reply->kind != roce::CmKind::kReply || reply->remote_id != number) continue;
                roce::CmMessage ready;
                ready.kind = roce::CmKind::kReadyToUse;
                ready.transaction = reply->transaction;
                ready.local_id = number;
                ready.remote_id = reply->local_id;
                tell(ready);
                queue_pair_ = reply->queue_pair;
                psn_ = reply->start_psn;
                connected_ = true;
                ++lives;
                return confirm(roce::Opcode::kWriteOnly) && confirm(roce::Opcode::kReadRequest);
            }
        }
        return false;
    }
    roce::Packet request(roce::Opcode opcode, std::uint32_t psn) {
        roce::Packet packet = write_packet(queue_pair_, psn, payload_);
        packet.opcode = opcode;
        if (opcode == roce::Opcode::kWriteOnly) return packet;
        packet.payload = {};
        packet.length = kReadBytes;
        return packet;
    }
    /// A request in its order, again until the right says that it is done, and all before it with it.
    bool confirm(roce::Opcode opcode) {
        const bool read = opcode == roce::Opcode::kReadRequest;
        const std::uint32_t last = (psn_ + (read ? kReadBytes / kMtu : 1) - 1) & roce::kPsnMask;
        std::vector<std::byte> bytes = socket_.sealed(request(opcode, psn_));
        roce::Packet packet;
        for (std::uint32_t i = 0; i < kTries; ++i) {
            socket_.send(bytes);
            while (socket_.receive(packet, kAnswerTime)) {
                (void)management(packet);
                const bool refusal = packet.opcode == roce::Opcode::kAcknowledge &&
                                     roce::ack_kind(packet.syndrome) != roce::AckKind::kAck;
                if (packet.queue_pair == roce::kManagementQueuePair || refusal) continue;
                if (((packet.psn - last) & roce::kPsnMask) >= roce::kPsnMask / 2) continue;
                psn_ = (last + 1) & roce::kPsnMask;
                (read ? old_read_ : old_write_) = std::move(bytes);
                return true;
            }
        }
        return false;
    }
    /// The right ends the connection for each of these.
    void misbehave() {
        roce::Packet packet = request(roce::Opcode::kWriteOnly, psn_);
        switch (lives % 4) {
            case 0:
                packet.rkey += 1;
                break;
            case 1:
                packet.address = std::uint64_t{1} << 40;
                break;
            case 2:
                packet.address = ~std::uint64_t{0} - 8;  // the sum with the length wraps
                break;
            default:
                packet.opcode = roce::Opcode::kWriteLast;  // of none
        }
        for (int i = 0; i < 8; ++i) socket_.send(packet);
        connected_ = false;
    }

    Stranger socket_;
    std::uint32_t next_number_;
    SplitMix64 dice_;
    bool connected_ = false;
    std::uint32_t queue_pair_ = 0, psn_ = 0;
    const std::vector<std::byte> payload_ = std::vector<std::byte>(64, std::byte{0xEE});
    std::vector<std::byte> old_read_, old_write_;  ///< sealed; they were executed
};

}  // namespace gnstor::rdma::udp::rig
