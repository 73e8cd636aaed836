// service_units.hpp: the shards of a drive on threads of their own, and the front's way to them.
//
// Each service unit owns one shard and is polled by one reactor. Front and unit talk through two
// single-producer rings: checked commands there, answers back. Both rings keep their order, which makes the
// barrier: what the front sent before it is done and answered when its echo comes. Invariants
//   * a shard is touched by its unit's thread alone, once mounted;
//   * messages to a unit are done in the order sent; they go some at a time, at the latest with the front's
//   next poll(), and a full ring holds them back in the front, in order;
//   * what a unit has counted is to be seen before the answers that it counted;
//   * answers reach the sink on the front's thread alone, during poll() or settle().
// The front's thread: whoever polls the engine. A unit may share the front's thread.
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

/// What the front asks of a unit: one cache line.
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
    bool good;  ///< of an echo: it was done
};

class ServiceUnit final : public Poller, public deengine::CompletionSink {
  public:
    static Result<std::unique_ptr<ServiceUnit>> create(Reactor& reactor, Reactor& front);

    void own(std::unique_ptr<deengine::Shard> shard);
    /// From the unit's thread, or from the front's before the unit is polled.
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;
    std::uint32_t poll() override;

    // The front's side.
    /// Goes when kStage messages have gathered, or with the next flush().
    void send(const UnitMessage& message);
    /// What was sent, and what a full ring held back before it, goes to the unit now, as far as there is
    /// room.
    void flush();
    [[nodiscard]] std::size_t take(std::span<UnitAnswer> answers) { return answers_->pop_some(answers); }
    [[nodiscard]] deengine::EngineCounters counters() const;
    /// As of the last answers taken, or later.
    [[nodiscard]] std::uint64_t mapped_blocks() const { return mapped_.load(std::memory_order_relaxed); }
    [[nodiscard]] Reactor& reactor() { return reactor_; }
    /// Whether the front's own thread is the one that polls it: then waiting for it means polling it.
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
    // The unit's own.
    std::unique_ptr<deengine::Shard> shard_;
    std::vector<UnitAnswer> given_;  ///< not in the ring yet
    std::size_t published_ = 0;      ///< of given_
    // The front's own.
    alignas(64) std::array<UnitMessage, kStage> stage_;
    std::size_t staged_ = 0;
    std::deque<UnitMessage> held_;  ///< older than what is staged
    // Both: written by the unit, each word by itself. The first has a line of its own, for the front looks at
    // it in every round.
    alignas(64) std::atomic<std::uint64_t> mapped_{0};
    alignas(64) std::array<std::atomic<std::uint64_t>, kCounters> counters_{};
};

class ServiceUnits final : public deengine::ShardPort {
  public:
    /// Mounts a shard over each part of the flash, each on a thread of its own for the time of the mount, and
    /// hands unit i to reactors[i % size]. `front` polls the engine.
    static Result<std::unique_ptr<deengine::ShardPort>> mount(
        std::span<const std::unique_ptr<deengine::Flash>> parts, std::span<Reactor* const> reactors,
        Reactor& front, const deengine::EngineOptions& options, const deengine::VolumeLives& lives,
        deengine::CompletionSink& sink, deengine::RecoveryReport& report);
    /// Takes the units from their reactors. Not from a thread of those, but for the front's own.
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
    std::uint32_t echoes_ = 0;  ///< still to come
    bool all_good_ = true;      ///< of the echoes that came
    std::uint64_t mapped_ = 0;
    bool lost_ = false;  ///< a barrier was given up: nothing is accepted any more
};

}  // namespace gnstor::ssd
