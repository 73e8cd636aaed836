// packet.cpp: encodes and decodes headers, by one table of what each operation carries.
#include "rdma/roce/packet.hpp"

#include <gnstor/base/endian.hpp>

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce {
namespace {

enum Carries : std::uint32_t {
    kReth = 1,
    kAeth = 2,
    kIeth = 4,
    kImm = 8,
    kDeth = 16,
    kAtomic = 32,
    kAtomicAck = 64,
    kData = 128,
    kFirst = 256,
    kLast = 512,
    kToResponder = 1024,
};

constexpr OpcodeTraits make(std::uint32_t has) {
    OpcodeTraits t;
    t.known = true;
    t.request = (has & kToResponder) != 0;
    t.reth = (has & kReth) != 0;
    t.aeth = (has & kAeth) != 0;
    t.ieth = (has & kIeth) != 0;
    t.immediate = (has & kImm) != 0;
    t.deth = (has & kDeth) != 0;
    t.atomic = (has & kAtomic) != 0;
    t.atomic_ack = (has & kAtomicAck) != 0;
    t.payload = (has & kData) != 0;
    t.first = (has & kFirst) != 0;
    t.last = (has & kLast) != 0;
    t.header_bytes = sizeof(Bth) + (t.reth ? sizeof(Reth) : 0) + (t.aeth ? sizeof(Aeth) : 0) +
                     (t.ieth ? sizeof(Ieth) : 0) + (t.immediate ? sizeof(ImmediateHeader) : 0) +
                     (t.deth ? sizeof(Deth) : 0) + (t.atomic ? kAtomicHeaderBytes : 0) +
                     (t.atomic_ack ? kAtomicAckBytes : 0);
    return t;
}

// Table 35 of IBA 9.2: the headers and payload of each operation.
constexpr std::array<OpcodeTraits, 256> make_table() {
    std::array<OpcodeTraits, 256> table{};
    const auto set = [&](Opcode opcode, std::uint32_t has) {
        table[static_cast<std::uint8_t>(opcode)] = make(has);
    };
    constexpr std::uint32_t request = kToResponder;
    set(Opcode::kSendFirst, request | kData | kFirst);
    set(Opcode::kSendMiddle, request | kData);
    set(Opcode::kSendLast, request | kData | kLast);
    set(Opcode::kSendLastImmediate, request | kData | kLast | kImm);
    set(Opcode::kSendOnly, request | kData | kFirst | kLast);
    set(Opcode::kSendOnlyImmediate, request | kData | kFirst | kLast | kImm);
    set(Opcode::kWriteFirst, request | kData | kFirst | kReth);
    set(Opcode::kWriteMiddle, request | kData);
    set(Opcode::kWriteLast, request | kData | kLast);
    set(Opcode::kWriteLastImmediate, request | kData | kLast | kImm);
    set(Opcode::kWriteOnly, request | kData | kFirst | kLast | kReth);
    set(Opcode::kWriteOnlyImmediate, request | kData | kFirst | kLast | kReth | kImm);
    set(Opcode::kReadRequest, request | kFirst | kLast | kReth);
    set(Opcode::kReadResponseFirst, kData | kFirst | kAeth);
    set(Opcode::kReadResponseMiddle, kData);
    set(Opcode::kReadResponseLast, kData | kLast | kAeth);
    set(Opcode::kReadResponseOnly, kData | kFirst | kLast | kAeth);
    set(Opcode::kAcknowledge, kFirst | kLast | kAeth);
    set(Opcode::kAtomicAcknowledge, kFirst | kLast | kAeth | kAtomicAck);
    set(Opcode::kCompareSwap, request | kFirst | kLast | kAtomic);
    set(Opcode::kFetchAdd, request | kFirst | kLast | kAtomic);
    set(Opcode::kSendLastInvalidate, request | kData | kLast | kIeth);
    set(Opcode::kSendOnlyInvalidate, request | kData | kFirst | kLast | kIeth);
    set(Opcode::kUdSendOnly, request | kData | kFirst | kLast | kDeth);
    return table;
}
constexpr std::array<OpcodeTraits, 256> kTable = make_table();

template <class Header>
Header take(const std::byte*& at) noexcept {
    static_assert(std::is_trivially_copyable_v<Header>);
    Header header;
    std::memcpy(&header, at, sizeof(header));
    at += sizeof(header);
    return header;
}

template <class Header>
void put(std::byte*& at, const Header& header) noexcept {
    std::memcpy(at, &header, sizeof(header));
    at += sizeof(header);
}

constexpr std::uint32_t pad_of(std::uint32_t bytes) noexcept {
    return (4 - (bytes & 3u)) & 3u;
}

// Extended headers in the order of IBA 9.2, figure 62 and table 35.
void take_extended(const OpcodeTraits& has, const std::byte* at, Packet& packet) noexcept {
    if (has.deth) {
        const auto deth = take<Deth>(at);
        packet.queue_key = be32(deth.queue_key);
        packet.source_queue_pair = be32(deth.reserved_source) & kQpMask;
    }
    if (has.reth) {
        const auto reth = take<Reth>(at);
        packet.address = (std::uint64_t{be32(reth.address_high)} << 32) | be32(reth.address_low);
        packet.rkey = be32(reth.rkey);
        packet.length = be32(reth.length);
    }
    if (has.aeth) {
        const std::uint32_t word = be32(take<Aeth>(at).syndrome_msn);
        packet.syndrome = static_cast<std::uint8_t>(word >> 24);
        packet.message_number = word & 0xFFFFFFu;
    }
    if (has.ieth) packet.invalidate_rkey = be32(take<Ieth>(at).rkey);
    if (has.immediate) packet.immediate = be32(take<ImmediateHeader>(at).data);
}

void put_extended(const OpcodeTraits& has, std::byte*& at, const Packet& packet) noexcept {
    if (has.deth) put(at, Deth{be32(packet.queue_key), be32(packet.source_queue_pair & kQpMask)});
    if (has.reth) {
        put(at,
            Reth{be32(static_cast<std::uint32_t>(packet.address >> 32)),
                 be32(static_cast<std::uint32_t>(packet.address)), be32(packet.rkey), be32(packet.length)});
    }
    if (has.aeth) {
        put(at, Aeth{be32((std::uint32_t{packet.syndrome} << 24) | (packet.message_number & 0xFFFFFFu))});
    }
    if (has.ieth) put(at, Ieth{be32(packet.invalidate_rkey)});
    if (has.immediate) put(at, ImmediateHeader{be32(packet.immediate)});
}

}  // namespace

void Payload::add(std::span<const std::byte> piece) noexcept {
    if (piece.empty() || count == kPiecesMax) return;
    pieces[count++] = piece;
    bytes += static_cast<std::uint32_t>(piece.size());
}

void scatter(std::span<const std::byte> bytes, std::span<const std::span<std::byte>> pieces,
             std::uint64_t at) noexcept {
    for (const std::span<std::byte> piece : pieces) {
        if (bytes.empty()) return;
        if (at >= piece.size()) {
            at -= piece.size();
            continue;
        }
        const std::size_t take = std::min<std::size_t>(bytes.size(), piece.size() - at);
        std::memcpy(piece.data() + at, bytes.data(), take);
        bytes = bytes.subspan(take);
        at = 0;
    }
}

const OpcodeTraits& traits(Opcode opcode) noexcept {
    return kTable[static_cast<std::uint8_t>(opcode)];
}

DecodeVerdict decode(std::span<const std::byte> bytes, Packet& packet) noexcept {
    if (bytes.size() < sizeof(Bth) + kIcrcBytes) return DecodeVerdict::kShort;
    if (bytes.size() > kHeaderBytesMax + kMtuMax + kIcrcBytes) return DecodeVerdict::kTooLong;
    const std::byte* at = bytes.data();
    const Bth bth = take<Bth>(at);
    if ((bth.flags & 0x0Fu) != 0) return DecodeVerdict::kVersion;
    const OpcodeTraits& has = kTable[bth.opcode];
    if (!has.known) return DecodeVerdict::kOpcode;
    // Bit 15 is full or limited membership; the other 15 name the partition, and only the default one is
    // supported.
    if ((be16(bth.partition_key) & 0x7FFFu) != 0x7FFFu) return DecodeVerdict::kPartition;
    if (bytes.size() < has.header_bytes + kIcrcBytes) return DecodeVerdict::kShort;

    packet = Packet{};
    packet.opcode = static_cast<Opcode>(bth.opcode);
    packet.solicited = (bth.flags & kFlagSolicited) != 0;
    packet.partition_key = be16(bth.partition_key);
    const std::uint32_t qp = be32(bth.reserved_qp);
    packet.queue_pair = qp & kQpMask;
    packet.congestion = (qp >> 30) != 0;
    const std::uint32_t psn = be32(bth.ack_psn);
    packet.psn = psn & 0xFFFFFFu;
    packet.ack_request = (psn & kAckRequest) != 0;
    take_extended(has, at, packet);

    const auto rest = static_cast<std::uint32_t>(bytes.size()) - has.header_bytes - kIcrcBytes;
    const std::uint32_t pad = (bth.flags >> 4) & 3u;
    if (pad > rest || (pad != 0 && has.payload && !has.last)) return DecodeVerdict::kPad;
    if (!has.payload && rest != 0) return DecodeVerdict::kPayload;
    // Headers are multiples of four bytes, and so is a padded payload (9.2.4).
    if (rest % 4 != 0) return DecodeVerdict::kPad;
    if (rest - pad > kMtuMax) return DecodeVerdict::kTooLong;
    packet.payload.add(bytes.subspan(has.header_bytes, rest - pad));
    return DecodeVerdict::kGood;
}

std::optional<QuotedPacket> decode_quoted(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() < sizeof(Bth)) return std::nullopt;
    const std::byte* at = bytes.data();
    const auto bth = take<Bth>(at);
    return QuotedPacket{.queue_pair = be32(bth.reserved_qp) & kQpMask, .psn = be32(bth.ack_psn) & 0xFFFFFFu};
}

