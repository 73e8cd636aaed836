// shard_port.hpp: how the front of an engine reaches its shards: here in the same thread, elsewhere through
// rings.
//
// Completions come through the sink that the shards were mounted with, during execute(), poll() or settle(),
// always on the thread that calls those. One owner thread: the front's.
#pragma once

#include "deengine/shard/shard.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace gnstor::deengine {

class ShardPort {
  public:
    virtual ~ShardPort() = default;
    [[nodiscard]] virtual std::uint32_t shards() const = 0;
    virtual void execute(std::uint32_t shard, const ShardCommand& command) = 0;
    virtual void prefetch(std::uint32_t shard, nvme::VolumeId volume, nvme::BlockAddress block) const = 0;
    /// As Shard::prefetch_page(); shards on other threads prefetch without being asked.
    virtual void prefetch_page(std::uint32_t /*shard*/, nvme::VolumeId /*volume*/,
                               nvme::BlockAddress /*block*/, std::uint32_t /*first_sector*/) const {}
    /// Returns the number of completions given.
    virtual std::uint32_t poll(std::uint64_t now_ns) = 0;
    /// The barrier: returns when every command sent is executed and answered. False: a shard no longer
    /// answers, and the caller must not rely on the barrier.
    [[nodiscard]] virtual bool settle() = 0;
    virtual void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) = 0;
    /// As Shard's, on all shards. False: at least one shard's record is not durable.
    [[nodiscard]] virtual bool purge(nvme::VolumeId volume) = 0;
    [[nodiscard]] virtual bool record_purge(nvme::VolumeId volume) = 0;
    virtual void forget_volume(nvme::VolumeId volume) = 0;
    virtual Result<void> close() = 0;
    /// Sums over the shards; may lag behind.
    [[nodiscard]] virtual EngineCounters counters() const = 0;
    [[nodiscard]] virtual std::uint64_t mapped_blocks() const = 0;
    /// Shard::audit() of all shards that this thread can reach.
    [[nodiscard]] virtual std::vector<std::string> audit() const { return {}; }
};

/// Adds the counters of a shard to those of a drive.
void add_counters(EngineCounters& sum, const EngineCounters& more);

class InlinePort final : public ShardPort {
  public:
    explicit InlinePort(std::vector<std::unique_ptr<Shard>> shards) : shards_(std::move(shards)) {}

    [[nodiscard]] std::uint32_t shards() const override { return static_cast<std::uint32_t>(shards_.size()); }
    void execute(std::uint32_t shard, const ShardCommand& command) override {
        shards_[shard]->execute(command);
    }
    void prefetch(std::uint32_t shard, nvme::VolumeId volume, nvme::BlockAddress block) const override {
        shards_[shard]->prefetch(volume, block);
    }
    void prefetch_page(std::uint32_t shard, nvme::VolumeId volume, nvme::BlockAddress block,
                       std::uint32_t first_sector) const override {
        shards_[shard]->prefetch_page(volume, block, first_sector);
    }
    std::uint32_t poll(std::uint64_t now_ns) override {
        std::uint32_t given = 0;
        for (const auto& shard : shards_) given += shard->poll(now_ns);
        return given;
    }
    [[nodiscard]] bool settle() override {
        for (const auto& shard : shards_) shard->settle();
        return true;
    }
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) override {
        for (const auto& shard : shards_) shard->set_floor(volume, epoch, floor);
    }
    [[nodiscard]] bool purge(nvme::VolumeId volume) override {
        bool durable = true;
        for (const auto& shard : shards_) durable = shard->purge(volume) && durable;
        return durable;
    }
    [[nodiscard]] bool record_purge(nvme::VolumeId volume) override {
        bool durable = true;
        for (const auto& shard : shards_) durable = shard->record_purge(volume) && durable;
        return durable;
    }
    void forget_volume(nvme::VolumeId volume) override {
        for (const auto& shard : shards_) shard->forget_volume(volume);
    }
    Result<void> close() override {
        Result<void> first;
        for (const auto& shard : shards_)
            if (Result<void> closed = shard->close(); !closed.ok() && first.ok()) first = std::move(closed);
        return first;
    }
    [[nodiscard]] EngineCounters counters() const override {
        EngineCounters sum{};
        for (const auto& shard : shards_) add_counters(sum, shard->counters());
        return sum;
    }
    [[nodiscard]] std::uint64_t mapped_blocks() const override {
        std::uint64_t sum = 0;
        for (const auto& shard : shards_) sum += shard->mapped_blocks();
        return sum;
    }
    [[nodiscard]] std::vector<std::string> audit() const override {
        std::vector<std::string> all;
        for (const auto& shard : shards_)
            for (std::string& finding : shard->audit()) all.push_back(std::move(finding));
        return all;
    }

  private:
    std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace gnstor::deengine
