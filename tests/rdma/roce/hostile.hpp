// hostile.hpp: a peer that sends anything, against one connection whose memory is watched. The script is
// bytes: of a random generator (hostile_test.cpp) or of a fuzzer (fuzz_connection.cpp).
//
// What must hold whatever comes: bytes that no key allows to write stay as they are; reads leave from memory
// that a key allows to read; each packet causes a bounded number of answers; nothing is allocated.
#pragma once

#include "rdma/roce/connection.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace gnstor::rdma::roce::hostile {

/// Bytes of a script; zeros after its end.
class Script {
  public:
    explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool empty() const noexcept { return at_ >= bytes_.size(); }
    std::uint8_t byte() noexcept { return at_ < bytes_.size() ? bytes_[at_++] : 0; }
    std::uint32_t word() noexcept {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) value = (value << 8) | byte();
        return value;
    }

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
};

inline constexpr std::uint32_t kMtu = 256, kRegionBytes = 4096;
enum Key : std::uint32_t { kWritable = 1, kReadable = 2, kNothing = 3 };
inline constexpr std::uint64_t kRegionBase = 0xFFFF'FFFF'FFFF'0000ull;  ///< so that sums of addresses wrap

class Target final : public MemoryPort {
  public:
    Target() {
        for (auto& region : regions) region.assign(kRegionBytes, std::byte{0xC3});
        receive_memory.resize(600);
    }
    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right right) override {
        if (bytes == 0) sound = false;  // never asked for nothing
        if (rkey != (right == Right::kRemoteWrite ? kWritable : kReadable) && rkey != kWritable)
            return nullptr;
        if (address < kRegionBase || address - kRegionBase > kRegionBytes ||
            bytes > kRegionBytes - (address - kRegionBase)) {
            return nullptr;
        }
        return regions[rkey == kWritable ? 0 : 1].data() + (address - kRegionBase);
    }
    bool invalidate(std::uint32_t rkey) override { return rkey == kWritable; }
    bool take_receive(ReceiveBuffer& receive) override {
        if (receives == 0 || receiving) return false;
        --receives;
        receiving = true;
        receive = {};
        receive.pieces[0] = std::span(receive_memory).first(100);
        receive.pieces[1] = std::span(receive_memory).subspan(100);
        receive.count = 2;
        return true;
    }
    void received(const Received& one) override {
        if (!receiving || one.bytes > receive_memory.size()) sound = false;
        receiving = false;
        ++messages;
    }
    [[nodiscard]] bool untouched() const {
        return std::all_of(regions + 1, regions + 3, [](const std::vector<std::byte>& region) {
            return std::all_of(region.begin(), region.end(),
                               [](std::byte b) { return b == std::byte{0xC3}; });
        });
    }
    [[nodiscard]] bool may_leave(std::span<const std::byte> piece) const {
        return std::any_of(regions, regions + 2, [&](const std::vector<std::byte>& region) {
            return piece.data() >= region.data() &&
                   piece.data() + piece.size() <= region.data() + region.size();
        });
    }

    std::vector<std::byte> regions[3];  ///< writable and readable, readable, under no key
    std::vector<std::byte> receive_memory;
    std::uint32_t receives = 0;
    bool receiving = false, sound = true;
    std::uint64_t messages = 0;
};

struct Outcome {
    bool sound = true;
    std::uint64_t packets = 0, answers = 0, executed = 0, failed = 0, messages = 0;
};

/// One packet from the script: mostly plausible, so that deep states are reached.
inline Packet invent(Script& script, std::uint32_t expected_psn, std::span<const std::byte> data) {
    Packet packet;
    static constexpr Opcode kOften[] = {
        Opcode::kSendOnly,          Opcode::kSendFirst,          Opcode::kSendMiddle,
        Opcode::kSendLast,          Opcode::kWriteOnly,          Opcode::kWriteFirst,
        Opcode::kWriteMiddle,       Opcode::kWriteLast,          Opcode::kReadRequest,
        Opcode::kReadRequest,       Opcode::kAcknowledge,        Opcode::kReadResponseOnly,
        Opcode::kReadResponseFirst, Opcode::kReadResponseMiddle, Opcode::kReadResponseLast,
        Opcode::kSendOnlyInvalidate};
    const std::uint8_t kind = script.byte();
    packet.opcode = kind < 240 ? kOften[kind % std::size(kOften)] : static_cast<Opcode>(script.byte());
    if (!traits(packet.opcode).known) packet.opcode = Opcode::kSendLastInvalidate;
    const std::uint8_t where = script.byte();
    packet.psn = expected_psn;
    if (where >= 128) packet.psn += where < 250 ? where % 16 - 8u : script.word();
    packet.psn &= kPsnMask;
    packet.ack_request = (where & 1u) != 0;
    const std::uint8_t sizes = script.byte();
    std::uint32_t bytes = sizes < 100 ? kMtu : sizes;
    if (sizes >= 250) bytes = script.word() % (kMtuMax + 1);
    const std::uint8_t place = script.byte();
    packet.address = kRegionBase + (place < 200    ? place * 16u
                                    : place >= 250 ? 0xF000 + script.byte()
                                                   : 4096 - place % 16);
    if (place == 255) packet.address = script.word();
    packet.rkey = place % 8 == 7 ? script.word() : 1 + place % 3;
    const std::uint8_t length = script.byte();
    packet.length = length < 100 ? bytes : length < 250 ? length * 8u : script.word();
    packet.syndrome = script.byte();
    packet.message_number = script.byte();
    packet.invalidate_rkey = packet.rkey;
    if (traits(packet.opcode).payload) packet.payload.add(data.first(bytes));
    return packet;
}

