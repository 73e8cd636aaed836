// shm_flip_test.cpp: a client changes its queues while the node works on them. Whatever the node checked is
// what it uses: each entry is read once.
#include "rdma/shm_rig.hpp"

#include "support/count.hpp"

#include <sys/mman.h>

#include <atomic>
#include <thread>

namespace gnstor::rdma::test {
namespace {

constexpr std::uint32_t kLong = 4096, kShort = 64;

/// A second mapping of shared memory, so that what is written there is another process's to the sanitizers.
template <class T>
T* elsewhere(T* at, std::size_t count) {
    constexpr std::uintptr_t kPage = 4096;
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t first = address / kPage * kPage;
    const std::size_t bytes = (address + count * sizeof(T) - first + kPage - 1) / kPage * kPage;
    // Of length 0: the mapping stays where it is, too (mremap(2), shared mappings).
    void* const again = ::mremap(reinterpret_cast<void*>(first), 0, bytes, MREMAP_MAYMOVE);
    EXPECT_NE(again, MAP_FAILED);
    return reinterpret_cast<T*>(static_cast<std::byte*>(again) + (address - first));
}

/// Takes messages and says whether all of them lay in the one region that the client has. The node's thread.
struct Watcher : MessageSink {
    explicit Watcher(SoftNic& owner) : nic(owner) {}
    void on_message(const InboundMessage& m) override {
        const auto [data, bytes] = m.segments[0];
        const std::byte* const from = base.load(std::memory_order_acquire);
        if (from != nullptr) {
            const auto offset = static_cast<std::uint64_t>(data - from);
            if (data < from || offset > kLong || bytes > kLong - offset) outside.fetch_add(1);
            (bytes == kLong ? long_ones : short_ones).fetch_add(1);
        }
        std::array<std::byte, 16> answer{};
        nic.release(m.qp, m.token);
        nic.send(m.qp, answer.data(), answer.size());
    }
    void on_error(QpNumber) override {}
    SoftNic& nic;
    std::atomic<const std::byte*> base{nullptr};
    std::atomic<std::uint64_t> outside{0}, long_ones{0}, short_ones{0};
};

/// Turns descriptors between two that are good, each for another length, as fast as it can. Half of one with
/// half of the other is out of bounds.
class Flipper {
  public:
    Flipper(End& end, std::uint64_t region, std::uint64_t receive_region)
        : sends_(elsewhere(end.send_ring, end.send.entries())),
          receives_(elsewhere(end.receive_ring, end.receive.entries())),
          send_entries_(end.send.entries()),
          receive_entries_(end.receive.entries()),
          region_(region),
          receive_region_(receive_region),
          thread_([this] { run(); }) {}
    ~Flipper() {
        stop_.store(true, std::memory_order_release);
        thread_.join();
    }
    Flipper(const Flipper&) = delete;
    Flipper& operator=(const Flipper&) = delete;

  private:
    static void turn(mlx5::DataSegment& segment, std::uint64_t region, bool whole) {
        // The length last for the short one, the address last for the long one: what is read half way is
        // within bounds, so that nearly all messages are good ones.
        const std::uint64_t address = be64(region + (whole ? 0 : kLong - kShort));
        const std::uint32_t bytes = be32(whole ? kLong : kShort);
        if (!whole) __atomic_store_n(&segment.byte_count, bytes, __ATOMIC_RELEASE);
        __atomic_store_n(&segment.address, address, __ATOMIC_RELEASE);
        if (whole) __atomic_store_n(&segment.byte_count, bytes, __ATOMIC_RELEASE);
    }
    void run() {
        for (bool whole = false; !stop_.load(std::memory_order_acquire); whole = !whole) {
            for (std::uint32_t i = 0; i < send_entries_; ++i) turn(sends_[i].segment[0].data, region_, whole);
            for (std::uint32_t i = 0; i < receive_entries_; ++i) turn(receives_[i], receive_region_, whole);
        }
    }
    mlx5::SendEntry* const sends_;
    mlx5::DataSegment* const receives_;
    const std::uint32_t send_entries_, receive_entries_;
    const std::uint64_t region_, receive_region_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST(ShmFlips, TheNodeUsesTheSameBytesOfAnEntryThatItChecked) {
    Node node;
    Watcher watcher(*node.nic);
    node.sink = &watcher;
    const auto nic = must(open_shm_nic(node.path));
    ReceiveCq cq(*nic, 6);
    End end(*nic, cq, {.buffer_bytes = kLong, .scatter = false}, 1 << 16);
    // One region, of exactly so many bytes; what lies around it is nobody's to touch.
    constexpr std::size_t kAt = 8192;
    std::ranges::fill(end.payload, std::byte{0xA5});
    const MemoryKeys key =
        must(nic->register_memory(end.payload.data() + kAt, kLong, kLocalWrite | kRemoteRead));
    const auto region = reinterpret_cast<std::uint64_t>(end.payload.data() + kAt);
    std::uint64_t good = 0, failed = 0;
    constexpr std::uint64_t kMessages = 4000, kFailuresMax = 2000;
    while (good < kMessages && failed < kFailuresMax) {
        (void)must(nic->connect(end.qpn, "node", kService, {}, 10'000));
        if (watcher.base.load() == nullptr) {
            Window window{};
            const QpNumber there = node.last_queue_pair();
            node.nic->owner(there).run([&] {
                ASSERT_TRUE(node.nic->open_window(there, region, kLong, key.rkey, WindowUse::kRead, window));
                node.nic->close_window(there, window);
            });
            watcher.base.store(window.data, std::memory_order_release);
        }
        const auto first = reinterpret_cast<std::uint64_t>(end.buffers.data());
        const Flipper flipper(end, region, first);
        while (good < kMessages) {
            const auto syndrome = end.post_and_wait(
                [&](SendTicket& t) { end.send.fill_send(t, mlx5::make_data(region, kShort, key.lkey)); });
            if (syndrome != mlx5::kSyndromeNone) break;
            bool arrived = false, error = false;
            EXPECT_TRUE(eventually([&] {
                for (const Received& r : reap(cq, {&end.receive, 1})) {
                    arrived = true;
                    error = error || r.syndrome != mlx5::kSyndromeNone;
                }
                return arrived;
            }));
            if (!arrived || error) break;
            ++good;
        }
        if (good == kMessages) break;
        ++failed;
        must(nic->reset_queue_pair(end.qpn));
        (void)reap(cq, {&end.receive, 1});
        end.restart();
    }
    EXPECT_EQ(good, kMessages) << failed << " failures";
    EXPECT_EQ(watcher.outside.load(), 0u);
    EXPECT_GT(watcher.long_ones.load(), 0u);
    EXPECT_GT(watcher.short_ones.load(), 0u);
    for (std::size_t i = 0; i < end.payload.size(); ++i)
        ASSERT_EQ(end.payload[i], std::byte{0xA5}) << "byte " << i << " was written";
    must(nic->reset_queue_pair(end.qpn));
    must(nic->deregister_memory(key));
    gnstor::test::count("shm_flipped_messages", good);
}

}  // namespace
}  // namespace gnstor::rdma::test
