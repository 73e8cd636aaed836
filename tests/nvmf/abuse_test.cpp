// abuse_test.cpp: hosts that break the rules, vanish under load, or send garbage: the target and the other
// hosts go on.
#include "loop_rig.hpp"
#include "support/count.hpp"
#include "support/live_bytes.hpp"
#include "support/seed.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace gnstor::nvmf {
namespace {

using nvme::IoOpcode;
using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kCapsules = 60'000;
constexpr int kRounds = 15;
#else
constexpr std::uint64_t kCapsules = 600'000;
constexpr int kRounds = 150;
#endif
constexpr std::uint64_t kReadsAtOnce = 16, kSlices = 100;
/// What abusers may cost an honest host, and what is allocated meanwhile at most. A read takes 3 to 6 times
/// as long beside three threads that spin on two processors; one that waits for a defect takes hundreds.
constexpr double kSlowerMost = 15;
constexpr std::int64_t kMemoryMost = 8 << 20;

/// Half noise, half nearly right, or nothing would get past the first check.
std::uint32_t garbage_capsule(SplitMix64& random, std::span<std::byte> bytes, const Buffer& memory,
                              bool admin) {
    for (std::size_t at = 0; at + 8 <= bytes.size() && at < 128; at += 8) {
        const std::uint64_t word = random.next();
        std::memcpy(bytes.data() + at, &word, 8);
    }
    // A message that is not even a command, or too long, ends its connection: seldom, or nothing else is
    // tried.
    const std::uint64_t shape = random.below(2000);
    if (shape == 0) return static_cast<std::uint32_t>(1 + random.below(63));
    if (random.below(4) == 0) return static_cast<std::uint32_t>(64 + random.below(200));
    nvme::Command c;
    std::memcpy(&c, bytes.data(), sizeof c);
    c.flags = nvme::kFlagsSgl;
    constexpr std::uint8_t kAdmin[] = {0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F, 0xC1,
                                       0xC5, 0xC8, 0xCE, 0xD1, 0xD4, 0xD8, 0xDA, 0xDC};
    constexpr std::uint8_t kIo[] = {0x00, 0x01, 0x02, 0x08, 0x09, 0x7F};
    c.opcode = admin ? kAdmin[random.below(sizeof kAdmin)] : kIo[random.below(sizeof kIo)];
    if (random.below(8) != 0) c.namespace_id = static_cast<std::uint32_t>(random.below(3));
    if (!admin && random.below(2) == 0) {
        const nvme::Command good =
            nvme::encode_io(static_cast<IoOpcode>(c.opcode),
                            fields(static_cast<std::uint32_t>(random.below(kCapacityBlocks + 8)),
                                   static_cast<std::uint32_t>(1 + random.below(4)), 1 + random.below(100)));
        const std::uint16_t id = c.command_id;
        c = good;
        c.command_id = id;
    }
    if (c.opcode == 0x7F && admin) {
        // Not the enable bit: a controller that is disabled would end the test of everything else.
        c.cdw11 = random.below(2) == 0 ? 0x1C : 0x08;
    }
    if (c.opcode == 0x09 && admin)
        c.cdw10 = static_cast<std::uint32_t>(random.below(14));  // not the keep-alive time
    const DataNeed need = data_need(admin ? QueueKind::kAdmin : QueueKind::kIo, c);
    const auto length = static_cast<std::uint32_t>(random.below(4) == 0 ? random.below(9000) : need.bytes);
    switch (random.below(4)) {
        case 0:
            c.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset,
                                                  random.below(4) == 0 ? random.next() : 0, length);
            break;
        case 1:
            c.data =
                nvme::SglDescriptor::keyed(random.next(), length, static_cast<std::uint32_t>(random.next()));
            if (random.below(2) == 0) c.data.type = nvme::kSglKeyedInvalidate;
            break;
        default:
            c.data = memory.sgl(random.below(1 << 19), length);
    }
    std::memcpy(bytes.data(), &c, sizeof c);
    if (c.data.type == nvme::kSglDataBlockOffset)
        return static_cast<std::uint32_t>(64 + std::min(need.bytes, kInCapsuleBytes));
    return 64;
}

struct Tally {
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;
    std::uint64_t good = 0;
    std::uint64_t reconnects = 0;
};

