// session.hpp: one client of a ShmServer: the NIC that it has on the node's loop wire, and its memory here.
//
// Invariants
//   * every address that the client names is looked for in a block of memory that it shared, whole; the NIC
//   is told where this process has it (regions keep the client's addresses, which its entries name);
//   * a block is unmapped only after all that lies in it is gone from the NIC;
//   * nothing that the client sends ends anything but its own session;
//   * what it has of the node is within its shares (shares.hpp), and goes back to them when the NIC has let
//   go.
// One thread: the session's.
#pragma once

#include "rdma/nic/nic.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/shm/messages.hpp"
#include "rdma/wire/shm/shares.hpp"
#include "rdma/wire/shm/socket.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::rdma::shm {

class Session {
  public:
    /// `shares` outlives it. Of `options`: the node's address, and how long its end waits for drives.
    Session(Socket socket, std::unique_ptr<SoftNic> nic, Shares& shares, const ShmServerOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Answers what the client has said already, then serves until it is gone, or `stop` is set; then gives
    /// all back. Bounded after the client's end, and more so once `stop` is set: what the NIC does not let go
    /// of in that time is left to it, mapped.
    void run(const Request& first, Descriptor file, const std::atomic<bool>& stop);
    /// Once run() has returned: something was left to the NIC. Its shares are used for good.
    [[nodiscard]] bool abandoned() const noexcept { return abandoned_; }
    /// Ends run() soon. Any thread.
    void end() const { socket_->stop_receiving(); }

  private:
    /// Memory of the client, as it names it and as it is mapped here.
    struct Block {
        std::uint64_t address = 0, bytes = 0;
        std::byte* here = nullptr;
        std::uint32_t users = 0;  ///< regions, rings and queue pairs in it
    };
    using Users = std::vector<std::uint64_t>;  ///< blocks, by address; one entry a use

    bool answer(const Request& request, Descriptor file);
    Answer serve(const Request& request, Descriptor file);
    Result<void> act(const Request& request, Descriptor file, Answer& answer);
    Result<void> share(const Request& request, const Descriptor& file);
    Result<void> unshare(const Request& request);
    Result<void> register_memory(const Request& request, Answer& answer);
    Result<void> create_ring(const Request& request, Answer& answer);
    Result<void> create_queue_pair(const Request& request, Answer& answer);
    Result<void> connect(const Request& request, Answer& answer);

    /// Where this process has `count` things of the client at `address`; notes the block in `users`.
    template <class T>
    Result<T*> locate(std::uint64_t address, std::uint64_t count, Users& users);
    Result<std::byte*> locate_bytes(std::uint64_t address, std::uint64_t bytes, std::size_t alignment,
                                    Users& users);
    void use(const Users& users);
    void unuse(std::map<std::uint32_t, Users>& owners, std::uint32_t number);
    void give_all_back(const std::atomic<bool>& stop);
    void close();
    /// One try. False: the NIC did not let go of all.
    bool give_back(std::chrono::steady_clock::time_point until);
    void abandon();

    /// Closed after everything was given back: to the client its end says that nothing of its memory is
    /// touched any more.
    const std::shared_ptr<const Socket> socket_;
    std::unique_ptr<SoftNic> nic_;
    const std::string node_;
    const std::chrono::milliseconds give_back_, end_;
    bool abandoned_ = false;
    Portion has_queue_pairs_, has_completion_queues_, has_send_entries_, has_blocks_, has_bytes_;
    const std::array<Portion*, 5> portions_{&has_queue_pairs_, &has_completion_queues_, &has_send_entries_,
                                            &has_blocks_, &has_bytes_};
    std::map<std::uint64_t, Block> blocks_;  ///< by the client's address
    std::map<std::uint32_t, Users> regions_, rings_, queue_pairs_;
    std::map<std::uint32_t, std::uint32_t> send_entries_;  ///< of each queue pair
};

}  // namespace gnstor::rdma::shm
