// shm_limits_test.cpp: what one client of a node may take from the others: places, queue pairs, memory, time.
#include "rdma/shm_rig.hpp"
#include "rdma/wire/shm/pending_connections.hpp"
#include "rdma/wire/shm/shares.hpp"

#include "support/count.hpp"

#include <gnstor/base/hash.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <chrono>

namespace gnstor::rdma::test {
namespace {

using std::chrono::milliseconds;

/// A client that makes queue pairs which all lie in each other, as many as it gets.
struct Greedy {
    explicit Greedy(const std::filesystem::path& path)
        : nic(must(open_shm_nic(path))), memory(must(NicMemory::map(*nic, 1 << 16))) {}
    ~Greedy() {
        for (const QpNumber qp : queue_pairs) must(nic->destroy_queue_pair(qp));
        for (const CqNumber cq : rings) must(nic->destroy_completion_queue(cq));
    }
    /// Makes at most so many more; why it got no more, if it did not.
    Errc take(std::size_t most) {
        auto* const cqes = reinterpret_cast<mlx5::Cqe64*>(memory.data() + 32'768);
        QueuePairConfig config{};
        config.send_ring = reinterpret_cast<mlx5::SendEntry*>(memory.data());
        config.send_entries = 16;
        config.doorbell_record = reinterpret_cast<std::uint32_t*>(memory.data() + 4096);
        config.bell = reinterpret_cast<std::uint64_t*>(memory.data() + 8192);
        for (std::size_t i = 0; i < most; ++i) {
            const auto ring = nic->create_completion_queue({cqes + rings.size() % 256, 1, nullptr, true});
            if (!ring.ok()) return ring.error().code;
            rings.push_back(*ring);
            config.send_cq = *ring;
            const auto made = nic->create_queue_pair(config);
            if (!made.ok()) {
                what = made.error().message;
                return made.error().code;
            }
            queue_pairs.push_back(*made);
        }
        return Errc{};
    }
    std::unique_ptr<Nic> nic;
    NicMemory memory;
    std::vector<QpNumber> queue_pairs;
    std::vector<CqNumber> rings;
    std::string what;
};

TEST(ShmLimits, AClientBelowItsAssuredShareAlwaysGetsMore) {
    SplitMix64 dice(seed_from_environment(11));
    std::uint64_t refused = 0, cases = 0;
    for (std::uint32_t round = 0; round < 200; ++round) {
        const auto clients = static_cast<std::uint32_t>(1 + dice.below(8));
        const std::uint64_t total = 1 + dice.below(400);
        shm::Share share("things", {total, dice.below(60), dice.below(300)}, clients);
        std::vector<std::unique_ptr<shm::Portion>> portions;
        for (std::uint32_t i = 0; i < clients; ++i) portions.push_back(std::make_unique<shm::Portion>(share));
        for (std::uint32_t step = 0; step < 300; ++step, ++cases) {
            auto& one = portions[dice.below(clients)];
            if (dice.below(20) == 0) one = std::make_unique<shm::Portion>(share);  // another one in its place
            if (dice.below(3) == 0) {
                one->give(dice.below(one->held() + 1));
                continue;
            }
            const std::uint64_t more = dice.below(40);
            const bool assured = one->held() + more <= share.assured();
            const bool got = one->take(more).ok();
            refused += got ? 0 : 1;
            ASSERT_TRUE(got || !assured) << "a client below its assured part was refused";
            std::uint64_t all = 0;
            for (const auto& portion : portions) {
                all += portion->held();
                ASSERT_LE(portion->held(), share.most());
            }
            ASSERT_LE(all, total);
        }
    }
    EXPECT_GT(refused, 0u);
    gnstor::test::count("shm_share_steps", cases);
}

TEST(ShmLimits, ClientsCannotTakeQueuePairsAssuredToOthers) {
    const ShmLimit defaults = ShmLimits{}.queue_pairs;
    Node node;
    std::vector<std::unique_ptr<Greedy>> greedy;
    std::size_t taken = 0;
    for (int i = 0; i < 4; ++i) {
        Greedy& one = *greedy.emplace_back(std::make_unique<Greedy>(node.path));
        EXPECT_EQ(one.take(5000), Errc::kNoSpace);
        EXPECT_NE(one.what.find("queue pairs"), std::string::npos) << one.what;
        EXPECT_LE(one.queue_pairs.size(), defaults.most);
        EXPECT_GE(one.queue_pairs.size(), defaults.assured);
        taken += one.queue_pairs.size();
    }
    EXPECT_EQ(taken, defaults.total - (ShmServerOptions{}.clients_max - 4) * defaults.assured);
    Client steady(node.path);
    EXPECT_TRUE(steady.echo(1));
    Greedy modest(node.path);
    EXPECT_EQ(modest.take(defaults.assured), Errc{}) << modest.what;
    greedy.pop_back();
    greedy.pop_back();
    greedy.pop_back();  // what they had is there again
    EXPECT_EQ(modest.take(100), Errc{}) << modest.what;
    gnstor::test::count("shm_greedy_queue_pairs", taken);
}

TEST(ShmLimits, ResourcesOfAnEndedClientAreFreed) {
    Node node({.clients_max = 2, .limits = {.queue_pairs = {12, 4, 8}, .completion_queues = {400, 2, 200}}});
    for (int i = 0; i < 5; ++i) {
        Greedy one(node.path);
        EXPECT_EQ(one.take(100), Errc::kNoSpace);
        EXPECT_EQ(one.queue_pairs.size(), 8u);
        one.queue_pairs.clear();  // not destroyed: its end does that
        one.rings.clear();
        one.memory.abandon();
        one.nic.reset();
        ASSERT_TRUE(eventually([&] { return node.server->clients() == 0; }));
    }
}

TEST(ShmLimits, MemoryOfAllClientsTogetherIsLimited) {
    constexpr std::uint64_t kMiB = 1 << 20;
    Node node(
        {.clients_max = 4, .limits = {.blocks = {46, 4, 30}, .bytes = {16 * kMiB, 2 * kMiB, 8 * kMiB}}});
    const shm::Descriptor file(::memfd_create("gnstor-test", MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(file.get(), 64 * kMiB), 0);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    struct Sharer {
        explicit Sharer(const std::filesystem::path& path) : nic(must(open_shm_nic(path))) {}
        Result<void> share(int fd, std::uint64_t bytes) {
            const std::uint64_t at = next;
            next += 64 * kMiB;
            return nic->share_memory(reinterpret_cast<void*>(at), bytes, fd);
        }
        std::unique_ptr<Nic> nic;
        std::uint64_t next = std::uint64_t{1} << 40;
    };
    Sharer one(node.path), two(node.path), three(node.path);
    EXPECT_EQ(one.share(file.get(), 9 * kMiB).error().code, Errc::kNoSpace) << "more than one may have";
    EXPECT_TRUE(one.share(file.get(), 8 * kMiB).ok());
    EXPECT_TRUE(two.share(file.get(), 4 * kMiB).ok());
    EXPECT_EQ(two.share(file.get(), kMiB).error().code, Errc::kNoSpace) << "others are assured of theirs";
    EXPECT_TRUE(three.share(file.get(), 2 * kMiB).ok());
    const auto more = three.share(file.get(), 4096);
    ASSERT_EQ(more.error().code, Errc::kNoSpace);
    EXPECT_NE(more.error().message.find("bytes of shared memory"), std::string::npos) << more.error().message;
    Sharer small(node.path);
    for (int i = 0; i < 30; ++i) EXPECT_TRUE(small.share(file.get(), 4096).ok()) << i;
    const auto block = small.share(file.get(), 4096);
    ASSERT_EQ(block.error().code, Errc::kNoSpace);
    EXPECT_NE(block.error().message.find("blocks"), std::string::npos) << block.error().message;
    must(one.nic->unshare_memory(reinterpret_cast<void*>(std::uint64_t{1} << 40 | 64 * kMiB)));
    EXPECT_TRUE(two.share(file.get(), kMiB).ok()) << "what one has given back";
}

TEST(ShmLimits, SilentConnectionsDoNotBlockNewClients) {
    Node node;
    std::vector<shm::Socket> silent;
    for (int i = 0; i < 300; ++i) {
        silent.push_back(must(shm::Socket::connect(node.path.string())));
        if (i % 100 == 50) {
            EXPECT_TRUE(Client(node.path).echo(1));
        }
    }
    EXPECT_TRUE(eventually([&] { return node.server->clients() == 0; }));  // none of them is one
    Client client(node.path);
    EXPECT_TRUE(client.echo(2));
    // The first have been sent away, the last may still speak.
    shm::Answer answer;
    const auto bytes = std::as_writable_bytes(std::span(&answer, 1));
    EXPECT_EQ(silent.front().receive(bytes, 10'000).error().code, Errc::kIo);
    const shm::Request hello;
    must(silent.back().send(std::as_bytes(std::span(&hello, 1))));
    must(silent.back().receive(bytes, 10'000));
    EXPECT_EQ(answer.failure, -1);
}

TEST(ShmLimits, ASilentConnectionIsClosedAfterATimeout) {
    Node node({.hello_ms = 50});
    const auto silent = must(shm::Socket::connect(node.path.string()));
    shm::Answer answer;
    EXPECT_EQ(silent.receive(std::as_writable_bytes(std::span(&answer, 1)), 20'000).error().code, Errc::kIo);
}

TEST(ShmLimits, TheLobbyClosesTheOldestConnectionOfTheUserWithMost) {
    const auto now = shm::PendingConnections::Time{} + std::chrono::hours(1);
    const auto socket = [] {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        const shm::Descriptor theirs(ends[0]);
        return shm::Socket(shm::Descriptor(ends[1]));
    };
    shm::PendingConnections pending(4, milliseconds(100));
    pending.add(socket(), 7, now);
    for (int i = 1; i <= 20; ++i) pending.add(socket(), 1000, now + milliseconds(i));
    ASSERT_EQ(pending.connections().size(), 4u);
    EXPECT_EQ(pending.connections()[0].user, 7u) << "another user's flood must not close this connection";
    EXPECT_EQ(pending.connections()[1].until, now + milliseconds(118));
    EXPECT_EQ(pending.next_deadline(), now + milliseconds(100));
    EXPECT_EQ(pending.expire(now + milliseconds(118)), 2u);
    EXPECT_EQ(pending.take(1).until, now + milliseconds(120));
    EXPECT_TRUE(pending.evict_oldest());
    EXPECT_FALSE(pending.evict_oldest());
    EXPECT_FALSE(pending.next_deadline().has_value());
}

TEST(ShmLimits, AFullNodeRefusesWithThatReasonAndServesAgainWhenAClientEnds) {
    for (const bool of_user : {false, true}) {
        Node node({.clients_max = of_user ? 9u : 2u, .clients_of_user_max = of_user ? 2u : 9u});
        auto one = std::make_unique<Client>(node.path);
        Client two(node.path);
        const auto refused = open_shm_nic(node.path);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kNoSpace);
        EXPECT_NE(refused.error().message.find("2 clients are connected"), std::string::npos)
            << refused.error().message;
        one.reset();
        ASSERT_TRUE(eventually([&] { return open_shm_nic(node.path).ok(); }));
        EXPECT_TRUE(two.echo(1));
    }
}

TEST(ShmLimits, AServerEndsInBoundedTimeEvenIfADriveNeverReleasesAClientsMemory) {
    constexpr milliseconds kEnd{300};
    // In this process, so that its addresses are known; left, as a client is that hears nothing more.
    static Client* client = nullptr;
    Node node({.end_ms = static_cast<std::uint32_t>(kEnd.count())});
    client = new Client(node.path);
    ASSERT_TRUE(client->echo(1));
    const QpNumber there = node.last_queue_pair();
    const auto address = reinterpret_cast<std::uint64_t>(client->end.payload.data());
    Window window{};
    node.nic->owner(there).run([&] {
        ASSERT_TRUE(
            node.nic->open_window(there, address, 64, client->end.keys.rkey, WindowUse::kWrite, window));
    });
    const auto began = std::chrono::steady_clock::now();
    node.server.reset();
    const auto took = std::chrono::steady_clock::now() - began;
    EXPECT_GE(took, kEnd) << "the drive was not waited for";
    EXPECT_LT(took, kEnd + std::chrono::seconds(20));
    std::memset(window.data, 0x5A, window.bytes);  // it is there all the same
    EXPECT_EQ(client->end.payload[63], std::byte{0x5A});
    node.nic->owner(there).run([&] { node.nic->close_window(there, window); });
}

TEST(ShmLimits, AnEndedClientWhoseMemoryADriveNeverReleasesStillCounts) {
    Node node({.clients_max = 2, .give_back_ms = 50});
    static Client* client = nullptr;  // as above
    client = new Client(node.path);
    ASSERT_TRUE(client->echo(1));
    const QpNumber there = node.last_queue_pair();
    const auto address = reinterpret_cast<std::uint64_t>(client->end.payload.data());
    Window window{};
    node.nic->owner(there).run([&] {
        ASSERT_TRUE(
            node.nic->open_window(there, address, 64, client->end.keys.rkey, WindowUse::kWrite, window));
    });
    client->nic.reset();
    ASSERT_TRUE(eventually([&] { return node.server->clients() == 0; }));
    Client next(node.path);  // one place is left of two
    EXPECT_TRUE(next.echo(2));
    const auto refused = open_shm_nic(node.path);
    ASSERT_FALSE(refused.ok()) << "memory of this client must not be given to another";
    EXPECT_EQ(refused.error().code, Errc::kNoSpace);
    EXPECT_NE(refused.error().message.find("restart the node to free it"), std::string::npos)
        << refused.error().message;
    node.nic->owner(there).run([&] { node.nic->close_window(there, window); });
}

}  // namespace
}  // namespace gnstor::rdma::test
