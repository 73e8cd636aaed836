// shm_test.cpp: what the shm wire adds to the NIC: sharing memory, refusals, clients that die, that write
// nonsense over all that they share, nodes that end. Clients that die are processes of their own.
#include "rdma/child.hpp"
#include "rdma/shm_rig.hpp"

#include <gnstor/base/hash.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <sched.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

namespace gnstor::rdma::test {

const TestWire kTestWire = TestWire::kShm;

namespace {

std::uint32_t mappings_of_shared_files() {
    std::ifstream maps("/proc/self/maps");
    std::uint32_t count = 0;
    for (std::string line; std::getline(maps, line);)
        count += line.find("memfd:gnstor") != std::string::npos ? 1 : 0;
    return count;
}

TEST(ShmWire, KilledClientsAreRemovedAndOthersContinue) {
    const auto path = std::filesystem::temp_directory_path() / ("gnstor-shm-" + std::to_string(::getpid()));
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i < 8; ++i)
        children.push_back(std::make_unique<Child>([path, i](auto ready) {
            Client client(path);
            for (std::uint64_t n = 0;; ++n) {
                if (!client.echo(n * 8 + static_cast<std::uint64_t>(i))) ::_exit(2);
                if (n == 100) ready();
            }
        }));
    Node node;
    const std::uint32_t before = mappings_of_shared_files();
    Client steady(node.path);
    std::uint64_t echoes = 0;
    for (const auto& child : children) ASSERT_TRUE(child->begin());
    EXPECT_EQ(node.server->clients(), 9u);
    EXPECT_GT(mappings_of_shared_files(), before);
    for (const auto& child : children) {
        for (int i = 0; i < 50; ++i, ++echoes) ASSERT_TRUE(steady.echo(echoes));
        child->kill();
        for (int i = 0; i < 50; ++i, ++echoes) ASSERT_TRUE(steady.echo(echoes));
    }
    ASSERT_TRUE(eventually([&] { return node.server->clients() == 1; }));
    std::printf("GN_COUNT shm_echoes=%llu\n", static_cast<unsigned long long>(echoes));
}

TEST(ShmWire, AClientThatOverwritesItsSharedMemoryHarmsOnlyItself) {
    const auto path = std::filesystem::temp_directory_path() / ("gnstor-shm-" + std::to_string(::getpid()));
    std::vector<std::unique_ptr<Child>> children;
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
        children.push_back(std::make_unique<Child>([path, seed](auto ready) {
            Client client(path);
            (void)client.echo(1);
            ready();
            SplitMix64 random(seed);
            // Its queues and records: all in one block in front of the payload.
            auto* const words = reinterpret_cast<std::uint32_t*>(client.end.send_ring);
            const std::size_t count =
                static_cast<std::size_t>(client.end.payload.data() - reinterpret_cast<std::byte*>(words)) / 4;
            for (std::uint64_t n = 0;; ++n) {
                if (n % 64 == 0) ::sched_yield();  // the node needs a core, too
                const std::size_t at = random.below(count);
                const auto value =
                    static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(64) : random.next());
                __atomic_store_n(words + at, value, __ATOMIC_RELAXED);
                __atomic_store_n(client.end.words, random.next(), __ATOMIC_RELAXED);  // the bell
            }
        }));
    Node node;
    Client steady(node.path);
    for (const auto& child : children) ASSERT_TRUE(child->begin());
    std::uint64_t echoes = 0;
    for (; echoes < 300; ++echoes) ASSERT_TRUE(steady.echo(echoes));
    children.clear();
    ASSERT_TRUE(eventually([&] { return node.server->clients() == 1; }));
    ASSERT_TRUE(steady.echo(echoes));
    std::printf("GN_COUNT shm_echoes_beside_nonsense=%llu\n", static_cast<unsigned long long>(echoes));
}

