// shm_nodes_test.cpp: a client of several nodes at once: one completion ring that all of them fill, nodes
// that are killed at work and come back, whoever scribbles. Nodes are processes of their own.
#include "rdma/child.hpp"
#include "rdma/nic/tickets.hpp"
#include "rdma/shm_rig.hpp"

#include "support/count.hpp"

#include <gnstor/base/hash.hpp>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

namespace gnstor::rdma::test {

const TestWire kTestWire = TestWire::kShmNodes;

namespace {

std::string name_of(std::uint32_t node) {
    return std::to_string(::getpid()) + "-" + std::to_string(node);
}
std::filesystem::path socket_of(const std::string& name) {
    return std::filesystem::temp_directory_path() / ("gnstor-shm-" + name);
}
std::string address_of(std::uint32_t node) {
    return "node-" + std::to_string(node);
}

/// A node that serves until it is killed. Made before this process has threads.
std::unique_ptr<Child> node_child(std::uint32_t number, const ShmServerOptions& options = {}) {
    return std::make_unique<Child>([name = name_of(number), options](auto ready) {
        const Node node(options, name);
        ready();
        for (;;) ::pause();
    });
}

std::vector<ShmNode> places(std::uint32_t nodes) {
    std::vector<ShmNode> all;
    for (std::uint32_t i = 0; i < nodes; ++i)
        all.push_back(
            {address_of(i), [path = socket_of(name_of(i))] { return Result(ShmNode::Place{path}); }});
    return all;
}

/// A client of several nodes: queue pairs to each, and one ring for what all of them answer.
struct Several {
    explicit Several(std::uint32_t nodes, std::uint32_t each = 1, std::uint32_t ring_log2 = 8)
        : nodes_(nodes), nic(must(open_shm_nic(places(nodes)))), cq(*nic, ring_log2) {
        for (std::uint32_t i = 0; i < nodes * each; ++i) {
            ends.push_back(std::make_unique<End>(*nic, cq));
            connect(i);
        }
        for (const auto& end : ends) receives.push_back(end->receive);
        answers = std::vector<std::atomic<std::uint64_t>>(ends.size());
        errors = std::vector<std::atomic<std::uint32_t>>(ends.size());
    }
    void connect(std::uint32_t end) {
        (void)must(nic->connect(ends[end]->qpn, address_of(end % nodes_), kService, {}, 10'000));
    }
    /// One trip to the ring, as any lane makes it: answers are filed for whoever waits. Any thread.
    void look() {
        (void)poll(simt::self(single_lane()), cq.ref,
                   ReceiveSet{receives.data(), std::uint32_t(receives.size())}, [&](const Arrival& a) {
                       if (a.queue == ReceiveSet::kUnknown) return void(++strangers);
                       if (a.is_error()) return void(++errors[a.queue]);
                       std::uint64_t value = 0;
                       std::memcpy(&value, a.message, sizeof value);
                       answers[a.queue].store(value, std::memory_order_release);
                       ++echoes;
                   });
    }
    /// Sends a value; false: the queue pair is in error.
    bool send(std::size_t end, std::uint64_t value) {
        End& e = *ends[end];
        std::memcpy(e.payload.data(), &value, sizeof value);
        return e.post_and_wait([&](SendTicket& t) { e.send.fill_send(t, e.data(0, 64)); }) ==
               mlx5::kSyndromeNone;
    }
    /// A value there and back. False: the queue pair went to error.
    bool echo(std::size_t end, std::uint64_t value) {
        if (!send(end, value)) return false;
        EXPECT_TRUE(eventually([&] {
            look();
            return answers[end].load(std::memory_order_acquire) == value || errors[end].load() != 0;
        }));
        return answers[end].load() == value;
    }
    void restart(std::size_t end) {
        must(nic->reset_queue_pair(ends[end]->qpn));
        while (reaped_something()) {
        }
        ends[end]->restart();
        errors[end] = 0;
    }
    bool reaped_something() {
        const std::uint64_t before = cq.state->consumer;
        look();
        return cq.state->consumer != before;
    }

    const std::uint32_t nodes_;
    std::unique_ptr<Nic> nic;
    ReceiveCq cq;
    std::vector<std::unique_ptr<End>> ends;
    std::vector<ReceiveQueueRef> receives;
    std::vector<std::atomic<std::uint64_t>> answers;
    std::vector<std::atomic<std::uint32_t>> errors;
    std::atomic<std::uint64_t> echoes{0}, strangers{0};
};

TEST(ShmNodes, LanesOfManyThreadsWorkOnSeveralNodesThroughOneRing) {
    constexpr std::uint32_t kNodes = 3, kEach = 3, kAsks = 3000;
    std::vector<std::unique_ptr<Child>> children;
    for (std::uint32_t i = 0; i < kNodes; ++i) children.push_back(node_child(i));
    for (const auto& child : children) ASSERT_TRUE(child->begin());
    Several client(kNodes, kEach);
    std::map<QpNumber, int> numbers;
    for (const auto& end : client.ends) ++numbers[end->qpn];
    EXPECT_EQ(numbers.size(), kNodes * kEach)
        << "numbers that two nodes gave out say nothing in a ring of both";
    std::atomic<std::uint32_t> failed{0};
    std::vector<std::thread> lanes;
    for (std::size_t end = 0; end < client.ends.size(); ++end)
        lanes.emplace_back([&, end] {
            for (std::uint64_t n = 1; n <= kAsks; ++n)
                if (!client.echo(end, n * 16 + end)) return void(++failed);
        });
    for (auto& lane : lanes) lane.join();
    EXPECT_EQ(failed.load(), 0u);
    EXPECT_EQ(client.strangers.load(), 0u);
    EXPECT_EQ(client.echoes.load(), std::uint64_t{kNodes} * kEach * kAsks);
    EXPECT_EQ(client.nic->counters().error_completions, 0u);
    gnstor::test::count("shm_nodes_echoes", client.echoes.load());
}

TEST(ShmNodes, NoMemoryIsSharedWithANodeOfAnotherUserThatWasFoundByItsAddress) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to serve as another user";
    const std::string name = name_of(0) + "-other";
    Child other([name](auto ready) {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) return;
        const Node node({}, name);
        ready();
        for (;;) ::pause();
    });
    if (!other.begin()) GTEST_SKIP() << "another user cannot serve in the folder of this test";
    const auto opened = open_shm_nic({{address_of(0), [&] {
                                           return Result(ShmNode::Place{socket_of(name), other.pid()});
                                       }}});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, Errc::kPermission) << opened.error().message;
    other.kill();
    std::filesystem::remove(socket_of(name));
}

TEST(ShmNodes, AKilledNodeEndsItsQueuePairsWhileOthersContinueAndItsSuccessorIsFound) {
    constexpr std::uint32_t kKills = 12;
    const auto steady = node_child(0);
    std::vector<std::unique_ptr<Child>> successors;
    for (std::uint32_t i = 0; i <= kKills; ++i) successors.push_back(node_child(1));
    ASSERT_TRUE(steady->begin() && successors[0]->begin());
    Several client(2, 2);
    SplitMix64 random(seed_from_environment(11));
    for (std::uint32_t kill = 0; kill < kKills; ++kill) {
        std::atomic<bool> stop{false};
        std::atomic<std::uint64_t> steady_echoes{0}, moments{0};
        std::vector<std::thread> lanes;
        for (std::size_t end = 0; end < client.ends.size(); ++end)
            lanes.emplace_back([&, end] {
                std::uint64_t n = (std::uint64_t{kill} + 1) << 32;
                for (; client.echo(end, ++n); ++moments) {
                    if (end % 2 != 0) continue;
                    ++steady_echoes;
                    if (stop.load()) return;
                }
                EXPECT_EQ(end % 2, 1u) << "a queue pair of the surviving node ended";
            });
        const std::uint64_t wanted = 200 + random.below(400);
        EXPECT_TRUE(eventually([&] { return moments.load() > wanted; }));
        successors[kill]->kill();
        // The dead node's lanes have ended by errors, the others' go on after that.
        lanes[1].join();
        lanes[3].join();
        const std::uint64_t before = steady_echoes.load();
        EXPECT_TRUE(eventually([&] { return steady_echoes.load() > before + 500; }));
        stop.store(true);
        lanes[0].join();
        lanes[2].join();
        for (const std::size_t end : {1u, 3u}) {
            EXPECT_TRUE(
                eventually([&] { return client.nic->state(client.ends[end]->qpn) == QpState::kError; }));
            EXPECT_EQ(client.nic->connect(client.ends[end]->qpn, address_of(1), kService, {}, 1000).ok(),
                      false)
                << "no node serves there, and the queue pair was not reset";
        }
        ASSERT_TRUE(successors[kill + 1]->begin());
        for (const std::uint32_t end : {1u, 3u}) {
            client.restart(end);
            client.connect(end);
            ASSERT_TRUE(client.echo(end, kill));
        }
    }
    EXPECT_EQ(client.strangers.load(), 0u);
    gnstor::test::count("shm_nodes_killed", kKills);
}

/// Tickets of this process's rings: the block that a client of several nodes keeps them in.
std::uint64_t* words_of_tickets() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:gnstor") == std::string::npos) continue;
        const auto from = std::stoull(line, nullptr, 16);
        const auto to = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
        if (to - from == (256u << 10)) return reinterpret_cast<std::uint64_t*>(from);
    }
    return nullptr;
}

