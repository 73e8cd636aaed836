// session.hpp: one client of a ShmServer: its NIC on the node's loop wire, and its memory as mapped here.
//
// Invariants
//   * every range that the client names must lie in one block of memory that it shared; the NIC gets the
//     address in this process (regions keep the client's addresses, which its entries name);
//   * a block is unmapped only after the NIC has no more region, ring or queue pair in it;
//   * nothing that the client sends can end more than its own session;
//   * the client's resources stay within its shares (shares.hpp) and return to them when the NIC has
//     released them.
// One thread: the session's.
#pragma once

#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
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
    /// `shares` outlives it. From `options`: the node's address and the time limits at the end.
    Session(Socket socket, std::unique_ptr<SoftNic> nic, Shares& shares, const ShmServerOptions& options);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Answers `first`, then serves until the client is gone or `stop` is set; then frees all that the
    /// client has. That takes at most give_back_ms after the client's end, at most end_ms once `stop` is
    /// set; what the NIC still uses then stays mapped.
    void run(const Request& first, Descriptor file, const std::atomic<bool>& stop);
    /// After run(): something stayed with the NIC. Its shares are lost for good.
    [[nodiscard]] bool abandoned() const noexcept { return abandoned_; }
    /// Makes run() return soon. Any thread.
    void end() const { socket_->stop_receiving(); }

  private:
    /// Memory of the client: its address there and here.
    struct Block {
        std::uint64_t address = 0, bytes = 0;
        std::byte* here = nullptr;
        std::uint32_t users = 0;  ///< regions, rings and queue pairs in it
    };
    using Users = std::vector<std::uint64_t>;  ///< addresses of blocks; one entry per use

    bool answer(const Request& request, Descriptor file);
    Answer serve(const Request& request, Descriptor file);
    Result<void> act(const Request& request, Descriptor file, Answer& answer);
    Result<void> share(const Request& request, const Descriptor& file);
    Result<void> unshare(const Request& request);
    Result<void> register_memory(const Request& request, Answer& answer);
    Result<void> create_ring(const Request& request, Answer& answer);
    Result<void> create_queue_pair(const Request& request, Answer& answer);
    Result<void> connect(const Request& request, Answer& answer);

    /// The address in this process of `count` objects that the client has at `address`; adds their block
    /// to `users`.
    template <class T>
    Result<T*> locate(std::uint64_t address, std::uint64_t count, Users& users);
    Result<std::byte*> locate_bytes(std::uint64_t address, std::uint64_t bytes, std::size_t alignment,
                                    Users& users);
    void use(const Users& users);
    void unuse(std::map<std::uint32_t, Users>& owners, std::uint32_t number);
    void give_all_back(const std::atomic<bool>& stop);
    void close();
    /// One attempt. False: the NIC still uses something.
    bool give_back(std::chrono::steady_clock::time_point until);
    void abandon();

    /// Closed after everything was freed: the end of the socket tells the client that this process no
    /// longer touches its memory.
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