/// Where abusers wait while others are timed without them. Any thread.
class Gate {
  public:
    /// `beat`: capsules of all together.
    Gate(int abusers, std::uint64_t beat) : beat_(beat), abusers_(abusers) {}
    /// An abuser, between two capsules.
    void pass() {
        if (open_.load(std::memory_order_relaxed)) return;
        std::unique_lock lock(mutex_);
        ++waiting_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return open_.load(std::memory_order_relaxed); });
        --waiting_;
    }
    void sent_one() {
        if (sent_.fetch_add(1, std::memory_order_relaxed) % beat_ != beat_ - 1) return;
        const std::lock_guard lock(mutex_);
        ++beats_;
        changed_.notify_all();
    }
    void leave() {
        const std::lock_guard lock(mutex_);
        --abusers_;
        changed_.notify_all();
    }
    /// Until they have sent a beat more, or have left.
    void await_beat() {
        std::unique_lock lock(mutex_);
        const std::uint64_t before = beats_;
        changed_.wait(lock, [&] { return beats_ != before || abusers_ == 0; });
    }
    /// On return all wait or have left; false: none is left.
    bool close() {
        std::unique_lock lock(mutex_);
        open_.store(false, std::memory_order_relaxed);
        changed_.wait(lock, [&] { return waiting_ == abusers_; });
        return abusers_ > 0;
    }
    void open() {
        const std::lock_guard lock(mutex_);
        open_.store(true, std::memory_order_relaxed);
        changed_.notify_all();
    }

  private:
    const std::uint64_t beat_;
    std::atomic<std::uint64_t> sent_{0};
    std::atomic<bool> open_{true};  ///< written under the mutex; a look without it may be late
    std::mutex mutex_;              // guards what follows
    std::condition_variable changed_;
    int abusers_, waiting_ = 0;
    std::uint64_t beats_ = 0;
};

/// Sends garbage on a queue until `count` capsules went out, reconnecting whenever the target threw it off.
void abuse(LoopRig& rig, bool admin, std::uint64_t count, std::uint64_t seed, Gate& gate, Tally& tally) {
    SplitMix64 random(seed);
    Buffer memory(rig.host_nic(), 1u << 20);
    std::vector<std::byte> bytes(kCapsuleBytesMax + 64);
    std::unique_ptr<HostController> host;
    std::unique_ptr<HostQueue> queue;
    std::uint32_t under_way = 0;
    constexpr std::uint32_t kDepth = 16;
    const auto reconnect = [&] {
        queue.reset();
        host.reset();
        under_way = 0;
        ++tally.reconnects;
        HostOptions o = rig.host();
        o.host_id = {static_cast<std::uint8_t>(admin ? 200 : 201)};
        host = rig.connect(o).value();
        if (!admin) {
            queue = host->open_io_queue(1, kDepth).value();
            return;
        }
        // An admin queue driven by hand, enabled with its first commands.
        ConnectRequest r{.queue_id = 0,
                         .sq_size = kDepth - 1,
                         .attributes = 0,
                         .keep_alive_ms = 0,
                         .host_id = {202},
                         .controller_id = nvme::kAnyController,
                         .subsystem_nqn = rig.target().subsystem_nqn(0),
                         .host_nqn = client_host_nqn(kWriter)};
        const IoQueueConnect connect(r);
        queue = HostQueue::create(rig.host_nic(), kDepth).value();
        ASSERT_TRUE(queue->connect("node", "ssd-0", connect.transport_data(), 100000).ok());
        ASSERT_TRUE(connect_queue(*queue, connect, simt::now_ns() + 100 * kSecond).ok());
        nvme::Command enable{};
        enable.opcode = 0x7F;
        enable.flags = nvme::kFlagsSgl;
        enable.cdw11 = 0x14;
        enable.cdw12 = nvme::Configuration{.enable = true, .sq_entry_log2 = 6, .cq_entry_log2 = 4}.encode();
        ASSERT_EQ(queue->post(enable), HostQueue::Posted::kYes);
        ASSERT_TRUE(await_response(*queue, simt::now_ns() + 100 * kSecond).ok());
    };
    reconnect();
    std::uint64_t until = simt::now_ns() + 100 * kSecond;
    while (tally.sent < count) {
        gate.pass();
        nvme::Completion r;
        while (queue->poll(r)) {
            --under_way;
            ++tally.answered;
            tally.good += nvme::ok(r.result()) ? 1 : 0;
            until = simt::now_ns() + 100 * kSecond;
        }
        // Event requests are held: a queue that is full of them is given up, as is one that the target
        // failed.
        if (queue->broken() || (admin && under_way >= kDepth - 4 && random.below(50) == 0)) {
            reconnect();
            continue;
        }
        ASSERT_LT(simt::now_ns(), until) << "the target hangs; GN_SEED replays";
        if (under_way >= kDepth) {
            std::this_thread::yield();  // the target's turn
            continue;
        }
        const std::uint32_t size = garbage_capsule(random, bytes, memory, admin);
        const auto cut = static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(size) : 0);
        if (queue->post_bytes(std::span(bytes).first(size), cut) != HostQueue::Posted::kYes) continue;
        ++under_way;
        ++tally.sent;
        gate.sent_one();
    }
    queue.reset();
    host.reset();
}

