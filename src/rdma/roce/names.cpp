// names.cpp: names of operations and verdicts for messages, and the AETH's tables of RNR times and
// credits.
#include "rdma/roce/packet.hpp"

namespace gnstor::rdma::roce {

std::string_view name_of(Opcode opcode) noexcept {
    switch (opcode) {
        case Opcode::kSendFirst:
            return "SEND first";
        case Opcode::kSendMiddle:
            return "SEND middle";
        case Opcode::kSendLast:
            return "SEND last";
        case Opcode::kSendLastImmediate:
            return "SEND last with immediate";
        case Opcode::kSendOnly:
            return "SEND only";
        case Opcode::kSendOnlyImmediate:
            return "SEND only with immediate";
        case Opcode::kWriteFirst:
            return "RDMA WRITE first";
        case Opcode::kWriteMiddle:
            return "RDMA WRITE middle";
        case Opcode::kWriteLast:
            return "RDMA WRITE last";
        case Opcode::kWriteLastImmediate:
            return "RDMA WRITE last with immediate";
        case Opcode::kWriteOnly:
            return "RDMA WRITE only";
        case Opcode::kWriteOnlyImmediate:
            return "RDMA WRITE only with immediate";
        case Opcode::kReadRequest:
            return "RDMA READ request";
        case Opcode::kReadResponseFirst:
            return "RDMA READ response first";
        case Opcode::kReadResponseMiddle:
            return "RDMA READ response middle";
        case Opcode::kReadResponseLast:
            return "RDMA READ response last";
        case Opcode::kReadResponseOnly:
            return "RDMA READ response only";
        case Opcode::kAcknowledge:
            return "acknowledge";
        case Opcode::kAtomicAcknowledge:
            return "atomic acknowledge";
        case Opcode::kCompareSwap:
            return "compare and swap";
        case Opcode::kFetchAdd:
            return "fetch and add";
        case Opcode::kSendLastInvalidate:
            return "SEND last with invalidate";
        case Opcode::kSendOnlyInvalidate:
            return "SEND only with invalidate";
        case Opcode::kUdSendOnly:
            return "UD SEND only";
    }
    return "unknown operation";
}

std::string_view name_of(DecodeVerdict verdict) noexcept {
    switch (verdict) {
        case DecodeVerdict::kGood:
            return "good";
        case DecodeVerdict::kShort:
            return "ends before its headers do";
        case DecodeVerdict::kVersion:
            return "transport header version is not 0";
        case DecodeVerdict::kOpcode:
            return "unknown operation";
        case DecodeVerdict::kPad:
            return "pad count does not fit";
        case DecodeVerdict::kPayload:
            return "has a payload although its operation carries none";
        case DecodeVerdict::kPartition:
            return "not the default partition";
        case DecodeVerdict::kTooLong:
            return "longer than the largest MTU allows";
    }
    return "unknown verdict";
}

std::uint64_t rnr_timer_ns(std::uint8_t timer) noexcept {
    // Table 45, in units of 10 us; code 0 is the longest.
    static constexpr std::uint16_t kTens[32] = {
        65535, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
        256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    const std::uint64_t tens = (timer & 0x1Fu) == 0 ? 65536 : kTens[timer & 0x1Fu];
    return tens * 10'000;
}

std::uint32_t credits_of(std::uint8_t code) noexcept {
    // Table 48: 0, 1, 2, 3, 4, 6, 8, 12, 16, … 32768.
    code &= 0x1Fu;
    if (code < 3) return code;
    return (code & 1u) != 0 ? 3u << ((code - 3) / 2) : 4u << ((code - 4) / 2);
}

}  // namespace gnstor::rdma::roce
