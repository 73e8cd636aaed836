// node_connection.hpp: the calls of a NIC (nic/nic.hpp) as requests to one node. Any host thread; one call at
// a time.
#pragma once

#include "rdma/nic/nic.hpp"
#include "rdma/wire/shm/messages.hpp"
#include "rdma/wire/shm/socket.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gnstor::rdma::shm {

class NodeConnection {
  public:
    /// `server`: the process that must be listening there, of this process's user or of root (kPermission:
    /// another one is).
    static Result<std::unique_ptr<NodeConnection>> connect(const std::string& path,
                                                           std::optional<pid_t> server);

    Result<void> share(void* base, std::size_t bytes, int file, std::size_t offset);
    Result<void> unshare(void* base);
    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) {
        return register_memory_as(0, base, bytes, access);
    }
    /// With this key (MemoryTable::add); 0: any.
    Result<MemoryKeys> register_memory_as(std::uint32_t key, void* base, std::size_t bytes,
                                          std::uint32_t access);
    Result<void> deregister_memory(MemoryKeys keys);
    Result<CqNumber> create_ring(const CompletionQueueConfig& config);
    Result<void> destroy_ring(CqNumber cq);
    Result<QpNumber> create_queue_pair(const QueuePairConfig& config);
    Result<void> destroy_queue_pair(QpNumber qp);
    Result<void> reset(QpNumber qp);
    /// Ignores the address: there is one node.
    Result<std::vector<std::byte>> connect_queue_pair(QpNumber qp, const std::string& peer_address,
                                                      const std::string& service,
                                                      std::span<const std::byte> private_data,
                                                      std::uint32_t timeout_ms);
    void disconnect(QpNumber qp);
    /// kError once the node is gone.
    QpState state(QpNumber qp);
    NicCounters counters();
    void keep(std::shared_ptr<void> memory);
    [[nodiscard]] const std::string& address() const { return address_; }

    /// Poll it for POLLHUP, which says that the node no longer touches our memory: its process ended, or
    /// it closed the session.
    [[nodiscard]] int socket() const { return socket_.fd(); }
    /// The socket has hung up.
    [[nodiscard]] bool hung_up() const;
    /// Further calls fail at once. The node may still touch our memory until its socket hangs up.
    [[nodiscard]] bool gone();
    /// For a client that is gone(): waits until the socket hangs up, for some seconds at most; false: it
    /// has not.
    [[nodiscard]] bool ended();

  private:
    NodeConnection(Socket socket, std::string path) : socket_(std::move(socket)), address_(std::move(path)) {}
    Result<Answer> call(const Request& request, int file = -1);
    Result<Answer> call(const Request& request, int file, std::uint32_t patience_ms);
    /// A call that releases something. Succeeds also where the node has ended, as it no longer touches
    /// our memory.
    Result<void> give_back(const Request& request);
    void await_end();

    std::mutex mutex_;
    Socket socket_;
    // Under the mutex.
    bool gone_ = false;     // no more calls are made
    bool awaited_ = false;  // await_end() was called
    bool ended_ = false;    // the socket hung up: the node's process ended, or it closed the session
    const std::string address_;
    struct KnownState {
        QpState state;
        std::uint64_t until_ns;
    };
    std::map<QpNumber, KnownState> states_;  // under the mutex
    std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace gnstor::rdma::shm
