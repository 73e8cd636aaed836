// soft_nic_impl.hpp: what a SoftNic owns. Internal to rdma/. Tables are changed under the wire's mutex; queue
// pairs are looked up by number without a lock.
#pragma once

#include "base/random.hpp"
#include "rdma/nic/staged_windows.hpp"
#include "rdma/wire/loop/loop_wire_impl.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {

struct SoftNic::Impl {
    using Lock = LoopWire::Impl::Lock;
    static constexpr std::uint32_t kQueuePairs = 4096;  ///< numbers are (generation << 12 | index)
    static constexpr std::uint32_t kFirstQueuePair =
        2;  ///< index; 0 and 1 are a NIC's own (connection management)

    LoopWire::Impl* wire = nullptr;  ///< of the udp wire's NIC the one inside that wire
    bool attached = false;           ///< under the wire's mutex: it is in the wire's tables
    NicContext context;
    std::vector<Reactor*> reactors;
    std::vector<NicEngine*> engines;  ///< of the pollers, one a reactor
    /// Of each engine; empty without NicOptions::stage_windows.
    std::vector<std::unique_ptr<StagedWindows>> staged;
    [[nodiscard]] StagedWindows& staged_windows(const QueuePair& qp);
    std::uint32_t next_engine = 0;

    std::vector<std::unique_ptr<CompletionQueue>> completion_queues;  ///< the number is the index + 1
    std::vector<std::unique_ptr<QueuePair>> queue_pairs;
    std::vector<NicEngine*> homes;  ///< of each queue pair
    std::unique_ptr<std::atomic<QueuePair*>[]> by_index;
    std::vector<std::uint32_t> generations;  ///< last used of each index
    /// Of queue pair numbers and keys. Null: they count up, as where no packet from elsewhere can name them.
    std::optional<RandomSource> random;
    std::vector<std::shared_ptr<void>> kept;  ///< under the wire's mutex; freed with the NIC

    /// Why a window was not opened: kNotFound, kState (not connected) or kPermission (key, bounds, rights).
    struct Refusal {
        Errc code;
        const char* why;
    };
    /// SoftNic's; `refusal` is filled where the answer is false.
    bool open_window(QpNumber qp, std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey,
                     WindowUse use, Window& window, Refusal& refusal);
    /// Lock-free; null for an unknown number.
    [[nodiscard]] QueuePair* find(QpNumber qp) const noexcept {
        QueuePair* const found = by_index[qp % kQueuePairs].load(std::memory_order_acquire);
        return found != nullptr && found->qpn == qp ? found : nullptr;
    }
    /// Before the first queue pair and memory region: numbers and keys that nobody can guess.
    void make_unpredictable();
    /// The next generation of this index; never the last one, which packets of an earlier connection name.
    std::uint32_t next_generation(std::uint32_t index);
    Result<QpNumber> adopt(std::unique_ptr<QueuePair> qp,
                           std::optional<std::uint32_t> affinity = std::nullopt);
    /// Error state, flush; waits until nobody touches its memory; then apart from its peer and its engine.
    Result<void> quiesce(Lock& lock, QpNumber number, std::optional<std::uint32_t> timeout_ms = std::nullopt);
    void reset_counters(QueuePair& qp);
};

}  // namespace gnstor::rdma
