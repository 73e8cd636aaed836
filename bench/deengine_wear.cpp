// deengine_wear.cpp: full drives: what garbage collection costs and how long a single write waits for it, and
// how long a drive takes to open.
//
// Flash keeps records alone (null_flash.hpp): these are the firmware's own times, without the copies of the
// flash below. Every promised block is mapped and blocks are overwritten uniformly at random, one command
// after the other, each with its poll: a pause is a command's whole time until both have returned.
#include "deengine.hpp"
#include "deengine/shard/greedy_curve.hpp"
#include "deengine/shard/shard.hpp"
#include "deengine/shard/shard_room.hpp"
#include "null_flash.hpp"

#include <gnstor/base/hash.hpp>

namespace gnstor::bench::deengine_bench {
namespace {

constexpr std::uint32_t kWearUnitPages = 1024;
constexpr nvme::VolumeId kWearVolume = 1;
constexpr std::uint32_t kTurnsToSteady = 3;  ///< times the drive is overwritten before it is measured

class Everything final : public deengine::VolumeRegistry {
  public:
    [[nodiscard]] bool lives(nvme::VolumeId, nvme::Epoch, nvme::BlockAddress) const override { return true; }
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override { return {}; }
};

class WearAnswers final : public deengine::CompletionSink {
  public:
    void on_complete(std::uint64_t, nvme::Status status, std::uint64_t) override {
        ++given;
        failed += !nvme::ok(status);
    }
    std::uint64_t given = 0, failed = 0;
};

/// A shard whose every promised block is mapped.
class FullShard {
  public:
    FullShard(std::uint64_t blocks, std::uint32_t over_provisioning_percent, std::uint64_t seed)
        : blocks_(blocks), random_(seed), block_(std::make_unique<AlignedBlock>()) {
        options_.over_provisioning_percent = over_provisioning_percent;
        units_ = deengine::units_for_blocks(blocks, kWearUnitPages, 1, options_);
        flash_ = std::make_unique<NullFlash>(deengine::FlashGeometry{units_, kWearUnitPages});
    }
    Result<void> open() {
        shard_.reset();
        report_ = {};
        const Stopwatch watch;
        GN_ASSIGN(shard_, deengine::Shard::mount(*flash_, {0, 1, 0, units_}, options_, everything_, answers_,
                                                 report_));
        opened_in_ = watch.seconds();
        return {};
    }
    Result<void> fill() {
        for (std::uint64_t b = 0; b < blocks_; ++b) write(b);
        return check();
    }
    void write(std::uint64_t vba) {
        deengine::ShardCommand c{};
        c.op = deengine::ShardOp::kWrite;
        c.volume = kWearVolume;
        c.first = static_cast<nvme::BlockAddress>(vba);
        c.blocks = 1;
        c.epoch = c.volume_epoch = 1;
        c.tag = c.sequence = ++sequence_;
        c.data = block_->bytes;
        shard_->execute(c);
        shard_->poll(now_ns_ += 1000);
    }
    void overwrite(std::uint64_t count) {
        for (std::uint64_t i = 0; i < count; ++i) write(random_.below(blocks_));
    }
    Result<void> check() {
        if (answers_.failed == 0 && shard_->mapped_blocks() == blocks_) return {};
        return error(Errc::kIo, "{} writes to the full drive failed; {} of {} blocks are mapped",
                     answers_.failed, shard_->mapped_blocks(), blocks_);
    }
    Result<Repeat> measure_overwrites() {
        const deengine::EngineCounters before = shard_->counters();
        std::vector<std::uint32_t> pauses;
        pauses.reserve(blocks_);
        const Stopwatch watch;
        for (std::uint64_t i = 0; i < blocks_; ++i) {
            const auto begin = std::chrono::steady_clock::now();
            write(random_.below(blocks_));
            pauses.push_back(static_cast<std::uint32_t>((std::chrono::steady_clock::now() - begin).count()));
        }
        Repeat r = repeat_of(watch.seconds(), blocks_);
        GN_TRY(check());
        r.latency = summarize(std::move(pauses));
        const deengine::EngineCounters after = shard_->counters();
        const auto user = static_cast<double>(after.blocks_written - before.blocks_written);
        const auto since = [&](std::uint64_t deengine::EngineCounters::*counter) {
            return static_cast<double>(after.*counter - before.*counter);
        };
        const auto of_blocks = static_cast<double>(blocks_);
        const auto room = deengine::ShardRoom::of(units_, kWearUnitPages, options_);
        const auto all = static_cast<double>(units_) * kWearUnitPages;
        r.more["write_amplification"] = 1 + since(&deengine::EngineCounters::gc_pages_copied) / user;
        r.more["greedy_all_units"] = deengine::greedy_amplification(all / of_blocks);
        r.more["greedy_data_units"] = deengine::greedy_amplification(
            static_cast<double>(room.data_pages(units_, kWearUnitPages)) / of_blocks);
        r.more["journal_share"] = since(&deengine::EngineCounters::system_pages) /
                                  since(&deengine::EngineCounters::pages_programmed);
        r.more["stalls"] = since(&deengine::EngineCounters::stalls);
        return r;
    }
    Result<Repeat> measure_opening(bool closed) {
        if (closed) {
            GN_TRY(shard_->close());
        } else {
            overwrite(blocks_ / 16);
        }
        GN_TRY(open());
        GN_TRY(check());
        Repeat r = repeat_of(opened_in_, blocks_);
        const double gib = static_cast<double>(blocks_) * nvme::kBlockBytes / (1ull << 30);
        r.more["recovery_seconds"] = opened_in_;
        r.more["memory_mib_a_gib"] = static_cast<double>(report_.memory_bytes) / (1u << 20) / gib;
        return r;
    }

  private:
    const std::uint64_t blocks_;
    SplitMix64 random_;
    const std::unique_ptr<AlignedBlock> block_;
    const Everything everything_{};
    deengine::EngineOptions options_;
    std::uint32_t units_ = 0;
    WearAnswers answers_;
    deengine::RecoveryReport report_{};
    std::unique_ptr<NullFlash> flash_;
    std::unique_ptr<deengine::Shard> shard_;
    std::uint64_t sequence_ = 0, now_ns_ = 1;
    double opened_in_ = 0;
};

}  // namespace

Result<std::vector<Case>> measure_collect(const DeEngineOptions& options) {
    std::vector<Step> steps;
    std::vector<std::unique_ptr<FullShard>> shards;
    for (const std::uint32_t percent : {7u, 15u, 28u}) {
        shards.push_back(std::make_unique<FullShard>(options.wear_blocks, percent, options.seed));
        FullShard* shard = shards.back().get();
        GN_TRY(shard->open());
        GN_TRY(shard->fill());
        shard->overwrite(kTurnsToSteady * options.wear_blocks);
        steps.push_back({{{"operation", "overwrite of a full drive"}, {"over-provisioning %", percent}},
                         [shard] { return shard->measure_overwrites(); }});
    }
    return measure("collect", options.repeats, std::move(steps));
}

Result<std::vector<Case>> measure_recover(const DeEngineOptions& options) {
    FullShard shard(options.recover_blocks, 7, options.seed);
    GN_TRY(shard.open());
    GN_TRY(shard.fill());
    std::vector<Step> steps;
    steps.push_back({{{"operation", "opening after a close"}}, [&] { return shard.measure_opening(true); }});
    steps.push_back({{{"operation", "opening after a kill, a sixteenth overwritten"}},
                     [&] { return shard.measure_opening(false); }});
    return measure("recover", options.repeats, std::move(steps));
}

}  // namespace gnstor::bench::deengine_bench
