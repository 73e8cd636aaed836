// fuzz_capsule.cpp: any bytes, cut anywhere, as a capsule of either queue kind. First byte: kind and number
// of cuts.
#include "nvmf/protocol/capsule.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

using namespace gnstor;

namespace {
void require(bool holds) {
    if (!holds) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 3) return 0;
    const auto kind = (data[0] & 1) != 0 ? nvmf::QueueKind::kIo : nvmf::QueueKind::kAdmin;
    const std::uint32_t cut = data[1] | (std::uint32_t{data[2]} << 8);
    // A copy of the exact size: the sanitizer sees a read past the end.
    const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 3,
                                       reinterpret_cast<const std::byte*>(data) + size);
    const auto total = static_cast<std::uint32_t>(bytes.size());
    const std::uint32_t at = (data[0] & 2) != 0 ? cut % (total + 1) : total;
    const rdma::Segment pieces[] = {{bytes.data(), at}, {bytes.data() + at, total - at}};
    const nvmf::MessageBytes message(pieces);
    const auto parsed = nvmf::parse_capsule(message, kind);
    require((parsed.verdict == nvmf::Verdict::kRefused) == !nvme::ok(parsed.status));
    if (parsed.verdict != nvmf::Verdict::kGood) return 0;
    const nvmf::Capsule& capsule = parsed.capsule;
    require(capsule.bytes <= nvmf::kTransferBytesMax);
    require((capsule.payload == nvmf::Payload::kNone) == (capsule.direction == nvmf::Direction::kNone));
    if (capsule.payload != nvmf::Payload::kInCapsule) return 0;
    require(capsule.direction == nvmf::Direction::kToDrive && capsule.bytes <= nvmf::kInCapsuleBytes);
    std::vector<std::byte> copy(capsule.bytes);
    message.copy(capsule.offset, capsule.bytes, copy.data());
    const std::byte* in_place = message.contiguous(capsule.offset, capsule.bytes);
    require(in_place == nullptr || std::equal(copy.begin(), copy.end(), in_place));
    return 0;
}