/// A host that keeps to the rules, with a volume of its own, which no garbage may read or change.
class Honest {
  public:
    explicit Honest(LoopRig& rig)
        : host_(connect(rig)), client_(rig.host_nic(), *host_, 1, 2 * kReadsAtOnce) {
        client_.buffer.fill(1);
        for (std::uint32_t b = 0; b < kBlocks; ++b)
            EXPECT_EQ(
                client_.status(io(IoOpcode::kWrite, block(b, b + 1), client_.buffer.sgl(b * 4096, 4096))),
                Status::kSuccess);
    }
    /// As many reads at once as abusers have commands under way, and that so often; how long one took.
    double read(std::uint64_t laps) {
        const std::uint64_t from = simt::now_ns();
        for (std::uint64_t i = 0; i < laps && !::testing::Test::HasFailure(); ++i, ++laps_) {
            // As every client does; a busy machine may take longer than the time that silence is tolerated.
            if (laps_ % 32 == 31) keep_alive();
            lap(laps_ * kReadsAtOnce % kBlocks);
            std::this_thread::yield();  // to whom it shares two processors with
        }
        return static_cast<double>(simt::now_ns() - from) / static_cast<double>(laps * kReadsAtOnce);
    }
    void keep_alive() { EXPECT_TRUE(host_->keep_alive().ok()); }
    [[nodiscard]] std::uint64_t reads() const { return laps_ * kReadsAtOnce; }

  private:
    static constexpr nvme::ClientId kClient = 77;
    static constexpr nvme::VolumeId kOwnVolume = 8;
    static constexpr std::uint32_t kBlocks = 64, kReadAt = 1 << 19;

    static std::unique_ptr<HostController> connect(LoopRig& rig) {
        rig.make_volume(sample_record(kOwnVolume, "honest", kClient));
        return rig.connect(rig.host(client_host_nqn(kClient))).value();
    }
    static nvme::IoFields block(std::size_t number, std::uint64_t sequence) {
        nvme::IoFields f = fields(static_cast<std::uint32_t>(number), 1, sequence);
        f.volume = kOwnVolume;
        f.client = kClient;
        return f;
    }
    void lap(std::size_t first) {
        for (std::size_t i = 0; i < kReadsAtOnce; ++i) {
            nvme::Command read =
                io(IoOpcode::kRead, block(first + i, 0), client_.buffer.sgl(kReadAt + i * 4096, 4096));
            read.command_id = static_cast<std::uint16_t>(i);
            // An answer may overtake the completion of its own send: the entry is free when that has come.
            while (client_.queue().post(read) != HostQueue::Posted::kYes && !client_.queue().broken())
                std::this_thread::yield();
        }
        for (std::size_t i = 0; i < kReadsAtOnce; ++i) {
            const auto answer = await_response(client_.queue(), simt::now_ns() + 100 * kSecond);
            ASSERT_TRUE(answer.ok()) << answer.error().message;
            ASSERT_EQ(answer->result(), Status::kSuccess);
        }
        const std::byte* const all = client_.buffer.data();
        EXPECT_EQ(std::memcmp(all + first * 4096, all + kReadAt, kReadsAtOnce * 4096), 0) << first;
    }

    std::unique_ptr<HostController> host_;
    IoClient client_;
    std::uint64_t laps_ = 0;
};

class Garbage : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Windows, Garbage, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "Late" : "AtOnce"; });