std::uint32_t encoded_bytes(const Packet& packet) noexcept {
    const std::uint32_t payload = packet.payload.bytes;
    return traits(packet.opcode).header_bytes + payload + pad_of(payload) + kIcrcBytes;
}

Result<std::uint32_t> encode(const Packet& packet, std::span<std::byte> out) {
    const OpcodeTraits& has = traits(packet.opcode);
    const std::uint32_t bytes = encoded_bytes(packet);
    const std::uint32_t pad = pad_of(packet.payload.bytes);
    if (!has.known || has.atomic || has.atomic_ack) {
        return error(Errc::kInvalidArgument,
                     "a RoCE packet cannot be encoded: this transport never sends opcode {:#04x}",
                     static_cast<unsigned>(packet.opcode));
    }
    if (out.size() < bytes || packet.payload.bytes > kMtuMax || (!has.payload && packet.payload.bytes != 0) ||
        (pad != 0 && !has.last)) {
        return error(Errc::kInvalidArgument,
                     "a RoCE packet {} cannot be encoded: it has {} payload bytes and {} bytes in all, and "
                     "the buffer has {}; give a larger buffer, or a payload that the operation allows",
                     name_of(packet.opcode), packet.payload.bytes, bytes, out.size());
    }
    std::byte* at = out.data();
    put(at,
        Bth{static_cast<std::uint8_t>(packet.opcode),
            static_cast<std::uint8_t>((packet.solicited ? kFlagSolicited : 0u) | kFlagMigrated | (pad << 4)),
            be16(packet.partition_key), be32(packet.queue_pair & kQpMask),
            be32((packet.ack_request ? kAckRequest : 0u) | (packet.psn & 0xFFFFFFu))});
    put_extended(has, at, packet);
    for (std::uint32_t i = 0; i < packet.payload.count; ++i) {
        const auto piece = packet.payload.pieces[i];
        std::memcpy(at, piece.data(), piece.size());
        at += piece.size();
    }
    std::memset(at, 0, pad);
    return bytes;
}

}  // namespace gnstor::rdma::roce
