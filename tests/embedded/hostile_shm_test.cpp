// hostile_shm_test.cpp: processes that connect to a node's drives over shared memory and then write over
// every byte of all that they share, rings, doorbells, records, capsules and data, while commands are under
// way and in between; beside a client of the same node that writes, and verifies all that it reads. The node
// is a process of its own: its end would show in the honest client's next command.
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "embedded/daemon_over_ports.hpp"
#include "embedded/rig.hpp"
#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "rdma/child.hpp"
#include "rdma/nic/nic_memory.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "ssd/scratch.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::test::hostile_shm_test {

using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kCommands = 200;  // of each hostile process
#else
constexpr std::uint64_t kCommands = 500;
#endif
constexpr std::uint32_t kSsds = 2, kBlocks = 64, kHostile = 3, kCommandsALife = 150;
constexpr std::uint64_t kDeadlineNs = 30'000'000'000;
constexpr std::size_t kDataBytes = 64u << 10;

/// What the hostile processes report; in memory that they inherit.
struct Report {
    std::atomic<std::uint64_t> commands{0}, words{0}, lives{0}, done{0};
};

/// All memory that this process shares with its node.
std::vector<std::span<std::uint64_t>> shared_memory() {
    std::vector<std::span<std::uint64_t>> all;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:gnstor") == std::string::npos) continue;
        unsigned long long from = 0, to = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx", &from, &to) != 2) continue;
        all.emplace_back(reinterpret_cast<std::uint64_t*>(from), (to - from) / 8);
    }
    return all;
}

/// Writes words that make sense, nearly, or not at all; now and then the one that was there again, so that
/// what was good when it was checked is bad when it is used, and the other way round.
class Scribbler {
  public:
    Scribbler(std::uint64_t seed, Report& report)
        : memory_(shared_memory()),
          random_(seed),
          spins_most_(std::uint64_t{100} << (4 * random_.below(4))),
          report_(report),
          thread_([this] { run(); }) {}
    ~Scribbler() {
        stop_.store(true, std::memory_order_relaxed);
        thread_.join();
    }