TEST_P(Garbage, NeverHurtsTheTargetOrOtherHosts) {
    const std::uint64_t seed = test::run_seed();
    const std::uint64_t capsules = GetParam() ? kCapsules / 8 : kCapsules;
    LoopRig rig({.strict = false, .seed = seed, .late_windows = GetParam() ? 12u : 0u, .target = {}});
    rig.make_volume();
    Honest honest(rig);
    Tally io_tally;
    Tally admin_tally;
    Gate gate(2, capsules / kSlices);
    const std::int64_t before = test::live_bytes();
    test::begin_peak();
    std::thread io_abuser([&] {
        abuse(rig, false, capsules * 3 / 4, seed, gate, io_tally);
        gate.leave();
    });
    std::thread admin_abuser([&] {
        abuse(rig, true, capsules / 4, seed + 1, gate, admin_tally);
        gate.leave();
    });
    std::vector<double> slower;  // of each slice beside abusers, compared with the one after it
    for (bool more = true; more && !HasFailure();) {
        const double beside_abusers = honest.read(16);
        more = gate.close();
        slower.push_back(beside_abusers / honest.read(4));
        gate.open();
        gate.await_beat();
    }
    io_abuser.join();
    admin_abuser.join();
    const std::int64_t grown = test::peak_live_bytes() - before;
    honest.keep_alive();
    std::ranges::sort(slower);
    const double middle = slower[slower.size() / 2];
    const std::uint64_t sent = io_tally.sent + admin_tally.sent;
    std::printf(
        "an honest read takes %.2f times as long beside abusers (%zu slices: %.2f to %.2f); %lld "
        "bytes more at most\n",
        middle, slower.size(), slower.front(), slower.back(), static_cast<long long>(grown));
    std::printf("garbage: %llu answered, %llu reconnections\n",
                static_cast<unsigned long long>(io_tally.answered + admin_tally.answered),
                static_cast<unsigned long long>(io_tally.reconnects + admin_tally.reconnects));
    test::count("nvmf_garbage_capsules", sent);
    test::count("nvmf_garbage_accepted", io_tally.good + admin_tally.good);
    test::count("nvmf_honest_reads", honest.reads());
    EXPECT_LT(middle, kSlowerMost) << "abusers take more than their share";
    EXPECT_LT(grown, kMemoryMost);
    EXPECT_GT(io_tally.good, sent / 100) << "some of it must get as far as the drive";
    EXPECT_GT(rig.counters().malformed, sent / 100);
}

TEST(Abuse, AHostThatVanishesUnderLoadLeavesNoResourcesAllocated) {
    const std::uint64_t seed = test::run_seed();
    SplitMix64 random(seed);
    // Windows that are not ready when their connection ends: it drains all the same.
    for (const auto& [strict, late] : {std::pair{true, 0u}, {false, 0u}, {true, 1000u}}) {
        LoopRig rig({.strict = strict, .seed = seed, .late_windows = late, .target = {}});
        rig.make_volume();
        auto steady_host = rig.connect(rig.host()).value();
        IoClient steady(rig.host_nic(), *steady_host, 1);
        for (int round = 0; round < kRounds; ++round) {
            Buffer memory(rig.host_nic(), 1u << 20);
            auto host = rig.connect(rig.host()).value();
            std::vector<std::unique_ptr<HostQueue>> queues;
            for (std::uint16_t q = 1; q <= 3; ++q) queues.push_back(host->open_io_queue(q, 32).value());
            for (std::uint16_t i = 0; i < 32; ++i)
                for (auto& queue : queues) {
                    const bool write = random.below(2) == 0;
                    nvme::Command c =
                        io(write ? IoOpcode::kWrite : IoOpcode::kRead,
                           fields(static_cast<std::uint32_t>(random.below(64) * 16), 16, random.next() | 1),
                           memory.sgl(random.below(15) * 65536, 65536));
                    c.command_id = i;
                    (void)queue->post(c);
                }
            switch (random.below(4)) {
                case 0:
                    host.reset();  // the admin queue first
                    queues.clear();
                    break;
                case 1:
                    queues.clear();
                    break;
                case 2:
                    for (auto& queue : queues) queue->disconnect();
                    break;
                default:
                    rig.host_nic().disconnect(queues[1]->qp());
                    (void)host->property_set(nvme::Property::kCc, 0);
            }
            queues.clear();
            host.reset();
            // Memory is deregistered here: nothing may still touch it. And the honest host reads on.
            ASSERT_EQ(steady.status(io(IoOpcode::kRead, fields(0, 1), steady.buffer.sgl(0, 4096))),
                      Status::kSuccess);
        }
        EXPECT_TRUE(eventually([&] { return rig.target().connections_open() == 2; }));
        std::printf("GN_COUNT nvmf_disconnects_under_load=%d\n", kRounds);
    }
}

TEST(Abuse, ATargetClosedUnderLoadFailsOnlyItsHosts) {
    for (int round = 0; round < kRounds / 5; ++round) {
        LoopRig rig;
        rig.make_volume();
        auto host = rig.connect(rig.host()).value();
        auto queue = host->open_io_queue(1, 32).value();
        Buffer memory(rig.host_nic(), 1u << 20);
        for (std::uint16_t i = 0; i < 32; ++i) {
            nvme::Command c = io(IoOpcode::kRead, fields(0, 16), memory.sgl(0, 65536));
            c.command_id = i;
            ASSERT_EQ(queue->post(c), HostQueue::Posted::kYes);
        }
        rig.close_target();
        EXPECT_TRUE(eventually([&] { return queue->broken() && !host->connected(); }));
        EXPECT_EQ(host->keep_alive().error().code, Errc::kState);
        EXPECT_FALSE(rig.connect(rig.host()).ok());
        queue.reset();
        host.reset();
    }
}

}  // namespace
}  // namespace gnstor::nvmf