/// The message that the responder is in, as far as an honest peer would know.
struct Course {
    bool send = false, write = false;
    std::uint32_t left = 0;  ///< of a WRITE, or of a SEND as its receive has room
};

/// A packet that an honest peer might send next.
inline Packet go_on(Script& script, const Course& course, std::uint32_t expected_psn,
                    std::span<const std::byte> data) {
    Packet packet;
    packet.psn = expected_psn;
    const std::uint8_t choice = script.byte();
    packet.ack_request = (choice & 1u) != 0;
    packet.rkey = choice % 3 == 0 ? kReadable : kWritable;
    packet.address = kRegionBase + script.byte() * 8u;
    std::uint32_t bytes = choice % 97;
    if (course.send || course.write) {
        const bool last = course.left <= kMtu;
        bytes = last ? course.left : kMtu;
        packet.opcode = course.send ? (last ? Opcode::kSendLast : Opcode::kSendMiddle)
                                    : (last ? Opcode::kWriteLast : Opcode::kWriteMiddle);
    } else if (choice < 90) {
        packet.opcode = Opcode::kReadRequest;
        packet.length = choice * 16u;
        bytes = 0;
    } else if (choice < 170) {
        packet.rkey = kWritable;
        packet.opcode = choice < 120 ? Opcode::kWriteOnly : Opcode::kWriteFirst;
        packet.length = choice < 120 ? bytes : kMtu + choice * 5u;
        bytes = choice < 120 ? bytes : kMtu;
    } else {
        packet.opcode = choice < 220 ? Opcode::kSendOnly : Opcode::kSendFirst;
        bytes = choice < 220 ? bytes : kMtu;
    }
    packet.payload.add(data.first(bytes));
    return packet;
}

inline void note_executed(Course& course, const Packet& packet) {
    const OpcodeTraits& is = traits(packet.opcode);
    if (is.last || packet.opcode == Opcode::kReadRequest) {
        course = {};
    } else if (is.first) {
        course.send = packet.opcode == Opcode::kSendFirst;
        course.write = !course.send;
        course.left = (course.send ? 600 : packet.length) - kMtu;
    } else {
        course.left -= std::min(course.left, packet.payload.bytes);
    }
}

/// Plays a script. `allocations` gives the number of allocations so far, or null.
inline Outcome play(std::span<const std::uint8_t> bytes, std::uint64_t (*allocations)() = nullptr) {
    Script script(bytes);
    Outcome outcome;
    const std::vector<std::byte> data(kMtuMax, std::byte{0x99});
    std::vector<std::byte> read_into(3 * kMtu + 5);
    const std::uint32_t start = script.word() & kPsnMask;
    while (!script.empty()) {
        Target target;
        Connection connection({.peer_queue_pair = 9,
                               .mtu = kMtu,
                               .start_psn = start,
                               .depth = 4,
                               .reads_max = 2,
                               .window_packets = 8,
                               .retries = 2},
                              {.peer_queue_pair = 9, .mtu = kMtu, .start_psn = start, .reads_max = 2},
                              target);
        TimeNs now = 0;
        Course course;
        Request request;
        request.kind = RequestKind::kRead;
        request.pieces[0] = read_into;
        request.count = 1;
        bool posted = connection.post(request).ok();
        request.kind = RequestKind::kSend;
        posted = posted && connection.post(request).ok();
        outcome.sound &= posted;
        const std::uint64_t before = allocations != nullptr ? allocations() : 0;
        std::uint32_t expected = start, silence = 0;
        while (!script.empty() && silence < 8) {
            target.receives = script.byte() % 3;
            const Packet packet =
                script.byte() < 200 ? go_on(script, course, expected, data) : invent(script, expected, data);
            const std::uint64_t executed = connection.responder().counters().executed;
            connection.on_packet(now, packet);
            if (connection.responder().counters().executed != executed) {
                expected = packet.psn +
                           (packet.opcode == Opcode::kReadRequest ? packets_of(packet.length, kMtu) : 1);
            }
            now += 20'000;
            connection.on_time(now);
            ++outcome.packets;
            // Responses to READs of at most a region, repeated ones included, and what the window allows.
            Packet answer;
            std::uint32_t count = 0;
            for (; count < 200 && connection.next_packet(now, answer); ++count) {
                ++outcome.answers;
                const bool response = !traits(answer.opcode).request;
                for (std::uint32_t i = 0; response && i < answer.payload.count; ++i) {
                    outcome.sound &= target.may_leave(answer.payload.pieces[i]);
                }
            }
            outcome.sound &= count < 200 && target.sound;
            if (connection.failed()) ++silence;
            Completion completion;
            while (connection.next_completion(completion)) outcome.sound &= completion.id == 0;
        }
        if (allocations != nullptr) outcome.sound &= allocations() == before;
        outcome.sound &= target.untouched();
        outcome.executed += connection.responder().counters().executed;
        outcome.failed += connection.failed() ? 1 : 0;
        outcome.messages += target.messages;
    }
    return outcome;
}

}  // namespace gnstor::rdma::roce::hostile
