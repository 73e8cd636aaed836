// service_units.cpp: rings between the front and its units, the barrier through all of them, and their mount.
#include "ssd/drive/service_units.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/log.hpp>

#include "deengine/shard/shard_room.hpp"
#include "ssd/drive/data_pointer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace gnstor::ssd {

using deengine::EngineCounters;
using deengine::RecoveryReport;
using deengine::Shard;

namespace {

/// Longer than every deadline of a flash's syncs (120 s; a barrier may wait for the sync in flight and for
/// its own): a unit that has not echoed by then hangs.
constexpr std::chrono::seconds kBarrierDeadline{300};

std::uint64_t monotonic_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

}  // namespace

Result<std::unique_ptr<ServiceUnit>> ServiceUnit::create(Reactor& reactor, Reactor& front) {
    GN_ASSIGN(auto messages, SpscRing<UnitMessage>::create(kRing));
    GN_ASSIGN(auto answers, SpscRing<UnitAnswer>::create(kRing));
    return std::unique_ptr<ServiceUnit>(
        new ServiceUnit(reactor, front, std::move(messages), std::move(answers)));
}

void ServiceUnit::own(std::unique_ptr<Shard> shard) {
    shard_ = std::move(shard);
    publish_counters();
}

void ServiceUnit::on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) {
    given_.push_back({tag, result, status, false, true});
}

std::uint32_t ServiceUnit::poll() {
    std::array<UnitMessage, kBatch> batch;
    const std::size_t count = messages_->pop_some(batch);
    for (std::size_t i = 0; i < count; ++i)
        if (batch[i].kind() == UnitMessage::Kind::kExecute)
            shard_->prefetch(batch[i].command.volume, batch[i].command.first);
    for (std::size_t i = 0; i < count; ++i)
        if (batch[i].kind() == UnitMessage::Kind::kExecute) prefetch_page(batch[i].command);
    for (std::size_t i = 0; i < count; ++i) run(batch[i]);
    const std::uint32_t answered = shard_->poll(monotonic_ns());
    if (count + answered != 0) publish_counters();
    publish();
    // Answers that did not fit into the ring count as work: the front does not signal when it has made room.
    return static_cast<std::uint32_t>(count) + answered + (given_.empty() ? 0 : 1);
}

/// A read uses the page; a write its payload, and the record of the page that it overwrites.
void ServiceUnit::prefetch_page(const deengine::ShardCommand& c) const {
    if (c.op == deengine::ShardOp::kRead) return shard_->prefetch_page(c.volume, c.first, c.first_sector);
    if (c.op != deengine::ShardOp::kWrite) return;
    shard_->prefetch_page(c.volume, c.first, nvme::kSectorsPerBlock);
    prefetch_payload(c.data);
}

void ServiceUnit::run(const UnitMessage& message) {
    const deengine::ShardCommand& c = message.command;
    switch (message.kind()) {
        case UnitMessage::Kind::kExecute:
            return shard_->execute(c);
        case UnitMessage::Kind::kFloor:
            return shard_->set_floor(c.volume, c.epoch, c.floor);
        case UnitMessage::Kind::kSettle:
            shard_->settle();
            return echo(true);
        case UnitMessage::Kind::kPurge:
            return echo(shard_->purge(c.volume));
        case UnitMessage::Kind::kRecordPurge:
            return echo(shard_->record_purge(c.volume));
        case UnitMessage::Kind::kForget:
            return shard_->forget_volume(c.volume);
        case UnitMessage::Kind::kClose: {
            const Result<void> closed = shard_->close();
            if (!closed.ok()) log_warn("{}", closed.error().message);
            return echo(closed.ok());
        }
    }
}

void ServiceUnit::publish() {
    if (given_.empty()) return;
    fence_streamed_copies();  // makes streamed copies visible before the front sees the answers
    published_ += answers_->push_some(std::span(given_).subspan(published_));
    if (!shares_front()) front_.wake();
    if (published_ != given_.size()) return;  // the ring is full: the next poll continues
    given_.clear();
    published_ = 0;
}

void ServiceUnit::publish_counters() {
    std::array<std::uint64_t, kCounters> now;
    static_assert(sizeof now == sizeof(EngineCounters), "counters are 64-bit numbers");
    std::memcpy(now.data(), &shard_->counters(), sizeof now);
    // Relaxed: each word is a gauge of its own; push_some() in publish() releases them with the answers.
    for (std::size_t i = 0; i < kCounters; ++i) counters_[i].store(now[i], std::memory_order_relaxed);
    mapped_.store(shard_->counters().mapped_blocks, std::memory_order_relaxed);
}

EngineCounters ServiceUnit::counters() const {
    std::array<std::uint64_t, kCounters> now;
    for (std::size_t i = 0; i < kCounters; ++i) now[i] = counters_[i].load(std::memory_order_relaxed);
    EngineCounters out{};
    std::memcpy(&out, now.data(), sizeof out);
    return out;
}

void ServiceUnit::send(const UnitMessage& message) {
    stage_[staged_++] = message;
    if (staged_ == kStage) flush();
}

/// One publication and one wake for all staged messages: a busy unit takes many at once anyway.
void ServiceUnit::flush() {
    if (staged_ == 0 && held_.empty()) return;
    while (!held_.empty() && messages_->try_push(held_.front())) held_.pop_front();
    const std::span<const UnitMessage> staged = std::span(stage_).first(staged_);
    const std::size_t pushed = held_.empty() ? messages_->push_some(staged) : 0;
    for (const UnitMessage& message : staged.subspan(pushed)) held_.push_back(message);
    staged_ = 0;
    if (!shares_front()) reactor_.wake();
}

