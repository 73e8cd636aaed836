// nodes.hpp: SoftNic's calls on a shm wire that leads to several nodes of this machine.
//
// Memory is shared with all of them, under the same keys. A queue pair is made at the node that connect()
// names, then; where there is one node alone, at once. Its send completions are that node's to write; a ring
// of receive completions is filled by all nodes that have a queue pair there, by its tickets
// (rdma/nic/tickets.hpp). No thread of this process stands between.
//
// A node that ends closes its socket when it touches nothing any more, and a thread that sleeps until then
// does what a NIC does to queue pairs in error: it writes the completions that the node had taken a place for
// and not written, so that those of other nodes behind them are seen, and one flushed receive for each of its
// queue pairs. connect() goes to the node that is there instead, and tells it all anew.
//
// Invariants
//   * `calls_` is held by one control call at a time, and by it while a node is asked; `mutex_` for moments
//   only, so that a node which does not answer keeps nobody from another one's state;
//   * a queue pair whose node has ended is `lost` until it is reset: it is made anew then, where connect()
//   says;
//   * what lies in a ring is written by a node, or, for queue pairs that are lost, by this process under
//   `mutex_`.
// Any host thread.
#pragma once

#include "rdma/nic/completion_queue.hpp"
#include "rdma/wire/shm/client.hpp"
#include "rdma/wire/shm/numbers.hpp"
#include "rdma/wire/shm/shm_wire.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gnstor::rdma::shm {

class Nodes final : public RemoteNic {
  public:
    /// All of them have to be there.
    static Result<std::unique_ptr<Nodes>> connect(std::vector<ShmNode> nodes);
    ~Nodes() override;

    Result<void> share(void* base, std::size_t bytes, int file, std::size_t offset) override;
    Result<void> unshare(void* base) override;
    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) override;
    Result<void> deregister_memory(MemoryKeys keys) override;
    Result<CqNumber> create_ring(const CompletionQueueConfig& config) override;
    Result<void> destroy_ring(CqNumber cq) override;
    /// Send completions have to be collapsed.
    Result<QpNumber> create_queue_pair(const QueuePairConfig& config) override;
    Result<void> destroy_queue_pair(QpNumber qp) override;
    Result<void> reset(QpNumber qp) override;
    Result<std::vector<std::byte>> connect_queue_pair(QpNumber qp, const std::string& peer_address,
                                                      const std::string& service,
                                                      std::span<const std::byte> private_data,
                                                      std::uint32_t timeout_ms) override;
    void disconnect(QpNumber qp) override;
    QpState state(QpNumber qp) override;
    NicCounters counters() override;
    void keep(std::shared_ptr<void> memory) override;
    /// All sockets.
    [[nodiscard]] const std::string& address() const override { return address_; }

  private:
    struct Node {
        ShmNode what;
        // Changed by control calls, under both mutexes.
        std::shared_ptr<Client> client;
        bool there = false;                  ///< under `mutex_`: its socket has not ended
        std::map<CqNumber, CqNumber> rings;  ///< that it knows, and as what
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
        Node* at = nullptr;   ///< where it was made
        bool lost = false;    ///< that node ended
        bool owed = false;    ///< its flushed receive has found no room yet
        bool settled = true;  ///< false: a reset was begun, and lanes cannot see all of its last life yet
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
    /// Waits until lanes can see all that the queue pair completed in its life, to which its node adds
    /// nothing more. Of one that is lost, that life is over then.
    Result<void> settle(QpNumber qp, Pair& pair);

    // nodes_watch.cpp
    /// Finds the node and tells it all that is shared and registered. It is not there.
    Result<void> link(Node& node);
    /// Links it anew where it has ended.
    Result<void> ensure(Node& node);
    [[nodiscard]] bool is_there(const Node& node);
    void watch();
    void wake();
    /// Whether its node was seen to end.
    [[nodiscard]] bool is_lost(const Pair& pair);
    /// Where the node was asked and turned out to have ended, before the watcher saw it: bury().
    bool buried_if_ended(Node& node);
    /// The node has ended: its queue pairs go to error.
    void bury(Node& node, const std::shared_ptr<Client>& client);
    void write_owed();

    std::mutex calls_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::map<std::byte*, Block> blocks_;
    std::map<std::uint32_t, Region> regions_;  ///< by key
    QpNumbers numbers_;
    RegionKeys keys_;
    TicketMemory tickets_;
    CqNumber last_ring_ = 0;
    std::string address_;

    std::mutex mutex_;  ///< after `calls_`. Both for changes of the tables, either for a look
    std::map<CqNumber, Ring> rings_;
    std::map<QpNumber, Pair> pairs_;
    std::vector<std::shared_ptr<void>> kept_;
    bool stopping_ = false;
    Descriptor wake_;
    std::thread watcher_;
};

}  // namespace gnstor::rdma::shm