TEST(ShmWire, ShrinkableOrMissingMemoryIsRefused) {
    Node node;
    const auto nic = must(open_shm_nic(node.path));
    EXPECT_TRUE(nic->wants_shared_memory());
    std::vector<std::byte> heap(4096);
    EXPECT_EQ(nic->register_memory(heap.data(), heap.size(), kLocalWrite).error().code,
              Errc::kInvalidArgument);
    constexpr std::size_t kBytes = 1 << 16;
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    const int unsealed = ::memfd_create("gnstor-test", MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(unsealed, kBytes), 0);
    EXPECT_EQ(nic->share_memory(at, kBytes, unsealed).error().code, Errc::kPermission);
    ASSERT_EQ(::fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(nic->share_memory(at, kBytes + 4096, unsealed).error().code, Errc::kInvalidArgument)
        << "too short";
    EXPECT_EQ(nic->share_memory(at, 100, unsealed).error().code, Errc::kInvalidArgument) << "no whole pages";
    EXPECT_EQ(nic->share_memory(at, kBytes, -1).error().code, Errc::kInvalidArgument);
    must(nic->share_memory(at, kBytes, unsealed));
    EXPECT_EQ(nic->share_memory(at, kBytes, unsealed).error().code, Errc::kExists);
    auto* const bytes = static_cast<std::byte*>(at);
    EXPECT_FALSE(nic->register_memory(bytes + 1, kBytes, kLocalWrite).ok()) << "a byte past the end";
    EXPECT_FALSE(nic->register_memory(bytes - 1, 16, kLocalWrite).ok());
    const MemoryKeys keys = must(nic->register_memory(bytes, kBytes, kLocalWrite));
    EXPECT_EQ(nic->unshare_memory(at).error().code, Errc::kBusy);
    EXPECT_FALSE(
        nic->create_completion_queue({reinterpret_cast<mlx5::Cqe64*>(bytes), 2048, nullptr, true}).ok());
    EXPECT_FALSE(
        nic->create_completion_queue({reinterpret_cast<mlx5::Cqe64*>(bytes + 1), 1, nullptr, true}).ok());
    must(nic->deregister_memory(keys));
    must(nic->unshare_memory(at));
    EXPECT_EQ(nic->unshare_memory(at).error().code, Errc::kNotFound);
    ::close(unsealed);
    ::munmap(at, kBytes);
}

TEST(ShmWire, SocketsRefuseForeignPeersAndStateTheReason) {
    EXPECT_EQ(open_shm_nic("/nowhere/at/all").error().code, Errc::kNotFound);
    EXPECT_EQ(open_shm_nic(std::string(300, 'x')).error().code, Errc::kInvalidArgument);
    Node node;
    EXPECT_EQ(std::filesystem::status(node.path).permissions() & std::filesystem::perms::all,
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    {
        const auto socket = must(shm::Socket::connect(node.path.string()));
        const std::byte few[] = {std::byte{1}};
        must(socket.send(few));  // not a message: the session ends
        shm::Answer answer;
        EXPECT_EQ(socket.receive(std::as_writable_bytes(std::span(&answer, 1)), 10'000).error().code,
                  Errc::kIo);
    }
    const auto socket = must(shm::Socket::connect(node.path.string()));
    shm::Request request;
    shm::Answer answer;
    const auto ask = [&] {
        must(socket.send(std::as_bytes(std::span(&request, 1))));
        must(socket.receive(std::as_writable_bytes(std::span(&answer, 1)), 10'000));
        return answer.failure;
    };
    request.version = 77;
    EXPECT_EQ(ask(), static_cast<std::int32_t>(Errc::kUnsupported));
    request.version = shm::kVersion;
    request.kind = static_cast<shm::Kind>(999);
    EXPECT_EQ(ask(), static_cast<std::int32_t>(Errc::kUnsupported));
    // Whatever the fields say: an answer, and the node lives.
    SplitMix64 random(seed_from_environment(3));
    std::uint32_t asked = 0;
    for (; asked < 3000; ++asked) {
        auto bytes = std::as_writable_bytes(std::span(&request, 1));
        for (std::byte& b : bytes)
            b = random.below(3) == 0 ? static_cast<std::byte>(random.next()) : std::byte{0};
        request.magic = shm::kMagic;
        request.version = shm::kVersion;
        request.kind = static_cast<shm::Kind>(random.below(14));
        request.timeout_ms = 10;
        (void)ask();
    }
    std::printf("GN_COUNT shm_random_requests=%u\n", asked);
    Client client(node.path);
    EXPECT_TRUE(client.echo(5));
}

std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

/// Sends one request with two descriptors beside it, as no client of ours does.
bool send_with_two_files(int socket, const shm::Request& request, int file) {
    iovec piece{const_cast<shm::Request*>(&request), sizeof request};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    const int files[] = {file, file};
    head->cmsg_len = CMSG_LEN(sizeof files);
    std::memcpy(CMSG_DATA(head), files, sizeof files);
    return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof request);
}

TEST(ShmWire, UnexpectedDescriptorsAreClosed) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const shm::Descriptor theirs(ends[0]);
    const shm::Socket mine{shm::Descriptor(ends[1])};
    const std::size_t before = open_descriptors();
    shm::Request request;
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(send_with_two_files(theirs.get(), request, theirs.get()));
        shm::Descriptor file;
        must(mine.receive(std::as_writable_bytes(std::span(&request, 1)), 10'000, &file));
        EXPECT_GE(file.get(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST(ShmWire, ASignalDoesNotEndAWait) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const shm::Socket theirs{shm::Descriptor(ends[0])}, mine{shm::Descriptor(ends[1])};
    struct sigaction act {
    }, before{};
    act.sa_handler = [](int) {};
    ASSERT_EQ(::sigaction(SIGUSR1, &act, &before), 0);
    shm::Request request;
    Result<void> got = error(Errc::kState, "not run");
    std::thread waiting([&] { got = mine.receive(std::as_writable_bytes(std::span(&request, 1)), 20'000); });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < until) {
        ::pthread_kill(waiting.native_handle(), SIGUSR1);
        ::sched_yield();
    }
    must(theirs.send(std::vector<std::byte>(sizeof request)));
    waiting.join();
    EXPECT_TRUE(got.ok()) << got.error().message;
    ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST(ShmWire, FilesWhosePagesCanBePunchedOutAreRefused) {
    constexpr std::size_t kBytes = std::size_t{2} << 20;
    const shm::Descriptor file(::memfd_create("gnstor-test", MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (file.get() < 0) GTEST_SKIP() << "this kernel has no huge pages";
    ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
    ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    Node node;
    const auto nic = must(open_shm_nic(node.path));
    void* const anywhere = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
    EXPECT_EQ(nic->share_memory(anywhere, kBytes, file.get()).error().code, Errc::kPermission);
}

TEST(ShmWire, OverlappingRingsDoNotMakeTheNodeKeepMoreThanItsLimit) {
    constexpr std::uint32_t kEntries = 32'768, kCqs = 64;
    Node node;
    const auto nic = must(open_shm_nic(node.path));
    const NicMemory memory = must(NicMemory::map(*nic, (kEntries + kCqs + 1) * 64));
    QueuePairConfig config{};
    config.send_ring = reinterpret_cast<mlx5::SendEntry*>(memory.data());
    config.send_entries = kEntries;
    auto* const cqs = reinterpret_cast<mlx5::Cqe64*>(memory.data() + std::size_t{kEntries} * 64);
    config.doorbell_record = reinterpret_cast<std::uint32_t*>(cqs + kCqs);
    config.bell = reinterpret_cast<std::uint64_t*>(cqs + kCqs) + 1;
    std::vector<CqNumber> rings;
    std::vector<QpNumber> queue_pairs;
    Errc refused{};
    for (std::uint32_t i = 0; i < kCqs; ++i) {
        rings.push_back(must(nic->create_completion_queue({cqs + i, 1, nullptr, true})));
        config.send_cq = rings.back();
        const auto made = nic->create_queue_pair(config);
        if (!made.ok()) {
            refused = made.error().code;
            break;
        }
        queue_pairs.push_back(*made);
    }
    EXPECT_EQ(refused, Errc::kNoSpace);
    EXPECT_EQ(queue_pairs.size() * kEntries, std::size_t{1} << 20);
    must(nic->destroy_queue_pair(queue_pairs.back()));
    queue_pairs.back() = must(nic->create_queue_pair(config));  // what is given back may be had again
    for (const QpNumber qp : queue_pairs) must(nic->destroy_queue_pair(qp));
    for (const CqNumber cq : rings) must(nic->destroy_completion_queue(cq));
}

TEST(ShmWire, DeregisteredMemoryIsNotTouchedEvenIfTheNodeEndsMeanwhile) {
    Node node;
    auto client = std::make_unique<Client>(node.path);
    ASSERT_TRUE(client->echo(1));
    const QpNumber there = node.last_queue_pair();
    Window window{};
    node.nic->owner(there).run([&] {
        ASSERT_TRUE(node.nic->open_window(there, reinterpret_cast<std::uint64_t>(client->end.payload.data()),
                                          64, client->end.keys.rkey, WindowUse::kWrite, window));
    });
    auto ended = std::async(std::launch::async, [&] { node.server.reset(); });
    ASSERT_TRUE(eventually([&] { return client->nic->state(client->end.qpn) == QpState::kError; }));
    auto given_back = std::async(std::launch::async, [&] { client.reset(); });
    EXPECT_EQ(given_back.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    node.nic->owner(there).run([&] { node.nic->close_window(there, window); });
    given_back.get();
    ended.get();
}

TEST(ShmWire, AfterANodeEndsItsSuccessorGetsAllOfTheClientsRegistrations) {
    Node node;
    auto client = std::make_unique<Client>(node.path);
    ASSERT_TRUE(client->echo(1));
    node.server.reset();
    EXPECT_EQ(client->nic->state(client->end.qpn), QpState::kError);
    std::vector<Received> ended;
    ASSERT_TRUE(eventually([&] {
        for (Received& r : reap(client->cq, {&client->end.receive, 1})) ended.push_back(std::move(r));
        return !ended.empty();
    })) << "lanes that wait for an answer hear of the end from their completion queue";
    EXPECT_EQ(ended[0].syndrome, mlx5::kFlushed);
    const auto keys = must(client->nic->register_memory(client->end.payload.data(), 64, kLocalWrite));
    must(client->nic->reset_queue_pair(client->end.qpn));
    EXPECT_EQ(client->nic->connect(client->end.qpn, "node", kService, {}, 10'000).error().code,
              Errc::kNotFound);
    node.start();
    must(client->nic->reset_queue_pair(client->end.qpn));
    while (!reap(client->cq, {&client->end.receive, 1}).empty()) {
    }
    client->end.restart();
    (void)must(client->nic->connect(client->end.qpn, "node", kService, {}, 10'000));
    EXPECT_TRUE(client->echo(2));
    must(client->nic->deregister_memory(keys));
    node.server.reset();
    client.reset();  // gives everything back without an error: nobody touches it any more
    node.start();
    Client again(node.path);
    EXPECT_TRUE(again.echo(3));
}

}  // namespace
}  // namespace gnstor::rdma::test
