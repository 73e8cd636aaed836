// rig.hpp: two drivers in one process, on 127.0.0.2 and 127.0.0.3, with endpoints that stand in for the NIC's
// queue pairs: memory under one key, receives, and a record of what happened.
//
// An endpoint's state belongs to its reactor's thread, or, where a test looks at it, to whoever holds its
// mutex.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/base/reactor.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rdma/wire/udp/driver.hpp"

namespace gnstor::rdma::udp::rig {

inline constexpr std::uint32_t kKey = 0x1234, kReadOnlyKey = 0x5678;
inline constexpr auto kPatience = std::chrono::seconds(100);

class FakeEndpoint final : public Endpoint {
  public:
    explicit FakeEndpoint(Reactor& on, std::size_t memory_bytes = 1 << 20, std::uint64_t seed = 1);
    /// Closes its link; the reactor is in none of its calls any more. One that was accepted and has no link
    /// yet must have been given up (unlisten) before.
    ~FakeEndpoint() override { close(); }
    FakeEndpoint(const FakeEndpoint&) = delete;
    FakeEndpoint& operator=(const FakeEndpoint&) = delete;

    // MemoryPort and Endpoint: the reactor's thread.
    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes,
                     roce::Right right) override;
    bool invalidate(std::uint32_t rkey) override;
    bool take_receive(roce::ReceiveBuffer& receive) override;
    void received(const roce::Received& what) override;
    void on_completion(const roce::Completion& completion) override;
    void on_batch() override;
    void on_failed(mlx5::Syndrome why) override;

    /// Any thread but the reactor's: posts on the link.
    Result<void> post(const roce::Request& request);
    void close();
    /// Its driver is gone without a word, and the link with it.
    void forget_link() {
        reactor.run([&] { link = nullptr; });
    }
    void post_receives(std::uint32_t count, std::uint32_t bytes);
    /// Waits until the predicate, called under the mutex, holds.
    bool await(const std::function<bool()>& predicate, std::chrono::milliseconds most = kPatience);
    bool await_completions(std::uint64_t count) {
        return await([&] { return completions >= count; });
    }

    Reactor& reactor;
    Link* link = nullptr;  ///< the reactor's thread
    std::vector<std::byte> memory;
    /// Called for each message, in order, by the reactor's thread.
    std::function<void(std::span<const std::byte>)> on_message;

    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::uint64_t completions = 0, messages = 0, batches = 0, invalidated = 0;
    std::vector<roce::Completion> bad;  ///< completions with an error
    std::uint64_t last_id = 0;          ///< ids must come in order
    bool out_of_order = false, called_after_end = false;
    std::optional<mlx5::Syndrome> failed;
    bool closed = false;

  private:
    struct Buffer {
        std::vector<std::byte> bytes;
    };
    std::deque<Buffer> posted_;   ///< the reactor's thread
    std::deque<Buffer> filling_;  ///< taken and not received yet
};

/// Accepts with an endpoint of its own for each arrival, or refuses.
class FakeAcceptor final : public Acceptor {
  public:
    explicit FakeAcceptor(Reactor& on, QpNumber first = 0x100) : reactor(on), next_qp(first) {}
    ArrivalReply on_arrival(const Arrival& arrival) override;
    void on_link(QpNumber qp, Link& link) override;
    FakeEndpoint* await_link(std::size_t index);
    bool await_endpoints(std::size_t count);

    Reactor& reactor;
    QpNumber next_qp;
    LinkOptions options;
    std::function<std::optional<ArrivalReply>(const Arrival&)> decide;  ///< nothing: accept
    std::uint32_t receives = 0, receive_bytes = 0;                      ///< posted before the answer
    std::atomic<std::size_t> memory_bytes{1 << 20};  ///< of each endpoint; what is written takes its time

    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::vector<std::unique_ptr<FakeEndpoint>> endpoints;
    std::vector<std::pair<QpNumber, FakeEndpoint*>> up;
    std::vector<std::vector<std::byte>> private_data;
    std::vector<std::string> peers;
    std::uint64_t arrivals = 0;
};

struct Node {
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Driver> driver;
};
/// Opens a driver from a thread that has given its CAP_NET_RAW away, if it had it.
Result<std::unique_ptr<Driver>> open_without_privilege(const UdpWireOptions& options, Reactor& reactor);

/// Drivers on the two addresses, one port for both.
struct Pair {
    explicit Pair(std::uint32_t mtu_left = 0, std::uint32_t mtu_right = 0,
                  std::string left_address = "127.0.0.2", std::string right_address = "127.0.0.3");
    Node left, right;
    UdpWireOptions left_options, right_options;

    /// Connects an endpoint of the left with the acceptor, which listens on 4420 of the right.
    Result<std::vector<std::byte>> connect(FakeEndpoint& endpoint, QpNumber qp, LinkOptions options = {},
                                           std::span<const std::byte> private_data = {},
                                           std::uint32_t timeout_ms = 30'000);
    [[nodiscard]] std::uint16_t port() const { return left_options.port; }
};

/// A request with one piece.
roce::Request request(roce::RequestKind kind, std::uint64_t id, std::span<std::byte> bytes,
                      std::uint64_t address = 0, std::uint32_t rkey = kKey);
/// Bytes that tell their place and seed.
void fill(std::span<std::byte> bytes, std::uint64_t seed);
bool holds(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace gnstor::rdma::udp::rig