TEST(ShmNodes, ACompletionEntryReservedByADeadNodeDoesNotBlockOthers) {
    const auto lives = node_child(0), dies = node_child(1);
    ASSERT_TRUE(lives->begin() && dies->begin());
    Several client(2);
    for (std::uint64_t n = 1; n < 50; ++n) ASSERT_TRUE(client.echo(n % 2, n));
    std::uint64_t* const words = words_of_tickets();
    ASSERT_NE(words, nullptr);
    // As if it had been killed between taking a place and writing the completion.
    tickets::Taker taker(words, 1u << client.cq.ref.entries_log2, client.cq.record);
    std::uint64_t place = 0;
    ASSERT_EQ(taker.take(client.ends[1]->qpn, place), tickets::Taker::Outcome::kTaken);
    ASSERT_TRUE(client.send(0, 1000));
    ASSERT_TRUE(client.send(0, 1001));
    for (int i = 0; i < 1000; ++i) client.look();
    EXPECT_LT(client.answers[0].load(), 1000u) << "completions become visible in their order";
    dies->kill();
    EXPECT_TRUE(eventually([&] {
        client.look();
        return client.answers[0].load() == 1001 && client.errors[1].load() == 1;
    }));
    EXPECT_EQ(client.errors[0].load(), 0u);
    for (std::uint64_t n = 1002; n < 1400; ++n) ASSERT_TRUE(client.echo(0, n));
    EXPECT_EQ(client.errors[1].load(), 1u) << "one flushed receive, not two";
}

