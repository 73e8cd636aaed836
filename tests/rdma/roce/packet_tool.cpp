// packet_tool.cpp: our packets for another program to judge, and another program's for ours.
//
//   roce_packet_tool make COUNT SEED   one line a packet: a whole IP datagram in hexadecimal, then its fields
//   roce_packet_tool cm COUNT SEED     the same of connection management messages
//   roce_packet_tool read              datagrams in hexadecimal, one a line, on standard input: their fields
#include "cm_samples.hpp"
#include "packet_samples.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

void print_fields(const Packet& p, bool icrc_good) {
    std::printf(
        "opcode=%u se=%d ack=%d qp=%u psn=%u va=%llu rkey=%u len=%u syndrome=%u msn=%u inv=%u imm=%u qkey=%u "
        "sqp=%u bytes=%u icrc=%d\n",
        static_cast<unsigned>(p.opcode), p.solicited, p.ack_request, p.queue_pair, p.psn,
        static_cast<unsigned long long>(p.address), p.rkey, p.length, p.syndrome, p.message_number,
        p.invalidate_rkey, p.immediate, p.queue_key, p.source_queue_pair, p.payload.bytes, icrc_good);
}

void print_datagram(const NetworkHeaders& headers, std::span<const std::byte> bytes) {
    for (const auto part : {headers.bytes(), bytes}) {
        for (const std::byte b : part) std::printf("%02x", std::to_integer<unsigned>(b));
    }
    std::printf(" ");
}

int make_packets(std::uint64_t count, std::uint64_t seed) {
    SplitMix64 dice(seed);
    std::vector<std::byte> storage;
    for (std::uint64_t i = 0; i < count; ++i) {
        const Packet packet = samples::make(dice, storage);
        std::vector<std::byte> bytes(encoded_bytes(packet));
        const auto encoded = encode(packet, bytes);
        if (!encoded) {
            std::fprintf(stderr, "%s\n", encoded.error().message.c_str());
            return 1;
        }
        const NetworkHeaders headers = samples::make_headers(dice, *encoded);
        seal(headers, bytes);
        print_datagram(headers, bytes);
        print_fields(packet, true);
    }
    return 0;
}

int make_messages(std::uint64_t count, std::uint64_t seed) {
    SplitMix64 dice(seed);
    for (std::uint64_t i = 0; i < count; ++i) {
        const CmMessage m = samples::make_cm(dice, samples::kCmKinds[i % std::size(samples::kCmKinds)]);
        std::array<std::byte, kMadBytes> mad;
        encode_cm(m, mad);
        const Packet packet = management_packet(mad, static_cast<std::uint32_t>(i));
        std::vector<std::byte> bytes(encoded_bytes(packet));
        const auto encoded = encode(packet, bytes);
        if (!encoded) return 1;
        const NetworkHeaders headers = samples::make_headers(dice, *encoded);
        seal(headers, bytes);
        print_datagram(headers, bytes);
        std::printf(
            "kind=%u tid=%llu local=%u remote=%u qpn=%u psn=%u resources=%u depth=%u rnr=%u service=%llu "
            "mtu=%u "
            "retry=%u cmretries=%u acktimeout=%u reason=%u\n",
            static_cast<unsigned>(m.kind), static_cast<unsigned long long>(m.transaction), m.local_id,
            m.remote_id, m.queue_pair, m.start_psn, m.responder_resources, m.initiator_depth, m.rnr_retries,
            static_cast<unsigned long long>(m.service_id), m.mtu_code, m.retry_count, m.cm_retries,
            m.ack_timeout, static_cast<unsigned>(m.reason));
    }
    return 0;
}

int read_packets() {
    for (std::string line; std::getline(std::cin, line);) {
        std::vector<std::byte> datagram;
        for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
            datagram.push_back(static_cast<std::byte>(std::stoul(line.substr(i, 2), nullptr, 16)));
        }
        std::uint32_t at = 0, bytes = 0;
        const auto headers = NetworkHeaders::parse(datagram, at, bytes);
        if (!headers) {
            std::printf("refused: %s\n", headers.error().message.c_str());
            continue;
        }
        const auto payload = std::span<const std::byte>(datagram).subspan(at, bytes);
        Packet packet;
        const DecodeVerdict verdict = decode(payload, packet);
        if (verdict != DecodeVerdict::kGood) {
            std::printf("refused: %s\n", std::string(name_of(verdict)).c_str());
            continue;
        }
        print_fields(packet, icrc_is_good(*headers, payload));
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 4 && std::strcmp(argv[1], "make") == 0) {
        return make_packets(std::strtoull(argv[2], nullptr, 0), std::strtoull(argv[3], nullptr, 0));
    }
    if (argc == 4 && std::strcmp(argv[1], "cm") == 0) {
        return make_messages(std::strtoull(argv[2], nullptr, 0), std::strtoull(argv[3], nullptr, 0));
    }
    if (argc == 2 && std::strcmp(argv[1], "read") == 0) return read_packets();
    std::fprintf(stderr, "usage: roce_packet_tool make COUNT SEED | cm COUNT SEED | read\n");
    return 2;
}
