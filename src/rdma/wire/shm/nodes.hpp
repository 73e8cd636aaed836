// nodes.hpp: the NIC of the shm wire, which leads to one or several nodes of this machine.
//
// Memory is shared with all nodes, under the same keys. connect() creates a queue pair at the node that
// it names; with a single node, create_queue_pair() does. That node writes its send completions; a ring
// of receive completions is filled by all nodes that have a queue pair there, by means of its tickets
// (rdma/nic/tickets.hpp). No thread of this process takes part in the data path.
//
// A node that ends closes its socket when it no longer touches our memory. A thread that sleeps until
// then does what a NIC does to queue pairs in error: it writes the completions whose positions the node
// had taken but not written, so that lanes can reach those of other nodes behind them, and one flushed
// receive for each of the node's queue pairs. The next connect() finds the node's new process and repeats
// all shares and registrations there.
//
// Invariants
//   * each control call holds `calls_` throughout, also while a node answers; `mutex_` is held for
//     moments only, so that state() never waits for another node that does not answer;
//   * a queue pair whose node has ended is `lost` until it is reset; connect() then creates it again, at
//     the node that it names;
//   * rings are written by nodes; for lost queue pairs, by this process under `mutex_`.
// Any host thread.
#pragma once

#include "rdma/nic/completion_queue.hpp"
#include "rdma/wire/shm/node_connection.hpp"
#include "rdma/wire/shm/numbers.hpp"
#include "rdma/wire/shm/shm_nic.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gnstor::rdma::shm {

class Nodes final : public Nic {
  public:
    /// All of `nodes` must be running.
    static Result<std::unique_ptr<Nodes>> open(std::vector<ShmNode> nodes);
    ~Nodes() override;

    [[nodiscard]] bool wants_shared_memory() const override { return true; }
    Result<void> share_memory(void* base, std::size_t bytes, int file, std::size_t offset) override;
    Result<void> unshare_memory(void* base) override;
    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) override;
    Result<void> deregister_memory(MemoryKeys keys) override;
    Result<CqNumber> create_completion_queue(const CompletionQueueConfig& config) override;
    Result<void> destroy_completion_queue(CqNumber cq) override;
    /// Send completions have to be collapsed.
    Result<QpNumber> create_queue_pair(const QueuePairConfig& config) override;
    /// The time is the node's.
    Result<void> destroy_queue_pair(QpNumber qp, std::optional<std::uint32_t> timeout_ms) override;
    Result<void> reset_queue_pair(QpNumber qp) override;
    Result<std::vector<std::byte>> connect(QpNumber qp, const std::string& peer_address,
                                           const std::string& service,
                                           std::span<const std::byte> private_data,
                                           std::uint32_t timeout_ms) override;
    void disconnect(QpNumber qp) override;
    [[nodiscard]] QpState state(QpNumber qp) const override;
    [[nodiscard]] NicCounters counters() const override;
    void keep(std::shared_ptr<void> memory) override;
    /// The paths of all sockets.
    [[nodiscard]] const std::string& address() const override { return address_; }

  private:
    struct Node {
        ShmNode what;
        // Changed by control calls, under both mutexes.
        std::shared_ptr<NodeConnection> client;
        bool there = false;                  ///< under `mutex_`: its socket has not hung up
        std::map<CqNumber, CqNumber> rings;  ///< the node's number of each ring that was created there
    };
    struct Block {
        std::size_t bytes = 0, offset = 0;
        Descriptor file;
    };
    struct Region {
        void* base = nullptr;
        std::size_t bytes = 0;
        std::uint32_t access = 0;
    };
    struct Ring {
        CompletionQueueConfig config;
        std::unique_ptr<CompletionQueue> mine;  ///< this process's view
        std::uint32_t users = 0;
    };
    struct Pair {
        QueuePairConfig config;
        Node* at = nullptr;          ///< the node at which it was created
        bool lost = false;           ///< that node ended
        bool flush_pending = false;  ///< its flushed receive still has to be written: there was no room
        bool settled = true;         ///< false: reset began; lanes cannot see all earlier completions yet
    };

    explicit Nodes(std::vector<ShmNode> nodes);
    [[nodiscard]] std::vector<Node*> those_there();
    Result<void> share_with_all(std::byte* base, const Block& block);
    [[nodiscard]] bool is_shared(const void* at, std::size_t bytes) const;
    [[nodiscard]] bool in_use(const std::byte* base, std::size_t bytes) const;
    Result<Pair*> find(QpNumber qp);
    Result<void> make(Pair& pair, Node& node);
    void forget(QpNumber qp, const Pair& pair);
    Result<CqNumber> ring_at(Node& node, CqNumber cq);
    /// Waits until lanes can see all completions of the queue pair, to which its node adds no more. Then
    /// a lost queue pair is no longer tied to its node.
    Result<void> settle(QpNumber qp, Pair& pair);

    // nodes_watch.cpp
    /// Connects to a node that is not there and repeats all shares and registrations.
    Result<void> link(Node& node);
    /// Links the node again if it has ended.
    Result<void> ensure(Node& node);
    [[nodiscard]] bool is_there(const Node& node);
    void watch();
    void wake();
    /// Whether the end of its node was noticed.
    [[nodiscard]] bool is_lost(const Pair& pair);
    /// If the node's end shows in a call before the watcher noticed it: bury().
    bool buried_if_ended(Node& node);
    /// Handles the end of the node behind `client`: its queue pairs go to error.
    void bury(Node& node, const std::shared_ptr<NodeConnection>& client);
    void write_pending_flushes();

    std::mutex calls_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::map<std::byte*, Block> blocks_;
    std::map<std::uint32_t, Region> regions_;  ///< by key
    QpNumbers numbers_;
    RegionKeys keys_;
    TicketMemory tickets_;
    CqNumber last_ring_ = 0;
    std::string address_;

    mutable std::mutex
        mutex_;  ///< locked after `calls_`. Changing the tables takes both, reading takes either
    std::map<CqNumber, Ring> rings_;
    std::map<QpNumber, Pair> pairs_;
    std::vector<std::shared_ptr<void>> kept_;
    bool stopping_ = false;
    Descriptor wake_;
    std::thread watcher_;
};

}  // namespace gnstor::rdma::shm
