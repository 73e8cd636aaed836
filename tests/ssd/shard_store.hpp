// shard_store.hpp: a store in a file with the firmware's shards on it, for tests of stores: writes and trims
// with known contents, answered at once, and what each block may hold.
//
// No drive and no queues: what is tested is what lies in the store. One thread.
#pragma once

#include "deengine/front/firmware_state.hpp"
#include "deengine/shard/shard.hpp"
#include "scratch.hpp"
#include "ssd/drive/backbone.hpp"
#include "ssd/flash/file/file_store.hpp"
#include "ssd/older_store.hpp"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::ssd::testing {

inline constexpr nvme::VolumeId kVolumes[] = {3, 9};
inline constexpr std::uint32_t kVolumeBlocks = 96;

/// Sequence, block and place in every 16 bytes: no other block, no other time, no half looks right.
inline void fill_block(std::byte* to, std::uint64_t sequence, nvme::VolumeId volume, std::uint32_t block) {
    for (std::uint64_t i = 0; i < nvme::kBlockBytes / 16; ++i) {
        const std::uint64_t words[2] = {sequence,
                                        (std::uint64_t{volume} << 48) | (std::uint64_t{block} << 16) | i};
        std::memcpy(to + i * 16, words, sizeof words);
    }
}

inline nvme::VolumeRecord volume_record(nvme::VolumeId volume) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = r.birth_epoch = 1;
    r.geometry = {0x1234u + volume, kVolumeBlocks, volume, 4, 1, 0};
    r.owner = r.writer = 1;
    std::snprintf(r.name, sizeof r.name, "volume-%u", volume);
    std::snprintf(r.owner_name, sizeof r.owner_name, "client-1");
    return r;
}

class ShardStore final : public deengine::CompletionSink, private deengine::VolumeRegistry {
  public:
    /// What is there, or a new store of about 1 MiB for users. Errors: the store's, or the firmware's.
    static Result<std::unique_ptr<ShardStore>> open(const std::filesystem::path& path,
                                                    std::uint32_t service_units = 1,
                                                    std::uint32_t format_version = kStoreFormatVersion) {
        std::unique_ptr<ShardStore> self(new ShardStore);
        DriveOptions options;
        options.capacity_bytes = 1u << 20;
        options.pages_per_unit = 16;
        options.service_units = service_units;
        if (std::error_code none; !std::filesystem::exists(path, none)) {
            GN_ASSIGN(NewStore what, new_store_for(options));
            what.metadata_bytes = 2 * kStorePage;
            GN_ASSIGN(self->store_, FileStore::create(path, what));
            if (format_version == 4) {
                self->store_.reset();
                if (!make_version_4(path)) std::abort();
                GN_ASSIGN(self->store_, FileStore::open(path));
            }
            deengine::FirmwareState state;
            for (const nvme::VolumeId v : kVolumes)
                if (!nvme::ok(state.permissions.add(volume_record(v), 8, 256))) std::abort();
            if (!self->store_->store(state.serialise())) std::abort();
        } else {
            GN_ASSIGN(self->store_, FileStore::open(path));
        }
        GN_TRY(self->mount());
        return self;
    }

    void on_complete(std::uint64_t, nvme::Status status, std::uint64_t) override {
        last_ = status;
        answered_ = true;
    }

    nvme::Status write(nvme::VolumeId volume, std::uint32_t block, std::uint32_t blocks = 1) {
        data_.resize(std::size_t{blocks} * nvme::kBlockBytes);
        ++sequence;
        for (std::uint32_t i = 0; i < blocks; ++i)
            fill_block(data_.data() + std::size_t{i} * nvme::kBlockBytes, sequence, volume, block + i);
        return execute(deengine::ShardOp::kWrite, volume, block, blocks, data_.data());
    }
    nvme::Status trim(nvme::VolumeId volume, std::uint32_t block, std::uint32_t blocks = 1) {
        ++sequence;
        return execute(deengine::ShardOp::kTrim, volume, block, blocks, nullptr);
    }
    nvme::Status read(nvme::VolumeId volume, std::uint32_t block, Page& to) {
        return execute(deengine::ShardOp::kRead, volume, block, 1, to.data());
    }
    /// Ends as a drive does: a checkpoint, and nothing left to recover.
    void close() {
        for (auto& shard : shards_)
            if (!shard->close().ok()) std::abort();
    }
    /// The same for a store that may be too damaged for it.
    void close_if_possible() {
        for (auto& shard : shards_) (void)shard->close().ok();
    }
    /// Every sequence so far is answered.
    void resolve() {
        for (auto& shard : shards_)
            for (const nvme::VolumeId v : kVolumes) shard->set_floor(v, 1, sequence);
    }
    void poll() {
        for (auto& shard : shards_) shard->poll(now_ns_ += 100'000);
    }

    FileStore& store() { return *store_; }
    deengine::Shard& shard(std::uint32_t i) { return *shards_[i]; }
    deengine::RecoveryReport report{};
    std::uint64_t sequence = 0;

  private:
    ShardStore() = default;

    Result<void> mount() {
        const StoreIdentity identity = store_->identity();
        const std::uint32_t units = store_->geometry().units;
        GN_ASSIGN(const deengine::FirmwareState state,
                  deengine::FirmwareState::parse(store_->load(), 1024, 256, units));
        permissions_ = state.permissions;
        GN_ASSIGN(flash_, store_->parts(identity.service_units));
        deengine::EngineOptions options;
        options.block_limit = identity.capacity_bytes / nvme::kBlockBytes;
        options.max_tombstones = 512;
        for (std::uint32_t i = 0; i < identity.service_units; ++i) {
            const UnitRange r = UnitRange::of(units, i, identity.service_units);
            GN_ASSIGN(auto shard,
                      deengine::Shard::mount(*flash_[i], {i, identity.service_units, r.first, r.units},
                                             options, *this, *this, report));
            shards_.push_back(std::move(shard));
        }
        return {};
    }
    [[nodiscard]] bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                             nvme::BlockAddress block) const override {
        const deengine::Volume* v = permissions_.find(volume);
        return v != nullptr && epoch >= v->record.birth_epoch && block < v->record.geometry.capacity_blocks;
    }
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override {
        std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> all;
        for (const deengine::Volume& v : permissions_.volumes())
            all.emplace_back(v.record.geometry.volume, v.record.epoch);
        return all;
    }
    nvme::Status execute(deengine::ShardOp op, nvme::VolumeId volume, std::uint32_t block,
                         std::uint32_t blocks, std::byte* data) {
        deengine::ShardCommand c{};
        c.op = op;
        c.volume = volume;
        c.first = block;
        c.blocks = blocks;
        c.epoch = c.volume_epoch = 1;
        c.sequence = sequence;
        c.data = data;
        // An extent of 256 blocks lies in one shard.
        deengine::Shard& shard = *shards_[((block >> 8) + volume * 0x9E37u) % shards_.size()];
        answered_ = false;
        shard.execute(c);
        // A sync is another thread's: it takes the time that it takes, within a bound.
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!answered_ && std::chrono::steady_clock::now() < deadline) {
            shard.poll(now_ns_ += 100'000);
            if (!answered_) std::this_thread::yield();
        }
        return answered_ ? last_ : nvme::Status::kTimedOut;
    }

    std::unique_ptr<FileStore> store_;
    deengine::PermissionTable permissions_;
    FlashParts flash_;
    std::vector<std::unique_ptr<deengine::Shard>> shards_;
    std::vector<std::byte> data_;
    nvme::Status last_{};
    bool answered_ = false;
    std::uint64_t now_ns_ = 1;
};

}  // namespace gnstor::ssd::testing
