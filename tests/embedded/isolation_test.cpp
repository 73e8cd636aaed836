// isolation_test.cpp: two clients with two volumes each, and one of them sends whatever it likes: forged
// capsules on its own connections, and garbage on others. No other volume's bytes come out, none change.
#include <algorithm>

#include "embedded/bench.hpp"

namespace gnstor::test::isolation_test {

using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kForged = 3000;
constexpr std::uint32_t kGarbage = 10'000;
#else
constexpr std::uint32_t kForged = 20'000;
constexpr std::uint32_t kGarbage = 60'000;
#endif

constexpr std::uint32_t kBlocks = 128;
constexpr std::uint64_t kSecret = 0x5EC2E7'A11CE'5EC2ull;  // every word of Alice's, on flash and nowhere else
constexpr std::uint64_t kFiller = 0xB0B'B0B'B0B'B0Bull;
const auto kMe = simt::self(simt::Lane{});

class Isolation : public ::testing::Test {
  protected:
    void SetUp() override {
        for (const char* name : {"a1", "a2"}) alices.push_back(make(*alice, name, kSecret));
        for (const char* name : {"b1", "b2"}) bobs.push_back(make(*bob, name, kFiller));
    }
    void TearDown() override {
        // Nothing of Alice's changed, on any replica.
        for (const auto& volume : alices) {
            const std::string name = volume->record().name;
            auto reader = rig.connect("alice", 1);
            const std::uint64_t visited = for_each_replica(
                *reader, name, [&](std::uint32_t block, std::uint32_t slot, const std::uint64_t* w) {
                    EXPECT_TRUE(std::all_of(w, w + kWordsPerBlock, [](auto x) { return x == kSecret; }))
                        << name << " block " << block << " on slot " << slot << ", GN_SEED=" << run_seed();
                });
            EXPECT_EQ(visited, kBlocks * 2u);
        }
        const auto pool = pool_of(bob->channel(0));
        EXPECT_EQ(std::find(pool.begin(), pool.end(), kSecret), pool.end())
            << "Alice's bytes in Bob's memory";
        EXPECT_EQ(rig.nic->counters().strict_violations, 0u);
    }
    std::unique_ptr<client::Volume> make(client::Client& c, const std::string& name, std::uint64_t word) {
        client::CreateVolume r;
        r.name = name;
        r.capacity_bytes = kBlocks * 4096;
        r.chunk_bytes = 16384;
        (void)c.create(r).value();
        auto volume = c.open(name, client::OpenMode::kWrite).value();
        const std::vector<std::uint64_t> data(std::size_t{kBlocks} * kWordsPerBlock, word);
        EXPECT_EQ(volume->ref().write(kMe, c.channel(0).ref(), 0, kBlocks, data.data(), late()),
                  Status::kSuccess);
        return volume;
    }
    /// All memory that Bob's commands can name: his pool.
    static std::span<std::uint64_t> pool_of(gnor::Channel& channel) {
        const ChannelRef ref = channel.ref();
        const gnor::ChannelState& state = ref.state();
        return {reinterpret_cast<std::uint64_t*>(state.pool_base), channel.pool_bytes() / 8};
    }
    nvme::Command forge(SplitMix64& random, gnor::Channel& channel, std::uint32_t& slot);