// Else lanes would see completions of its last life in its next one.
TEST(ShmNodes, AQueuePairIsResetOnlyWhenAllItsCompletionsAreVisible) {
    const auto stands_still = node_child(0), works = node_child(1);
    ASSERT_TRUE(stands_still->begin() && works->begin());
    Several client(2);
    for (std::uint64_t n = 1; n < 50; ++n) ASSERT_TRUE(client.echo(n % 2, n));
    tickets::Taker taker(words_of_tickets(), 1u << client.cq.ref.entries_log2, client.cq.record);
    std::uint64_t place = 0;
    ASSERT_EQ(taker.take(client.ends[0]->qpn, place), tickets::Taker::Outcome::kTaken);
    const std::uint64_t before = client.nic->counters().completions;
    ASSERT_TRUE(client.send(1, 1000));
    // Of the send and of the answer, which lies behind the place that was taken.
    EXPECT_TRUE(eventually([&] { return client.nic->counters().completions >= before + 2; }));
    const auto refused = client.nic->reset_queue_pair(client.ends[1]->qpn);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kBusy);
    stands_still->kill();
    EXPECT_TRUE(eventually([&] { return client.nic->state(client.ends[0]->qpn) == QpState::kError; }));
    client.restart(1);
    EXPECT_EQ(client.answers[1].load(), 1000u) << "seen before the queue pair lives again";
    client.connect(1);
    for (std::uint64_t n = 2000; n < 2100; ++n) ASSERT_TRUE(client.echo(1, n));
    EXPECT_EQ(client.strangers.load(), 0u);
}

TEST(ShmNodes, AQueuePairDestroyedWhenItsNodeEndsLeavesNoCompletionEntryOpen) {
    constexpr std::uint32_t kEnds = 16;
    const auto lives = node_child(0);
    std::vector<std::unique_ptr<Child>> mortal;
    for (std::uint32_t i = 0; i < kEnds; ++i) mortal.push_back(node_child(1));
    ASSERT_TRUE(lives->begin() && mortal[0]->begin());
    Several client(2);
    std::uint64_t n = 0;
    for (std::uint32_t i = 0; i < kEnds; ++i) {
        ASSERT_TRUE(client.echo(1, ++n));
        tickets::Taker taker(words_of_tickets(), 1u << client.cq.ref.entries_log2, client.cq.record);
        std::uint64_t place = 0;
        ASSERT_EQ(taker.take(client.ends[1]->qpn, place), tickets::Taker::Outcome::kTaken);
        // Whoever sees its end first: the watcher, or the call that asks it to destroy the queue pair.
        mortal[i]->strike();
        client.ends[1].reset();
        mortal[i]->kill();
        ASSERT_TRUE(client.echo(0, ++n)) << i;
        if (i + 1 == kEnds) break;
        ASSERT_TRUE(mortal[i + 1]->begin());
        client.ends[1] = std::make_unique<End>(*client.nic, client.cq);
        client.receives[1] = client.ends[1]->receive;
        client.errors[1] = 0;
        client.connect(1);
    }
    client.ends.resize(1);
}

