// fuzz_packet.cpp: any bytes as a UDP payload, and as an IP datagram; what is accepted encodes to the same
// fields.
#include "rdma/roce/icrc.hpp"
#include "rdma/roce/packet.hpp"

#include <cstdlib>
#include <vector>

using namespace gnstor::rdma::roce;

namespace {
void require(bool holds) {
    if (!holds) std::abort();
}

void check(std::span<const std::byte> payload) {
    Packet packet;
    if (decode(payload, packet) != DecodeVerdict::kGood) return;
    const OpcodeTraits& has = traits(packet.opcode);
    require(packet.payload.bytes + has.header_bytes + kIcrcBytes <= payload.size());
    require(encoded_bytes(packet) == payload.size());
    std::vector<std::byte> again(payload.size());
    const auto encoded = encode(packet, again);
    if (!encoded) {
        require(has.atomic || has.atomic_ack);
        return;
    }
    Packet twice;
    require(decode(again, twice) == DecodeVerdict::kGood);
    require(twice.opcode == packet.opcode && twice.psn == packet.psn && twice.address == packet.address);
    require(twice.length == packet.length && twice.syndrome == packet.syndrome && twice.rkey == packet.rkey);
    require(twice.payload.bytes == packet.payload.bytes && twice.queue_pair == packet.queue_pair);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // A copy of the exact size: the sanitizer sees a read past the end.
    const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                       reinterpret_cast<const std::byte*>(data) + size);
    check(bytes);
    std::uint32_t at = 0, count = 0;
    const auto headers = NetworkHeaders::parse(bytes, at, count);
    if (!headers) return 0;
    const auto payload = std::span<const std::byte>(bytes).subspan(at, count);
    check(payload);
    std::vector<std::byte> sealed(payload.begin(), payload.end());
    if (sealed.size() < 16) return 0;
    seal(*headers, sealed);
    require(icrc_is_good(*headers, sealed));
    return 0;
}
