// remote_queue.hpp: what a queue pair has in addition while its peer is not in this process: its end of a
// link (link.hpp). Internal to rdma/.
//
// On the loop wire the engine passes pointers into the peer's memory. Here messages arrive in memory of this
// node, windows are memory of this node that is sent or fetched, and send entries are requests that complete
// later.
//   * a plain queue pair posts its entries to the link; a message passes through `landing_` to the next
//     receive;
//   * an offload queue pair keeps `messages` buffers for capsules (a token names one until release()), and
//     windows with staging memory and small SENDs; what the link has no room for waits in order.
// Invariants
//   * a request of the link is an entry (plain), or a SEND or a window (offload): its id says which;
//   * SENDs that the peer has not acknowledged are bounded: answers to all its commands twice over, and a
//     window of them. Only a peer that asks on without taking what it is answered has more: the queue pair
//     fails;
//   * memory of this node that the transport was given last stays pinned until the next time it asks, or the
//     next round of the engine (drop_pin);
//   * once shut, no link is called, every window that was not ready has been told, and nothing of this node
//     is touched from outside.
// The engine's thread alone, but for construction.
#pragma once

#include "rdma/nic/engine.hpp"
#include "rdma/nic/link.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace gnstor::rdma {

class RemoteQueue final : public Endpoint {
  public:
    enum class Side : std::uint8_t { kConnects, kAccepts };
    /// `messages`, `message_bytes`: of an offload queue pair (ConnectReply). `engine` is its thread's.
    RemoteQueue(NicEngine& engine, QueuePair& qp, Side side, std::uint32_t messages,
                std::uint32_t message_bytes);
    ~RemoteQueue() override;
    RemoteQueue(const RemoteQueue&) = delete;
    RemoteQueue& operator=(const RemoteQueue&) = delete;

    /// The link is up: from here on the queue pair sends. But where it was ended meanwhile, the link is
    /// closed.
    void start(Link& link);
    /// The link went before start(), or start() has closed it.
    [[nodiscard]] bool failed_early() const noexcept { return failed_; }
    /// Requests that may be under way at the link, for LinkOptions.
    [[nodiscard]] std::uint32_t depth() const noexcept;

    // For the engine.
    /// Posts an entry of a plain queue pair; its parts are pinned until finish_entry(). The syndrome of what
    /// cannot be posted.
    std::uint8_t post(std::uint64_t index, const mlx5::SendEntry& entry, std::uint8_t opcode,
                      std::span<const Segment> parts);
    void send(const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey);
    bool open_window(std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey, WindowUse use,
                     Window& window);
    void close_window(const Window& window, bool filled);
    void release(std::uint64_t token);
    /// Ends the link, if it is up or was accepted, and all that waits for it.
    void shut();
    void drop_pin() noexcept;
    /// The next round of the engine after note(): the pin is dropped, and what is broken fails.
    void on_round();

    // Endpoint
    void on_accepted(Link& link) override;
    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes,
                     roce::Right right) override;
    bool invalidate(std::uint32_t rkey) override;
    bool take_receive(roce::ReceiveBuffer& receive) override;
    void received(const roce::Received& received) override;
    void on_completion(const roce::Completion& completion) override;
    void on_batch() override;
    void on_failed(mlx5::Syndrome why) override;

    /// Between Acceptor::on_arrival, or the call of connect(), and the link's being up or ended: not to be
    /// destroyed.
    /// Of a queue pair that connects, until its thread has taken note of whatever came of it.
    std::atomic<bool> connecting{true};

  private:
    static constexpr std::uint32_t kNothing = ~0u;
    using SmallSend = std::array<std::byte, 64>;
    struct StagedWindow {
        WindowMemory::Piece memory;
        std::uint64_t address = 0;
        std::uint32_t rkey = 0, bytes = 0;
        WindowUse use = WindowUse::kWrite;
        bool open = false;     ///< the sink has it
        bool at_link = false;  ///< the transport has its memory
        std::uint32_t generation = 0;
    };
    struct Message {
        std::uint32_t buffer, bytes;
    };

    void submit(const roce::Request& request);
    void submit_waiting();
    void refused(const Error& why);
    void hold(std::uint32_t buffer, bool held);
    void end_accepted();
    void finish_window(std::uint32_t index, bool good);
    StagedWindow* find_window(std::uint64_t cookie) noexcept;
    void recycle(std::uint32_t index);
    [[nodiscard]] std::byte* buffer(std::uint32_t index) noexcept {
        return message_memory_.get() + std::size_t{index} * message_bytes_;
    }

    NicEngine& engine_;
    QueuePair& qp_;
    const Side side_;
    Link* link_ = nullptr;
    Link* accepted_ = nullptr;  ///< not up yet
    bool failed_ = false;
    /// A message could not be delivered, or a request not posted: the queue pair fails after the batch, or in
    /// the next round of the engine, and takes no message more.
    bool broken_ = false;

    // Plain.
    std::vector<std::byte> landing_;  ///< of the message that is arriving

    // Offload.
    const std::uint32_t message_bytes_;
    std::unique_ptr<std::byte[]> message_memory_;
    std::vector<std::uint32_t> free_buffers_;
    std::vector<bool> buffer_held_;  ///< the sink has it
    std::vector<Message> arrived_;   ///< of this batch
    std::vector<std::unique_ptr<SmallSend>> small_sends_;
    std::vector<std::uint32_t> free_sends_;
    std::vector<std::unique_ptr<StagedWindow>> windows_;
    std::vector<std::uint32_t> free_windows_;
    std::deque<roce::Request> waiting_;

    MemoryTable::Pin pin_{};
};

}  // namespace gnstor::rdma
