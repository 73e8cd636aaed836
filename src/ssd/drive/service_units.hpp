// service_units.hpp: runs the shards of a drive on threads of their own, and connects the front to them.
//
// Each service unit owns one shard and is polled by one reactor. Front and unit talk through two
// single-producer rings: checked commands one way, completions the other. Both rings keep their order, which
// makes the barrier: when a unit's echo arrives, everything that the front sent before it is done and
// answered.
// Invariants
//   * after the mount only the unit's thread touches its shard;
//   * a unit handles messages in the order sent; the front publishes them in small groups, at the latest in
//     its next poll(), and keeps them, in order, while the ring is full;
//   * a unit publishes its counters before the answers that they count;
//   * answers reach the sink only on the front's thread, during poll() or settle().
// The front's thread is the one that polls the engine. It may also poll a unit.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/spsc_ring.hpp>

#include "deengine/front/shard_port.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gnstor::ssd {

/// A request from the front to a unit: one cache line.
struct alignas(64) UnitMessage {
    enum class Kind : std::uint8_t { kExecute, kSettle, kFloor, kPurge, kRecordPurge, kForget, kClose };
    UnitMessage() = default;
    UnitMessage(Kind kind, const deengine::ShardCommand& what) : command(what) {
        command.of_port = static_cast<std::uint8_t>(kind);
    }
    [[nodiscard]] Kind kind() const { return static_cast<Kind>(command.of_port); }
    deengine::ShardCommand command;  ///< kFloor: volume, epoch, floor; kPurge, kRecordPurge, kForget: volume
};
static_assert(sizeof(UnitMessage) == 64);

/// What a unit answers: a completion, or the echo of a kSettle, kPurge, kRecordPurge or kClose.
struct UnitAnswer {
    std::uint64_t tag;
    std::uint64_t result;
    nvme::Status status;
    bool echo;
    bool good;  ///< of an echo: the request succeeded
};

class ServiceUnit final : public Poller, public deengine::CompletionSink {
  public:
    static Result<std::unique_ptr<ServiceUnit>> create(Reactor& reactor, Reactor& front);

    void own(std::unique_ptr<deengine::Shard> shard);
    /// Call from the unit's thread, or from the front's before the unit is polled.
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;
    std::uint32_t poll() override;

    // The front's side.
    /// Stages a message; it is published when kStage are staged, or by the next flush().
    void send(const UnitMessage& message);
    /// Publishes the staged messages, behind those that a full ring held back, as far as the ring has room.
    void flush();
    [[nodiscard]] std::size_t take(std::span<UnitAnswer> answers) { return answers_->pop_some(answers); }
    [[nodiscard]] deengine::EngineCounters counters() const;
    /// As of the last answers taken, or newer.
    [[nodiscard]] std::uint64_t mapped_blocks() const { return mapped_.load(std::memory_order_relaxed); }
    [[nodiscard]] Reactor& reactor() { return reactor_; }
    /// Whether the front's thread polls this unit: it must then poll the unit while it waits for it.
    [[nodiscard]] bool shares_front() const { return &reactor_ == &front_; }

  private:
    static constexpr std::size_t kRing = 4096;
    static constexpr std::size_t kBatch = 32;
    static constexpr std::size_t kStage = 8;
    static constexpr std::size_t kCounters = sizeof(deengine::EngineCounters) / sizeof(std::uint64_t);

    ServiceUnit(Reactor& reactor, Reactor& front, std::unique_ptr<SpscRing<UnitMessage>> messages,
                std::unique_ptr<SpscRing<UnitAnswer>> answers)
        : reactor_(reactor), front_(front), messages_(std::move(messages)), answers_(std::move(answers)) {}
    void prefetch_page(const deengine::ShardCommand& command) const;
    void run(const UnitMessage& message);
    void echo(bool good) { given_.push_back({0, 0, nvme::Status::kSuccess, true, good}); }
    void publish();
    void publish_counters();

    Reactor& reactor_;
    Reactor& front_;
    std::unique_ptr<SpscRing<UnitMessage>> messages_;
    std::unique_ptr<SpscRing<UnitAnswer>> answers_;
    // Used by the unit's thread only.
    std::unique_ptr<deengine::Shard> shard_;
    std::vector<UnitAnswer> given_;  ///< not in the ring yet
    std::size_t published_ = 0;      ///< of given_
    // Used by the front's thread only.
    alignas(64) std::array<UnitMessage, kStage> stage_;
    std::size_t staged_ = 0;
    std::deque<UnitMessage> held_;  ///< held back by a full ring; older than what is staged
    // Written by the unit, read by the front; each word is independent of the others. mapped_ has a cache
    // line of its own, because the front reads it in every round.
    alignas(64) std::atomic<std::uint64_t> mapped_{0};
    alignas(64) std::array<std::atomic<std::uint64_t>, kCounters> counters_{};
};

class ServiceUnits final : public deengine::ShardPort {
  public:
    /// Mounts a shard on each part of the flash, each on a temporary thread of its own, and assigns unit i to
    /// reactors[i % size]. `front` polls the engine.
    static Result<std::unique_ptr<deengine::ShardPort>> mount(
        std::span<const std::unique_ptr<deengine::Flash>> parts, std::span<Reactor* const> reactors,
        Reactor& front, const deengine::EngineOptions& options, const deengine::VolumeRegistry& lives,
        deengine::CompletionSink& sink, deengine::RecoveryReport& report);
    /// Removes the units from their reactors. Not to be called on a unit's thread, except the front's own.
    ~ServiceUnits() override;

    [[nodiscard]] std::uint32_t shards() const override { return static_cast<std::uint32_t>(units_.size()); }
    void execute(std::uint32_t shard, const deengine::ShardCommand& command) override;
    void prefetch(std::uint32_t, nvme::VolumeId, nvme::BlockAddress) const override {}
    std::uint32_t poll(std::uint64_t now_ns) override;
    [[nodiscard]] bool settle() override;
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) override;
    [[nodiscard]] bool purge(nvme::VolumeId volume) override;
    [[nodiscard]] bool record_purge(nvme::VolumeId volume) override;
    void forget_volume(nvme::VolumeId volume) override;
    Result<void> close() override;
    [[nodiscard]] deengine::EngineCounters counters() const override;
    /// As of the last poll().
    [[nodiscard]] std::uint64_t mapped_blocks() const override { return mapped_; }

  private:
    explicit ServiceUnits(deengine::CompletionSink& sink) : sink_(sink) {}
    std::uint32_t drain();
    void refresh_mapped();
    bool barrier(const UnitMessage& message);
    void add_to_reactors();

    deengine::CompletionSink& sink_;
    std::vector<std::unique_ptr<ServiceUnit>> units_;
    std::uint32_t echoes_ = 0;  ///< not yet received
    bool all_good_ = true;      ///< all echoes received so far reported success
    std::uint64_t mapped_ = 0;
    bool lost_ = false;  ///< a barrier timed out: the drive accepts no more commands
};

}  // namespace gnstor::ssd
