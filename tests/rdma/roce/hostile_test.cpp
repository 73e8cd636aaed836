// hostile_test.cpp: whatever a peer sends, memory stays within what keys allow, and nothing grows.
// GN_SEED=<seed> replays one script.
#include "hostile.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <new>

namespace {
std::uint64_t allocated = 0;  // one thread only
}

// Counts every allocation of this program. Not inlined: g++ 12 would see free() and not the malloc() that it
// belongs to, and take them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++allocated;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    std::abort();
}
// The library's own form would take its memory from elsewhere than where the next one returns it.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

TEST(RoceHostilePeer, AccessesNoMemoryWithoutAKeyAndConsumesNoUnboundedMemory) {
    std::uint64_t first = 1, last = 3000;
    if (const char* seed = std::getenv("GN_SEED")) first = last = std::strtoull(seed, nullptr, 0);
    hostile::Outcome sum;
    for (std::uint64_t seed = first; seed <= last; ++seed) {
        SplitMix64 dice(seed);
        std::vector<std::uint8_t> script(200 + dice.below(2000));
        for (auto& b : script) b = static_cast<std::uint8_t>(dice.next());
        const hostile::Outcome outcome = hostile::play(script, [] { return allocated; });
        ASSERT_TRUE(outcome.sound) << "replay with GN_SEED=" << seed;
        sum.packets += outcome.packets;
        sum.answers += outcome.answers;
        sum.executed += outcome.executed;
        sum.failed += outcome.failed;
        sum.messages += outcome.messages;
    }
    const auto print = [](const char* name, std::uint64_t value) {
        std::printf("GN_COUNT roce_hostile_%s=%llu\n", name, static_cast<unsigned long long>(value));
    };
    print("packets", sum.packets);
    print("answers", sum.answers);
    print("executed", sum.executed);
    print("failed", sum.failed);
    print("messages", sum.messages);
}

// A flood of old READ requests makes no more answers than the driver pulls, and does not stop what is in
// order.
TEST(RoceHostilePeer, AFloodOfOldReadsDoesNotQueue) {
    hostile::Target target;
    Responder responder({.peer_queue_pair = 9, .mtu = hostile::kMtu, .start_psn = 0, .reads_max = 2}, target);
    Packet read;
    read.opcode = Opcode::kReadRequest;
    read.address = hostile::kRegionBase;
    read.rkey = hostile::kReadable;
    read.length = hostile::kRegionBytes;
    responder.on_request(0, read);
    Packet answer;
    std::uint32_t responses = 0;
    while (responder.next_packet(0, answer)) ++responses;
    EXPECT_EQ(responses, hostile::kRegionBytes / hostile::kMtu);
    const std::uint64_t before = allocated;
    for (int i = 0; i < 100'000; ++i) responder.on_request(0, read);
    EXPECT_EQ(allocated, before);
    responses = 0;
    while (responder.next_packet(0, answer)) ++responses;
    EXPECT_EQ(responses, hostile::kRegionBytes / hostile::kMtu) << "answered once, whatever the flood";
    read.psn = hostile::kRegionBytes / hostile::kMtu;
    responder.on_request(0, read);
    ASSERT_TRUE(responder.next_packet(0, answer));
    EXPECT_EQ(answer.psn, read.psn);
}

}  // namespace
