// client.hpp: SoftNic's calls on the shm wire, as requests to the node. Any host thread; one call at a time.
#pragma once

#include "rdma/nic.hpp"
#include "rdma/shm/messages.hpp"
#include "rdma/shm/socket.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gnstor::rdma::shm {

class Client {
  public:
    /// `server`: the process that has to listen there (kPermission: another does).
    static Result<std::unique_ptr<Client>> connect(const std::string& path, std::optional<pid_t> server);

    Result<void> share(void* base, std::size_t bytes, int file, std::size_t offset);
    Result<void> unshare(void* base);
    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access);
    Result<void> deregister_memory(MemoryKeys keys);
    Result<CqNumber> create_ring(const CompletionQueueConfig& config);
    Result<void> destroy_ring(CqNumber cq);
    Result<QpNumber> create_queue_pair(const QueuePairConfig& config);
    Result<void> destroy_queue_pair(QpNumber qp);
    Result<void> reset(QpNumber qp);
    Result<std::vector<std::byte>> connect_queue_pair(QpNumber qp, const std::string& service,
                                                      std::span<const std::byte> private_data,
                                                      std::uint32_t timeout_ms);
    void disconnect(QpNumber qp);
    /// kError once the node is gone.
    QpState state(QpNumber qp);
    NicCounters counters();
    void keep(std::shared_ptr<void> memory);
    [[nodiscard]] const std::string& address() const { return address_; }

  private:
    Client(Socket socket, std::string path) : socket_(std::move(socket)), address_(std::move(path)) {}
    Result<Answer> call(const Request& request, int file = -1);
    Result<Answer> call(const Request& request, int file, std::uint32_t patience_ms);
    /// A call that gives something back: done as well where the node has ended, and touches nothing any more.
    Result<void> give_back(const Request& request);
    void await_end();

    std::mutex mutex_;
    Socket socket_;
    // Under the mutex.
    bool gone_ = false;     // no call is made any more
    bool awaited_ = false;  // await_end() was called
    bool ended_ = false;    // the node has closed the socket: its process ended, or it let go of us
    const std::string address_;
    struct KnownState {
        QpState state;
        std::uint64_t until_ns;
    };
    std::map<QpNumber, KnownState> states_;  // under the mutex
    std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace gnstor::rdma::shm
