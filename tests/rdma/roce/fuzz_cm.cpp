// fuzz_cm.cpp: any bytes as a MAD; what is accepted encodes to a message that decodes to the same. Then the
// bytes as a script of messages and decisions for one connection manager, whose table stays bounded and
// empties in the end.
#include "cm_samples.hpp"
#include "rdma/roce/connection_manager.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {
void require(bool holds) {
    if (!holds) std::abort();
}

void check_message(std::span<const std::byte> bytes) {
    std::array<std::byte, kMadBytes> mad{};
    std::memcpy(mad.data(), bytes.data(), std::min(bytes.size(), mad.size()));
    // The header is made good, so that bodies are reached.
    const std::uint8_t header[4] = {1, 7, 2, 3};
    std::memcpy(mad.data(), header, 4);
    mad[16] = std::byte{0};
    const auto once = decode_cm(mad);
    if (!once) return;
    std::array<std::byte, kMadBytes> again;
    encode_cm(*once, again);
    const auto twice = decode_cm(again);
    require(twice && twice->kind == once->kind && twice->queue_pair == once->queue_pair);
    require(twice->private_data == once->private_data && twice->start_psn == once->start_psn);
    (void)decode_ip_addresses(std::span(once->private_data).first(once->private_bytes));
}

void play(std::span<const std::byte> script) {
    CmOptions options;
    options.connections_max = 8;
    options.half_open_max = 4;
    ConnectionManager manager(options);
    require(manager.listen(1).ok());
    SplitMix64 dice(1);
    TimeNs now = 0;
    std::uint32_t known[4] = {};  // ids that the peer has seen
    Gid peer{};
    for (std::size_t i = 0; i + 3 < script.size(); i += 4) {
        const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(script[i + at]); };
        CmMessage message = samples::make_cm(dice, samples::kCmKinds[byte(0) % 7]);
        message.service_id = 1;
        message.local_id = byte(1) % 4;
        message.transaction = byte(2) % 4;
        if (message.kind != CmKind::kRequest) message.remote_id = known[byte(2) % 4];
        peer[15] = byte(3) < 250 ? 1 : 2;
        manager.on_message(now, peer, message);
        const CmId id = known[byte(3) % 4];
        if (byte(3) % 7 == 1) (void)manager.connect(now, peer, {});
        if (byte(3) % 7 == 2) manager.disconnect(now, id);
        if (byte(3) % 7 == 3) manager.heard(now, id);
        now += byte(1) * TimeNs{10'000'000};
        manager.on_time(now);
        CmEvent event;
        while (manager.next_event(event)) {
            if (event.kind != CmEventKind::kRequested || byte(2) % 8 == 0) continue;
            require((byte(2) % 2 == 0 ? manager.accept(now, event.id, {})
                                      : manager.reject(now, event.id, RejectReason::kConsumer, {}))
                        .ok());
        }
        for (std::uint32_t sent = 0; manager.next_message(peer, message); ++sent) {
            require(sent < 100);
            known[byte(0) % 4] = message.local_id;
        }
        require(manager.open_connections() <= 8 && manager.half_open() <= 8);
    }
    // Silence: what is not established ends.
    for (int i = 0; i < 100; ++i) {
        now += 10'000'000'000;
        manager.on_time(now);
        CmEvent event;
        while (manager.next_event(event)) {
        }
        CmMessage message;
        while (manager.next_message(peer, message)) {
        }
    }
    require(manager.next_deadline() == kNever && manager.half_open() == 0);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    check_message(bytes);
    play(bytes);
    return 0;
}