// As a client does that finds another way to an SSD.
TEST(ShmNodes, AQueuePairMovesToAnotherNodeAndNotBeforeItsOwnNodesCompletions) {
    constexpr std::uint32_t kEnds = 8;
    const auto lives = node_child(0);
    std::vector<std::unique_ptr<Child>> mortal;
    for (std::uint32_t i = 0; i < kEnds; ++i) mortal.push_back(node_child(1));
    ASSERT_TRUE(lives->begin());
    std::unique_ptr<Several> client;
    for (std::uint32_t i = 0; i < kEnds; ++i) {
        ASSERT_TRUE(mortal[i]->begin());
        if (client == nullptr) client = std::make_unique<Several>(2);
        client->restart(1);
        client->connect(1);
        ASSERT_TRUE(client->echo(1, 10 + i));
        client->restart(1);
        const QpNumber qp = client->ends[1]->qpn;
        if (i % 2 == 0) {
            (void)must(client->nic->connect(qp, address_of(0), kService, {}, 10'000));
            ASSERT_TRUE(client->echo(1, 100 + i));
            mortal[i]->kill();
            ASSERT_TRUE(client->echo(1, 200 + i)) << "of a node that it has left";
            continue;
        }
        // Whoever sees the end first, nothing is connected that is in error.
        mortal[i]->strike();
        if (client->nic->connect(qp, address_of(0), kService, {}, 10'000).ok())
            ASSERT_TRUE(client->echo(1, 100 + i));
        else
            EXPECT_TRUE(eventually([&] { return client->nic->state(qp) == QpState::kError; }));
        mortal[i]->kill();
    }
    EXPECT_TRUE(client->echo(0, 1000));
    EXPECT_EQ(client->strangers.load(), 0u);
}

TEST(ShmNodes, AFlushedReceiveWaitsForRoomHeldByTheDeadNode) {
    const auto lives = node_child(0), dies = node_child(1);
    ASSERT_TRUE(lives->begin() && dies->begin());
    Several client(2, 1, 5);  // as many completions as receives, and no more
    const std::uint32_t all = client.ends[1]->receive.entries();
    ASSERT_EQ(1u << client.cq.ref.entries_log2, 2 * all);
    for (std::uint32_t i = 0; i < all; ++i)
        ASSERT_TRUE(client.send(1, i + 1));  // nobody looks at the answers
    EXPECT_TRUE(eventually([&] { return client.nic->counters().completions >= 2 * all; }));
    dies->kill();
    EXPECT_TRUE(eventually([&] { return client.nic->state(client.ends[1]->qpn) == QpState::kError; }));
    for (std::uint32_t i = 0; i < client.ends[0]->receive.entries(); ++i) ASSERT_TRUE(client.send(0, i + 1));
    EXPECT_TRUE(eventually([&] {
        client.look();
        return client.errors[1].load() == 1 && client.answers[0].load() == client.ends[0]->receive.entries();
    }));
    EXPECT_EQ(client.answers[1].load(), all) << "all answers of the ended node must be visible";
}

TEST(ShmNodes, MemoryAndKeysAreTheSameAtAllNodesAlsoAtARestartedOne) {
    const auto lives = node_child(0), dies = node_child(1), follows = node_child(1);
    ASSERT_TRUE(lives->begin() && dies->begin());
    Several client(2);
    for (const std::size_t end : {0u, 1u}) ASSERT_TRUE(client.echo(end, 7));
    // Keys of before have gaps, which a node that counted by itself would fill.
    auto passing = std::make_unique<End>(*client.nic, client.cq),
         stays = std::make_unique<End>(*client.nic, client.cq);
    passing.reset();
    dies->kill();
    EXPECT_TRUE(eventually([&] { return client.nic->state(client.ends[1]->qpn) == QpState::kError; }));
    // Made while it is away: shared, registered, and one that both have known goes.
    auto end = std::make_unique<End>(*client.nic, client.cq);
    ASSERT_TRUE(follows->begin());
    client.restart(1);
    client.connect(1);
    ASSERT_TRUE(client.echo(1, 8));
    (void)must(client.nic->connect(end->qpn, address_of(1), kService, {}, 10'000));
    (void)must(client.nic->connect(stays->qpn, address_of(1), kService, {}, 10'000));
    const MemoryKeys keys = end->keys;
    for (auto* each : {&end, &stays}) {
        client.receives.push_back((*each)->receive);
        client.ends.push_back(std::move(*each));
    }
    client.answers = std::vector<std::atomic<std::uint64_t>>(4);
    client.errors = std::vector<std::atomic<std::uint32_t>>(4);
    for (std::size_t i = 0; i < 4; ++i) ASSERT_TRUE(client.echo(i, 20 + i));
    client.receives.resize(2);
    client.ends.resize(2);
    EXPECT_EQ(client.nic->deregister_memory(keys).error().code, Errc::kNotFound);
    for (const std::size_t i : {0u, 1u}) ASSERT_TRUE(client.echo(i, 30 + i));
}

TEST(ShmNodes, AClientThatOverwritesTicketsHarmsOnlyItself) {
    const auto node_a = node_child(0), node_b = node_child(1);
    const Child scribbler([](auto ready) {
        // The nodes are the parent's.
        const auto name = std::to_string(::getppid());
        std::vector<ShmNode> all;
        for (std::uint32_t i = 0; i < 2; ++i)
            all.push_back({address_of(i), [path = socket_of(name + "-" + std::to_string(i))] {
                               return Result(ShmNode::Place{path});
                           }});
        const auto nic = must(open_shm_nic(std::move(all)));
        SplitMix64 random(3);
        for (std::uint64_t n = 0;; ++n) {
            ReceiveCq cq(*nic, 4);
            End end(*nic, cq);
            (void)must(nic->connect(end.qpn, address_of(n % 2), kService, {}, 10'000));
            std::uint64_t* const words = words_of_tickets();
            for (std::uint32_t i = 0; i < 200; ++i) {
                __atomic_store_n(words + random.below(16), random.next(), __ATOMIC_RELAXED);
                if (!end.send.broken())
                    (void)end.post_and_wait([&](SendTicket& t) { end.send.fill_send(t, end.data(0, 64)); });
            }
            if (n == 2) ready();
        }
    });
    ASSERT_TRUE(node_a->begin() && node_b->begin());
    Several steady(2);
    ASSERT_TRUE(scribbler.begin());
    for (std::uint64_t n = 1; n <= 600; ++n) ASSERT_TRUE(steady.echo(n % 2, n));
    gnstor::test::count("shm_nodes_beside_scribbles", 600);
}

TEST(ShmNodes, ResourcesRefusedByOneNodeAreReleasedAtAllAndUnknownNodesAreRefused) {
    ShmServerOptions few;
    few.limits.blocks = {.total = 4096, .assured = 8, .most = 100};
    const auto one = node_child(0), other = node_child(1, few);
    ASSERT_TRUE(one->begin());
    EXPECT_EQ(open_shm_nic(places(2)).error().code, Errc::kNotFound) << "a NIC must open all nodes or fail";
    ASSERT_TRUE(other->begin());
    Several client(2);
    const auto stranger = client.nic->connect(client.ends[0]->qpn, "node-7", kService, {}, 1000);
    EXPECT_EQ(stranger.error().code, Errc::kNotFound);
    // Blocks of the one that has less left are the limit of both: a call fails, and what was done is undone.
    std::vector<NicMemory> blocks;
    Errc refused{};
    for (std::uint32_t i = 0; i < 200 && refused == Errc{}; ++i) {
        auto made = NicMemory::map(*client.nic, 4096);
        if (made.ok())
            blocks.push_back(std::move(made).value());
        else
            refused = made.error().code;
    }
    EXPECT_EQ(refused, Errc::kNoSpace);
    EXPECT_GT(blocks.size(), 80u);
    // What the other one had taken already is given back: it would say that the addresses are shared.
    for (int i = 0; i < 20; ++i) EXPECT_EQ(NicMemory::map(*client.nic, 4096).error().code, Errc::kNoSpace);
    blocks.pop_back();
    EXPECT_TRUE(NicMemory::map(*client.nic, 4096).ok());
    for (const std::size_t end : {0u, 1u}) EXPECT_TRUE(client.echo(end, 5));
}

}  // namespace
}  // namespace gnstor::rdma::test