Result<std::unique_ptr<deengine::ShardPort>> ServiceUnits::mount(
    std::span<const std::unique_ptr<deengine::Flash>> parts, std::span<Reactor* const> reactors,
    Reactor& front, const deengine::EngineOptions& options, const deengine::VolumeRegistry& lives,
    deengine::CompletionSink& sink, RecoveryReport& report) {
    std::unique_ptr<ServiceUnits> units(new ServiceUnits(sink));
    const std::size_t count = parts.size();
    struct Mounted {
        std::optional<Result<std::unique_ptr<Shard>>> shard;
        RecoveryReport report{};
    };
    std::vector<Mounted> mounted(count);
    for (std::size_t i = 0; i < count; ++i) {
        GN_ASSIGN(auto unit, ServiceUnit::create(*reactors[i % reactors.size()], front));
        units->units_.push_back(std::move(unit));
    }
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < count; ++i)
            threads.emplace_back([&, i] {
                const auto index = static_cast<std::uint32_t>(i);
                const auto total = static_cast<std::uint32_t>(count);
                const auto slice = deengine::units_of_shard(parts[i]->geometry().units, index, total);
                const deengine::ShardRange range{index, total, slice.first, slice.units};
                mounted[i].shard =
                    Shard::mount(*parts[i], range, options, lives, *units->units_[i], mounted[i].report);
            });
    }
    for (std::size_t i = 0; i < count; ++i) {
        deengine::add_report(report, std::move(mounted[i].report));
        GN_ASSIGN(std::unique_ptr<Shard> shard, std::move(*mounted[i].shard));
        units->units_[i]->own(std::move(shard));
    }
    units->add_to_reactors();
    return std::unique_ptr<deengine::ShardPort>(std::move(units));
}

void ServiceUnits::add_to_reactors() {
    refresh_mapped();
    for (const auto& unit : units_) unit->reactor().add(*unit);
}

ServiceUnits::~ServiceUnits() {
    for (const auto& unit : units_) unit->reactor().remove(*unit);
}

void ServiceUnits::execute(std::uint32_t shard, const deengine::ShardCommand& command) {
    if (lost_) return sink_.on_complete(command.tag, nvme::Status::kInternalError, 0);
    units_[shard]->send({UnitMessage::Kind::kExecute, command});
}

std::uint32_t ServiceUnits::poll(std::uint64_t) {
    for (const auto& unit : units_) unit->flush();
    const std::uint32_t given = drain();
    refresh_mapped();
    return given;
}

/// Called after the answers were taken, so that it includes the blocks that they mapped.
void ServiceUnits::refresh_mapped() {
    mapped_ = 0;
    for (const auto& unit : units_) mapped_ += unit->mapped_blocks();
}

std::uint32_t ServiceUnits::drain() {
    std::array<UnitAnswer, 64> answers;
    std::uint32_t given = 0;
    for (const auto& unit : units_)
        while (const std::size_t count = unit->take(answers)) {
            for (std::size_t i = 0; i < count; ++i) {
                const UnitAnswer& a = answers[i];
                if (!a.echo) {
                    sink_.on_complete(a.tag, a.status, a.result);
                    ++given;
                    continue;
                }
                --echoes_;
                all_good_ = all_good_ && a.good;
            }
        }
    return given;
}

/// Sends a message to every unit and waits until all have echoed. False: a unit failed, or does not answer.
bool ServiceUnits::barrier(const UnitMessage& message) {
    if (lost_) return false;
    all_good_ = true;
    echoes_ = shards();
    for (const auto& unit : units_) unit->send(message);
    const auto deadline = std::chrono::steady_clock::now() + kBarrierDeadline;
    while (echoes_ != 0) {
        for (const auto& unit : units_) {
            unit->flush();
            if (unit->shares_front()) (void)unit->poll();
        }
        (void)drain();
        if (echoes_ == 0) break;
        if (std::chrono::steady_clock::now() > deadline) {
            lost_ = true;
            log_error("{} of {} service units have not answered for {} s: the drive accepts no more commands",
                      echoes_, shards(), kBarrierDeadline.count());
            return false;
        }
        std::this_thread::yield();
    }
    refresh_mapped();
    return all_good_;
}

bool ServiceUnits::settle() {
    return barrier({UnitMessage::Kind::kSettle, {}});
}

bool ServiceUnits::purge(nvme::VolumeId volume) {
    UnitMessage message{UnitMessage::Kind::kPurge, {}};
    message.command.volume = volume;
    return barrier(message);
}

bool ServiceUnits::record_purge(nvme::VolumeId volume) {
    UnitMessage message{UnitMessage::Kind::kRecordPurge, {}};
    message.command.volume = volume;
    return barrier(message);
}

void ServiceUnits::forget_volume(nvme::VolumeId volume) {
    UnitMessage message{UnitMessage::Kind::kForget, {}};
    message.command.volume = volume;
    for (const auto& unit : units_) unit->send(message);
}

void ServiceUnits::set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
    UnitMessage message{UnitMessage::Kind::kFloor, {}};
    message.command.volume = volume;
    message.command.epoch = epoch;
    message.command.floor = floor;
    for (const auto& unit : units_) unit->send(message);
}

Result<void> ServiceUnits::close() {
    if (barrier({UnitMessage::Kind::kClose, {}})) return {};
    return error(
        Errc::kIo,
        "a service unit was closed without a checkpoint; what was acknowledged is recovered from the log "
        "at the next opening");
}

EngineCounters ServiceUnits::counters() const {
    EngineCounters sum{};
    for (const auto& unit : units_) deengine::add_counters(sum, unit->counters());
    return sum;
}

}  // namespace gnstor::ssd
