// soft_nic.hpp: a NIC whose queue pairs are executed by engines of this process.
//
// It is on a LoopWire, which connects it to the other NICs of the process. The NIC of the udp wire is one too
// (wire/udp/udp_wire.hpp): its queue pairs have links to other machines beside that.
//
// Besides the control calls of every Nic it has what the target offload uses: listeners, offload queue pairs,
// and the calls of the data path, which are not virtual.
#pragma once

#include "rdma/nic/nic.hpp"

namespace gnstor::rdma {

class LoopWire;  // loop_wire.hpp: connects the NICs of one process by address

/// One NIC. Owns no queue memory.
class SoftNic : public Nic {
  public:
    /// `reactors`: where its pollers run, round robin; they must outlive the NIC.
    static Result<std::unique_ptr<SoftNic>> open(LoopWire& wire, std::string address, NicOptions options,
                                                 std::span<Reactor* const> reactors);
    ~SoftNic() override;

    /// Where a queue pair could not be destroyed: all that the NIC has stays allocated as long as the
    /// process, for peers that may touch it; no engine executes it any more.
    static void abandon(std::unique_ptr<SoftNic> nic);

    Result<MemoryKeys> register_memory(void* base, std::size_t bytes, std::uint32_t access) override;
    Result<void> deregister_memory(MemoryKeys keys) override;
    /// Memory of another process, which names it from `base` on; this one has it at `here`. `key`: that it is
    /// to have, if free (MemoryTable); 0: any.
    Result<MemoryKeys> register_foreign_memory(void* base, std::size_t bytes, std::uint32_t access,
                                               std::byte* here, std::uint32_t key = 0);

    Result<CqNumber> create_completion_queue(const CompletionQueueConfig& config) override;
    Result<void> destroy_completion_queue(CqNumber cq) override;

    Result<QpNumber> create_queue_pair(const QueuePairConfig& config) override;
    /// `sink` must outlive the queue pair. `affinity`: queue pairs with the same one (ConnectRequest) are
    /// executed by the same poller: those of one channel, so that no two threads write into its completion
    /// queue by turns.
    Result<QpNumber> create_offload_queue_pair(MessageSink& sink,
                                               std::optional<std::uint32_t> affinity = std::nullopt);
    Result<void> destroy_queue_pair(QpNumber qp,
                                    std::optional<std::uint32_t> timeout_ms = std::nullopt) override;
    Result<void> reset_queue_pair(QpNumber qp) override;
    [[nodiscard]] QpState state(QpNumber qp) const override;
    void keep(std::shared_ptr<void> memory) override;

    /// `service` names the listener at this NIC's address.
    virtual Result<void> listen(const std::string& service, Listener& listener);
    virtual void unlisten(const std::string& service);
    Result<std::vector<std::byte>> connect(QpNumber qp, const std::string& peer_address,
                                           const std::string& service,
                                           std::span<const std::byte> private_data,
                                           std::uint32_t timeout_ms) override;
    void disconnect(QpNumber qp) override;

    // The offload's calls. `qp` is an offload queue pair of this NIC.
    /// Opens a window of `bytes` at `address` under `rkey` of the peer. Any thread on the loop wire, where
    /// the pointer is the peer's memory itself (payload by reference), held registered until close_window. On
    /// other wires only the thread of the poller that owns the queue pair; `data` is then memory of this NIC:
    ///   * for writing, it is sent by close_window, as RDMA WRITE, before whatever send() is called after
    ///     that; an address or key that the peer refuses puts the queue pair to error;
    ///   * for reading, it is not `ready` yet: the sink's on_window_ready() says when it is, by the cookie.
    /// kNotFound: no such queue pair; kState: it is not connected; kPermission: key, bounds or rights.
    Result<Window> open_window(QpNumber qp, std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey,
                               WindowUse use);
    /// The same for the data path: no words about what was wrong. False: not opened.
    [[nodiscard]] bool open_window(QpNumber qp, std::uint64_t address, std::uint32_t bytes,
                                   std::uint32_t rkey, WindowUse use, Window& window);
    /// Whether windows of a connected queue pair are memory of this NIC, and not the peer's by reference.
    [[nodiscard]] bool stages_windows(QpNumber qp) const;
    /// `filled`: of one for writing: whether its bytes are the peer's to have (no: the command failed).
    void close_window(QpNumber qp, const Window& window, bool filled = true);
    /// Sends up to 64 bytes to the peer's next receive; with `invalidate_rkey` as SEND_WITH_INVALIDATE (0:
    /// plain). Only from the thread of the poller that owns the queue pair (where on_message is called).
    /// `written_before`: bytes that were written through windows since, and go before it on a timed link.
    void send(QpNumber qp, const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey = 0,
              std::uint32_t written_before = 0);
    /// A hint: send() is called soon. Same thread rule.
    void prefetch_send(QpNumber qp) const;
    /// Lets go of a message: the peer's send entry may complete. Same thread rule.
    void release(QpNumber qp, std::uint64_t token);
    /// Puts the queue pair (both ends) to error: protocol violations. Same thread rule.
    void fail(QpNumber qp);
    /// The reactor whose thread owns the queue pair.
    [[nodiscard]] Reactor& owner(QpNumber qp);

    [[nodiscard]] NicCounters counters() const override;
    [[nodiscard]] const std::string& address() const override;

    struct Impl;  ///< internal

  protected:
    /// Not on the wire before attach().
    static Result<std::unique_ptr<Impl>> make(LoopWire& wire, std::string address, NicOptions options,
                                              std::span<Reactor* const> reactors);
    explicit SoftNic(std::unique_ptr<Impl> impl);
    /// Puts the NIC on its wire. kExists: another has its address.
    Result<void> attach();
    std::unique_ptr<Impl> impl_;

  private:
    friend class LoopWire;
};

}  // namespace gnstor::rdma
