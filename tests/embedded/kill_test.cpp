// kill_test.cpp: the process that holds an array in files is killed while lanes write. Whatever a lane was
// told to be written is there afterwards, on every replica, whole; also after the next kill.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "embedded/bench.hpp"
#include "ssd/scratch.hpp"

namespace gnstor::test::kill_test {

using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kKills = 6;
constexpr std::uint32_t kFloor = 4;
#else
constexpr std::uint32_t kKills = 40;
constexpr std::uint32_t kFloor = 30;
#endif
constexpr std::uint32_t kWarps = 8, kBlocksEach = 64, kBlocksMax = 6;
constexpr std::uint32_t kBlocks = kWarps * kBlocksEach;

/// What a lane says through the pipe before it writes or trims, and again when that was acknowledged.
struct Said {
    std::uint32_t block, blocks, round;
    std::uint16_t trim, acknowledged;
};
static_assert(sizeof(Said) == 16, "far below PIPE_BUF: never torn");

/// Each warp writes and trims blocks of its own until the process is killed or a write is refused.
struct UntilKilled {
    VolumeRef volume;
    ChannelSet channels;
    std::uint64_t* memory;
    std::uint64_t seed;
    std::uint32_t first_round;
    std::uint32_t rounds;
    int pipe;

    void say(const Said& said) const {
        if (::write(pipe, &said, sizeof said) != static_cast<ssize_t>(sizeof said)) ::_exit(3);
    }
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        std::uint64_t* const data = memory + std::size_t{rank} * kBlocksMax * kWordsPerBlock;
        SplitMix64 random(mix64(seed) + rank + (std::uint64_t{first_round} << 32));
        for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
            Said said{};
            said.blocks = static_cast<std::uint32_t>(1 + random.below(kBlocksMax));
            said.block =
                rank * kBlocksEach + static_cast<std::uint32_t>(random.below(kBlocksEach - said.blocks + 1));
            said.round = round;
            said.trim = random.below(8) == 0 ? 1 : 0;
            say(said);
            fill_tagged(group, data, seed, said.block, said.blocks, tag_of(rank, round));
            const ChannelRef ch = channels.mine(lane);
            const Status status = said.trim != 0
                                      ? volume.trim(group, ch, said.block, said.blocks, late())
                                      : volume.write(group, ch, said.block, said.blocks, data, late());
            if (!nvme::ok(status)) ::_exit(4);
            said.acknowledged = 1;
            say(said);
        }
    }
};

EmbeddedArrayOptions file_options(const std::filesystem::path& directory) {
    EmbeddedArrayOptions o = rig_options(2);
    o.ssd_capacity_bytes = 32u << 20;
    o.directory = directory;
    return o;
}

std::unique_ptr<client::Client> connect(EmbeddedArray& array) {
    client::ClientOptions o;
    o.name = "writer";
    o.channels = 2;
    auto connected = array.connect(o);
    if (!connected.ok()) std::printf("connect: %s\n", connected.error().message.c_str());
    return connected.ok() ? std::move(connected).value() : nullptr;
}

[[noreturn]] void child(const std::filesystem::path& directory, std::uint32_t first_round, int pipe) {
    auto array = EmbeddedArray::open(file_options(directory));
    if (!array.ok()) ::_exit(5);
    auto client = connect(**array);
    if (client == nullptr) ::_exit(6);
    auto volume = client->open("v", client::OpenMode::kWrite);
    if (!volume.ok()) ::_exit(7);
    std::vector<std::uint64_t> memory(std::size_t{kWarps} * kBlocksMax * kWordsPerBlock);
    simt::LaunchOptions workers;
    workers.cpu_workers = kWarps;
    // Few enough that the store need not collect garbage, which is not there yet.
    const UntilKilled kernel{
        (*volume)->ref(), client->channels(), memory.data(), run_seed(), first_round, 400, pipe};
    const auto done = simt::launch(simt::LanesKind::kCpu, kWarps, 1, kernel, workers);
    ::_exit(done.ok() ? 0 : 8);
}