  private:
    void run() {
        while (!stop_.load(std::memory_order_relaxed) && !memory_.empty()) {
            const auto region = memory_[random_.below(memory_.size())];
            // Half of them in the first pages, where small regions have their rings and records.
            const std::size_t most =
                random_.below(2) == 0 ? std::min<std::size_t>(region.size(), 1024) : region.size();
            std::uint64_t* const word = region.data() + random_.below(most);
            const std::uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
            std::uint64_t value = random_.next();
            const std::uint64_t how = random_.below(4);
            if (how == 0) value = before ^ (std::uint64_t{1} << random_.below(64));
            if (how == 1) value = before + (std::uint64_t{1} << (8 * random_.below(8)));
            if (how == 2) value &= 0xFF000000FFull;
            __atomic_store_n(word, value, __ATOMIC_RELAXED);
            report_.words.fetch_add(1, std::memory_order_relaxed);
            if (random_.below(4) != 0) {
                for (std::uint64_t spins = random_.below(spins_most_); spins > 0; --spins)
                    (void)__atomic_load_n(word, __ATOMIC_ACQUIRE);
                __atomic_store_n(word, before, __ATOMIC_RELAXED);
            }
        }
    }
    const std::vector<std::span<std::uint64_t>> memory_;
    SplitMix64 random_;
    const std::uint64_t spins_most_;  ///< between two words: some connections live longer than others
    Report& report_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

/// A command for any volume: mostly well formed, so that it is carried as far as to the drive's checks.
nvme::Command any_command(SplitMix64& random, std::uint64_t address, std::uint32_t rkey) {
    nvme::IoFields f;
    f.volume = static_cast<nvme::VolumeId>(1 + random.below(3));
    f.client = static_cast<nvme::ClientId>(random.below(3) == 0 ? random.below(4) : 9);
    f.block = static_cast<std::uint32_t>(random.below(kBlocks));
    f.blocks = static_cast<std::uint32_t>(1 + random.below(8));
    f.epoch = static_cast<nvme::Epoch>(random.below(4));
    f.map_version = static_cast<nvme::MapVersion>(random.below(4));
    f.sequence = random.next();
    nvme::Command c =
        nvme::encode_io(random.below(2) == 0 ? nvme::IoOpcode::kRead : nvme::IoOpcode::kWrite, f);
    if (random.below(8) == 0) c = nvme::encode_trim(f, static_cast<std::uint32_t>(1 + random.below(256)));
    const std::uint32_t bytes = random.below(8) == 0 ? static_cast<std::uint32_t>(random.next() & 0xFFFFF)
                                                     : f.blocks * nvme::kBlockBytes;
    c.flags = nvme::kFlagsSgl;
    c.data =
        nvme::SglDescriptor::keyed(address + random.below(kDataBytes / 2), bytes,
                                   random.below(16) == 0 ? static_cast<std::uint32_t>(random.next()) : rkey);
    c.command_id = static_cast<std::uint16_t>(random.below(16));
    return c;
}

/// A process of one connection to a drive, until that is broken or has sent enough; then it ends without a
/// word, in the midst of writing.
[[noreturn]] void live(const std::filesystem::path& path, const daemon::SsdIdentity& ssd, SplitMix64& random,
                       Report& report) {
    auto nic = rdma::open_shm_nic(path);
    if (!nic.ok()) ::_exit(1);
    nvmf::HostOptions options;
    options.peer_address = ssd.nic_address;
    options.service = ssd.service;
    options.subsystem_nqn = ssd.subsystem_nqn;
    options.host_nqn = nvmf::client_host_nqn(9);
    options.host_id[0] = 9;
    options.keep_alive_ms = 0;
    options.timeout_ms = 5000;
    auto host = nvmf::HostController::connect(**nic, options);
    if (!host.ok()) ::_exit(1);
    auto queue = (*host)->open_io_queue(1, 16);
    auto data = rdma::NicMemory::map(**nic, kDataBytes);
    if (!queue.ok() || !data.ok()) ::_exit(1);
    const auto keys = (*nic)->register_memory(data->data(), data->size(),
                                              rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite);
    if (!keys.ok()) ::_exit(1);
    report.lives.fetch_add(1);
    const Scribbler scribbler(random.next(), report);
    const std::vector<std::byte> in_capsule(nvme::kBlockBytes, std::byte{0xEE});
    for (std::uint32_t i = 0; i < kCommandsALife; ++i) {
        const bool carried = random.below(3) == 0;
        const auto command = any_command(random, reinterpret_cast<std::uint64_t>(data->data()), keys->rkey);
        const auto posted = (*queue)->post(
            command, carried ? std::span<const std::byte>(in_capsule) : std::span<const std::byte>());
        report.commands.fetch_add(1);
        nvme::Completion answer;
        for (int polls = 0; polls < 20 && !(*queue)->poll(answer); ++polls) std::this_thread::yield();
        if (posted == nvmf::HostQueue::Posted::kBroken) break;
    }
    ::_exit(0);
}

/// live() in a child of this process, which has one thread. It may also end by a fault of its own, as one
/// that reads what it has spoilt may.
void live_and_die(const std::filesystem::path& path, const daemon::SsdIdentity& ssd, SplitMix64& random,
                  Report& report) {
    SplitMix64 its_own(random.next());
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        live(path, ssd, its_own, report);
    }
    ::waitpid(pid, nullptr, 0);
}