    ArrayRig rig;
    std::unique_ptr<client::Client> alice = rig.connect("alice", 1), bob = rig.connect("bob", 1);
    std::vector<std::unique_ptr<client::Volume>> alices, bobs;
};

/// A command that its owner might send (Alice or Bob), with up to three fields of somebody else's or of
/// nobody's.
nvme::Command Isolation::forge(SplitMix64& random, gnor::Channel& channel, std::uint32_t& slot) {
    const bool hers = random.below(2) == 0;
    const nvme::VolumeRecord& record = (hers ? alices : bobs)[random.below(2)]->record();
    const nvme::VolumeRecord& other = (hers ? bobs : alices)[random.below(2)]->record();
    const ChannelRef ref = channel.ref();
    const gnor::ChannelState& state = ref.state();
    nvme::IoFields f;
    f.volume = record.geometry.volume;
    f.client = random.below(2) == 0 ? bob->identity().id : record.owner;
    f.block = static_cast<std::uint32_t>(random.below(kBlocks));
    f.blocks = 1;
    f.epoch = record.epoch;
    f.map_version = bob->array().map.version;
    f.sequence = 1 + random.below(1000);
    auto opcode = static_cast<std::uint8_t>(random.below(8) == 0 ? 0x01 : 0x02);
    std::uint64_t bytes = 4096;
    std::uint64_t address = state.pool_base + random.below(256) * 4096;
    std::uint32_t key = state.pool_rkey;
    const auto replicas =
        placement::place(bob->array().map, record.geometry, f.block >> record.geometry.chunk_shift);
    slot = replicas.slot[random.below(replicas.count)];
    std::uint8_t flags = nvme::kFlagsSgl;
    for (auto changes = random.below(4); changes > 0; --changes) {
        const std::uint64_t any = random.below(3) == 0 ? random.next() : random.below(64);
        switch (random.below(14)) {
            case 0:
                f.volume = static_cast<nvme::VolumeId>(any);
                break;
            case 1:
                f.volume = other.geometry.volume;
                break;
            case 2:
                f.client = static_cast<nvme::ClientId>(any);
                break;
            case 3:
                f.client = other.owner;
                break;
            case 4:
                f.block = static_cast<std::uint32_t>(any);
                break;
            case 5:
                f.blocks = 1 + static_cast<std::uint32_t>(any % 65536), bytes = f.blocks * 4096ull;
                break;
            case 6:
                f.epoch = static_cast<nvme::Epoch>(any);
                break;
            case 7:
                f.map_version = static_cast<nvme::MapVersion>(any);
                break;
            case 8:
                f.sectors = static_cast<std::uint8_t>(any), bytes = f.sectors * 512ull;
                break;
            case 9:
                opcode = static_cast<std::uint8_t>(any);
                break;
            case 10:
                bytes = any;
                break;
            case 11:
                key += static_cast<std::uint32_t>(any);
                break;
            case 12:
                slot = static_cast<std::uint32_t>(any % 4);
                break;
            default:
                flags = static_cast<std::uint8_t>(any);
                break;
        }
    }
    const auto io = static_cast<nvme::IoOpcode>(opcode);
    nvme::Command c =
        io == nvme::IoOpcode::kDatasetManagement ? nvme::encode_trim(f, 1) : nvme::encode_io(io, f);
    c.flags = flags;
    c.data = nvme::SglDescriptor::keyed(address, static_cast<std::uint32_t>(bytes), key);
    return c;
}

TEST_F(Isolation, ForgedCommandsNeverReadOrChangeAnotherClientsBytes) {
    SplitMix64 random(run_seed() + 21);
    gnor::Channel& channel = bob->channel(0);
    const auto pool = pool_of(channel);
    std::uint64_t served = 0, refused = 0, broken = 0;
    for (std::uint32_t i = 0; i < kForged; ++i) {
        std::uint32_t slot = 0;
        const nvme::Command command = forge(random, channel, slot);
        const auto answer = channel.execute_from_host(slot, command, {}, 20'000);
        if (answer.ok()) {
            ++(nvme::ok(answer->result()) ? served : refused);
        } else {
            ++broken;  // a key that is none ends the connection
            GN_ASSERT_OK(bob->reclaim());
        }
        if (i % 256 == 255 || i + 1 == kForged) {
            const auto leak = std::find(pool.begin(), pool.end(), kSecret);
            ASSERT_EQ(leak, pool.end()) << "Alice's bytes in Bob's memory, GN_SEED=" << run_seed();
        }
    }
    std::printf("  forged commands: %llu served, %llu refused, %llu ended the connection\n",
                static_cast<unsigned long long>(served), static_cast<unsigned long long>(refused),
                static_cast<unsigned long long>(broken));
    EXPECT_GT(served, kForged / 20);  // what was Bob's own right
    EXPECT_GT(refused, kForged / 4);
    EXPECT_NE(std::find(pool.begin(), pool.end(), kFiller), pool.end()) << "Bob's own data must arrive";
    count("array_forged_commands", kForged);
    rig.expect_clean(*bob);
}

TEST_F(Isolation, WritesInCapsulesUnderForgedNamesChangeNothing) {
    SplitMix64 random(run_seed() + 22);
    gnor::Channel& channel = bob->channel(0);
    const std::vector<std::byte> junk(4096, std::byte{0x66});
    std::uint64_t answered = 0;
    for (std::uint32_t i = 0; i < kForged / 4; ++i) {
        std::uint32_t slot = 0;
        nvme::IoFields f = nvme::decode_io(forge(random, channel, slot));
        f.blocks = 1;
        f.fua = random.below(2) == 0;
        const auto opcode = random.below(4) == 0 ? nvme::IoOpcode::kWriteZeroes : nvme::IoOpcode::kWrite;
        // Bob writes his own volumes as he likes, but nothing of Alice's.
        const auto answer = channel.execute_from_host(slot, nvme::encode_io(opcode, f), junk, 20'000);
        answered += answer.ok() ? 1 : 0;
        if (!answer.ok()) GN_ASSERT_OK(bob->reclaim());
        const bool hers = f.volume == alices[0]->record().geometry.volume ||
                          f.volume == alices[1]->record().geometry.volume;
        if (answer.ok() && hers) {
            EXPECT_EQ(answer->result(), Status::kAccessDenied);
        }
    }
    EXPECT_GT(answered, 0u);
    count("array_forged_commands", kForged / 4);
}

TEST_F(Isolation, GarbageOnOneConnectionDoesNotDisturbAnother) {
    BenchOptions shape;
    shape.blocks = 8 * 32;
    auto writer = rig.connect("writer", 2);
    auto reader = rig.connect("reader", 1);
    auto volume = rig.volume(*writer, "verified", shape.blocks);
    std::vector<std::byte> memory(8 * RandomMix::kStride);
    std::vector<std::uint64_t> tags(shape.blocks);
    Report report{};
    Common common{};
    common.volume = volume->ref();
    common.channels = writer->channels();
    common.report = &report;
    common.memory = memory.data();
    common.stride = RandomMix::kStride;
    common.seed = run_seed();
    common.timeout_ns = kLongNs;

    // Connections of one who knows his name and nothing else.
    const auto options_of = [&](std::uint32_t slot) {
        nvmf::HostOptions o = rig.host_options(*bob, slot);
        o.io_queues = 4;
        return o;
    };
    std::vector<std::unique_ptr<nvmf::HostController>> hosts;
    for (std::uint32_t slot = 0; slot < 4; ++slot)
        hosts.push_back(nvmf::HostController::connect(*rig.nic, options_of(slot)).value());
    SplitMix64 random(run_seed() + 23);
    std::vector<std::unique_ptr<nvmf::HostQueue>> queues(4);
    std::uint64_t sent = 0, connections = 0, answers = 0;
    std::uint32_t unanswered[4] = {};  // a host queue has a receive for so many
    std::uint32_t patience[4] = {};
    const auto garbage = [&](std::uint32_t slot) {
        std::byte bytes[64 + 4096];
        std::uint32_t unused = 0;
        const nvme::Command forged = forge(random, bob->channel(0), unused);
        std::memcpy(bytes, &forged, sizeof forged);
        std::uint32_t size = 64;
        const auto kind = random.below(4);
        if (kind == 0)
            for (std::uint32_t i = 0; i < 64; ++i) bytes[i] = static_cast<std::byte>(random.next());
        if (kind == 1)
            for (std::uint32_t n = 0; n < 3; ++n)
                bytes[random.below(64)] = static_cast<std::byte>(random.next());
        if (kind == 2) size = static_cast<std::uint32_t>(1 + random.below(sizeof bytes));
        return queues[slot]->post_bytes(std::span(bytes, size)) == nvmf::HostQueue::Posted::kYes;
    };
    std::uint32_t launches = 0;
    while (sent < kGarbage || launches == 0) {
        simt::LaunchOptions workers;
        workers.cpu_workers = 2;
        auto run =
            simt::launch_async(simt::LanesKind::kCpu, 8, 1,
                               RandomMix{common, tags.data(), 32, 20, launches++ * 20, false}, workers);
        GN_ASSERT_OK(run);
        do {
            const auto slot = static_cast<std::uint32_t>(random.below(4));
            if (queues[slot] == nullptr || queues[slot]->broken() || patience[slot] > 1000) {
                queues[slot].reset();
                if (!hosts[slot]->connected()) {
                    hosts[slot].reset();
                    hosts[slot] = nvmf::HostController::connect(*rig.nic, options_of(slot)).value();
                }
                auto opened = hosts[slot]->open_io_queue(static_cast<std::uint16_t>(1 + random.below(4)), 32);
                if (!opened.ok()) continue;  // the last one of this number is still being taken down
                queues[slot] = std::move(opened).value();
                unanswered[slot] = patience[slot] = 0;
                ++connections;
            }
            ++patience[slot];  // some garbage is answered by silence
            for (; unanswered[slot] < 24 && garbage(slot); ++unanswered[slot]) ++sent, patience[slot] = 0;
            nvme::Completion completion{};
            for (; queues[slot]->poll(completion); --unanswered[slot]) ++answers;
        } while (!run->done());
        GN_ASSERT_OK(run->wait(late()));
    }
    std::printf(
        "  %llu capsules of garbage over %llu connections, %llu answers, %u launches of verified I/O\n",
        static_cast<unsigned long long>(sent), static_cast<unsigned long long>(connections),
        static_cast<unsigned long long>(answers), launches);
    EXPECT_EQ(report.failures, 0u) << "last status " << std::hex << report.last_status;
    EXPECT_EQ(report.mismatches, 0u);
    EXPECT_GT(connections, 4u);
    expect_tags(*reader, "verified", common.seed, [&](std::uint32_t b) { return tags[b]; });
    count("array_garbage_capsules", sent);
    count("array_lane_operations", report.operations);
    queues.clear();
    hosts.clear();
    rig.expect_clean(*writer);
}

}  // namespace gnstor::test::isolation_test