/// What may lie in each block, as the pipe told it.
class Ledger {
  public:
    void take(const Said& said) {
        for (std::uint32_t b = said.block; b < said.block + said.blocks; ++b) {
            const std::uint32_t round = said.round + 1;
            tried_[b] = std::max(tried_[b], round);
            if (said.trim != 0) trimmed_[b] = std::max(trimmed_[b], round);
            if (said.acknowledged != 0) acknowledged_[b] = std::max(acknowledged_[b], round);
        }
        acknowledged_total += said.acknowledged;
        next_round = std::max(next_round, said.round + 1);
    }
    /// A write that came after the newest acknowledged one, or that one itself.
    [[nodiscard]] bool allows(std::uint32_t block, std::uint64_t tag) const {
        if (tag == 0) return trimmed_[block] >= acknowledged_[block];
        const auto round = static_cast<std::uint32_t>(tag);
        return (tag >> 32) - 1 == block / kBlocksEach && round >= acknowledged_[block] &&
               round <= tried_[block];
    }
    std::uint64_t acknowledged_total = 0;
    std::uint32_t next_round = 0;

  private:
    std::vector<std::uint32_t> acknowledged_ = std::vector<std::uint32_t>(kBlocks);
    std::vector<std::uint32_t> tried_ = acknowledged_, trimmed_ = acknowledged_;
};

/// Runs a child until it has said `wanted` things, kills it, and takes all it said. True: it was killed.
bool run_and_kill(const std::filesystem::path& directory, std::uint64_t wanted, Ledger& ledger) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::close(ends[0]);
        child(directory, ledger.next_round, ends[1]);
    }
    EXPECT_GT(pid, 0);
    ::close(ends[1]);
    Said said{};
    const auto take = [&] {
        if (::read(ends[0], &said, sizeof said) != static_cast<ssize_t>(sizeof said)) return false;
        ledger.take(said);
        return true;
    };
    for (; wanted > 0 && take(); --wanted) {
    }
    ::kill(pid, SIGKILL);
    while (take()) {
    }
    ::close(ends[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0)
        << "the child ended with " << WEXITSTATUS(status);
    return WIFSIGNALED(status);
}

void check_all_replicas(const std::filesystem::path& directory, const Ledger& ledger,
                        std::uint64_t& checked) {
    auto array = EmbeddedArray::open(file_options(directory));
    GN_ASSERT_OK(array);
    auto reader = connect(**array);
    ASSERT_NE(reader, nullptr);
    std::uint64_t bad = 0;
    const std::uint64_t visited =
        for_each_replica(*reader, "v", [&](std::uint32_t block, std::uint32_t slot, const std::uint64_t* w) {
            const bool good = is_whole(w, run_seed(), block) && ledger.allows(block, w[0]);
            if (!good && ++bad <= 5)
                ADD_FAILURE() << "block " << block << " on slot " << slot << " holds tag " << std::hex << w[0]
                              << ", GN_SEED=" << std::dec << run_seed();
        });
    EXPECT_EQ(bad, 0u);
    EXPECT_EQ(visited, kBlocks * 3u);
    checked += visited;
}

TEST(ArrayKill, AcknowledgedBlocksAreOnEveryReplicaAfterKillNineAtRandomMoments) {
    SplitMix64 random(run_seed() + 41);
    std::uint64_t kills = 0, checked = 0, acknowledged = 0;
    std::unique_ptr<ssd::testing::Scratch> scratch;
    std::unique_ptr<Ledger> ledger;
    for (std::uint32_t kill = 0; kill < kKills && !::testing::Test::HasFailure(); ++kill) {
        if (kill % 5 == 0) {  // new stores: their pages are used up after some lives
            if (ledger) acknowledged += ledger->acknowledged_total;
            scratch = std::make_unique<ssd::testing::Scratch>();
            ledger = std::make_unique<Ledger>();
            auto array = EmbeddedArray::open(file_options(*scratch / "stores"));
            GN_ASSERT_OK(array);
            auto client = connect(**array);
            ASSERT_NE(client, nullptr);
            client::CreateVolume r;
            r.name = "v";
            r.capacity_bytes = std::uint64_t{kBlocks} * 4096;
            r.chunk_bytes = 8192;
            r.replicas = 3;
            GN_ASSERT_OK(client->create(r));
        }
        kills += run_and_kill(*scratch / "stores", random.below(1200), *ledger) ? 1 : 0;
        check_all_replicas(*scratch / "stores", *ledger, checked);
    }
    acknowledged += ledger->acknowledged_total;
    std::printf("  %llu kills, %llu acknowledged writes and trims, %llu replicas of blocks checked\n",
                static_cast<unsigned long long>(kills), static_cast<unsigned long long>(acknowledged),
                static_cast<unsigned long long>(checked));
    count("array_kills", kills);
    count("array_kill_acknowledged", acknowledged);
    count("array_kill_replicas_checked", checked);
    EXPECT_GE(kills, kFloor);
}

}  // namespace gnstor::test::kill_test