class HostileShm : public ::testing::Test {
  protected:
    [[nodiscard]] std::filesystem::path socket() const { return scratch / "shm"; }
    [[nodiscard]] std::unique_ptr<embedded::Node> serve() const {
        EmbeddedArrayOptions o = rig_options();
        o.ssds = kSsds;
        o.ssd_capacity_bytes = 64u << 20;
        o.strict_nic = false;  // it would end queue pairs before they do harm
        o.directory = scratch / "ssds";
        std::filesystem::create_directories(o.directory);
        embedded::UdpListen listen;
        listen.address = loopback_address(27);
        listen.shm = socket();
        return embedded::Node::open(o, listen).value();
    }
    void SetUp() override {
        void* const at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(at, MAP_FAILED);
        report = std::construct_at(static_cast<Report*>(at));
        {
            const auto node = serve();  // what the SSDs are called
            for (std::uint32_t i = 0; i < kSsds; ++i) identities.push_back(node->identity(i));
        }
        server = std::make_unique<rdma::test::Child>([this](auto ready) {
            const auto node = serve();
            ready();
            for (;;) ::pause();
        });
        for (std::uint64_t seed = 1; seed <= kHostile; ++seed)
            hostile.push_back(std::make_unique<rdma::test::Child>([this, seed](auto ready) {
                SplitMix64 random(run_seed() + seed);
                ready();
                const std::uint64_t goal = seed * kCommands;  // of all together
                while (report->commands.load() < goal)
                    live_and_die(socket(), identities[seed % kSsds], random, *report);
                report->done.fetch_add(1);
                for (;;) ::pause();
            }));
        ASSERT_TRUE(server->begin());
        nic = rdma::open_shm_nic(socket()).value();
        daemon = gnstor::test::start_daemon_over(
            *nic, kSsds, [&](std::uint32_t slot) { return identities[slot]; }, ports);
        client::ClientOptions c;
        c.name = "owner";
        c.channels = 1;
        client = client::Client::connect(*daemon, *nic, c).value();
        client::CreateVolume r;
        r.name = "v";
        r.capacity_bytes = std::uint64_t{kBlocks} * nvme::kBlockBytes;
        r.replicas = 2;
        (void)client->create(r).value();
        volume = client->open("v", client::OpenMode::kWrite).value();
    }
    Status read(std::uint32_t block, std::vector<std::uint64_t>& to) {
        return volume->ref().read(simt::self(simt::Lane{}), client->channel(0).ref(), block, 1, to.data(),
                                  simt::Deadline::in_ns(kDeadlineNs));
    }
    Status write(std::uint32_t block, std::uint64_t word) {
        const std::vector<std::uint64_t> from(nvme::kBlockBytes / 8, word);
        return volume->ref().write(simt::self(simt::Lane{}), client->channel(0).ref(), block, 1, from.data(),
                                   simt::Deadline::in_ns(kDeadlineNs));
    }

    ssd::testing::Scratch scratch;
    Report* report = nullptr;
    std::vector<daemon::SsdIdentity> identities;
    std::unique_ptr<rdma::test::Child> server;
    std::vector<std::unique_ptr<rdma::test::Child>> hostile;
    std::unique_ptr<rdma::Nic> nic;
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
};

TEST_F(HostileShm, ClientsThatWriteOverAllThatTheyShareHarmNeitherTheNodeNorAnyOtherClient) {
    std::array<std::uint64_t, kBlocks> model{};
    for (std::uint32_t block = 0; block < kBlocks; ++block)
        ASSERT_EQ(write(block, model[block] = 1'000'000 + block), Status::kSuccess);
    for (const auto& process : hostile) ASSERT_TRUE(process->begin());
    SplitMix64 random(run_seed());
    std::vector<std::uint64_t> to(nvme::kBlockBytes / 8);
    std::uint64_t verified = 0;
    const auto end = simt::Deadline::in_ns(120'000'000'000);
    while ((report->done.load() < kHostile || verified < 1000) && !end.passed()) {
        const auto block = static_cast<std::uint32_t>(random.below(kBlocks));
        if (random.below(3) == 0) {
            model[block] = random.next();
            ASSERT_EQ(write(block, model[block]), Status::kSuccess) << "after " << verified;
        }
        ASSERT_EQ(read(block, to), Status::kSuccess) << "after " << verified;
        for (const std::uint64_t word : to) ASSERT_EQ(word, model[block]) << "block " << block;
        ++verified;
    }
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
        ASSERT_EQ(read(block, to), Status::kSuccess);
        for (const std::uint64_t word : to) ASSERT_EQ(word, model[block]) << "block " << block;
    }
    EXPECT_EQ(report->done.load(), kHostile) << "commands: " << report->commands.load();
    hostile.clear();  // with commands under way
    for (std::uint32_t block = 0; block < kBlocks; ++block) ASSERT_EQ(read(block, to), Status::kSuccess);
    EXPECT_EQ(to[0], model[kBlocks - 1]);
    count("hostile_shm_commands", report->commands.load());
    count("hostile_shm_words", report->words.load());
    count("hostile_shm_connections", report->lives.load());
    count("hostile_shm_verified", verified);
}

}  // namespace gnstor::test::hostile_shm_test
