// shard_rig.hpp: one shard on a medium that can be cut, random commands, and what must be there afterwards.
//
// For each block the rig knows every write and trim that was sent, in order, and up to which of them was
// acknowledged: after a cut the block must hold the last acknowledged one or a later one that was sent; and
// what it held after one recovery, or something later, after every other.
#pragma once

#include <gtest/gtest.h>

#include "deengine/log/journal.hpp"
#include "deengine/map/block_map.hpp"
#include "deengine/shard/shard.hpp"
#include "deengine/sim/medium.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::deengine::test {

using sim::CutMode;
using sim::Fate;
using sim::Medium;
using sim::MediumOptions;

class TestLives : public VolumeRegistry {
  public:
    struct Life {
        nvme::Epoch birth;
        nvme::BlockAddress capacity;
    };
    [[nodiscard]] bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                             nvme::BlockAddress block) const override {
        const auto it = volumes.find(volume);
        return it != volumes.end() && epoch >= it->second.birth && block < it->second.capacity;
    }
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override {
        std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> all;
        for (const auto& [volume, life] : volumes) all.emplace_back(volume, life.birth);
        return all;
    }
    std::map<nvme::VolumeId, Life> volumes;
};

/// What was sent to a block: sequence n wrote contents n (odd or even), or trimmed it.
struct BlockHistory {
    struct Change {
        std::uint64_t sequence;
        bool trim;
    };
    std::vector<Change> sent;
    std::uint64_t acknowledged = 0;  ///< highest sequence that was
};

struct Expectation {
    std::map<BlockKey, BlockHistory> blocks;
    TestLives lives;
    std::uint64_t sequence = 0;
    nvme::Epoch epoch = 1;
};

class ShardRig : public CompletionSink {
  public:
    ShardRig(std::unique_ptr<Medium> m, Expectation e, EngineOptions o)
        : medium(std::move(m)), expected(std::move(e)), options(o) {}

    Result<void> mount() {
        shard.reset();
        report = {};
        const auto units = medium->options().geometry.units;
        Flash& flash = through != nullptr ? *through : medium->view(0);
        auto mounted = Shard::mount(flash, {0, 1, 0, units}, options, expected.lives, *this, report);
        if (!mounted.ok()) return std::move(mounted).error();
        shard = std::move(mounted).value();
        return {};
    }

    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t) override {
        last_status = status;
        if (tag == kReadTag) return;
        ++answers;
        const auto it = in_flight.find(tag);
        if (it == in_flight.end()) return;
        if (ok(status)) {
            for (const BlockKey key : it->second) {
                auto& highest = expected.blocks[key].acknowledged;
                highest = std::max(highest, tag);
            }
        }
        in_flight.erase(it);
    }

    /// Tags are sequences.
    void write(nvme::VolumeId volume, nvme::BlockAddress block, bool trim, std::uint32_t blocks = 1) {
        const std::uint64_t sequence = ++expected.sequence;
        ShardCommand c{};
        c.op = trim ? ShardOp::kTrim : ShardOp::kWrite;
        c.volume = volume;
        c.first = block;
        c.blocks = blocks;
        c.epoch = c.volume_epoch = expected.epoch;
        c.sequence = sequence;
        c.tag = sequence;
        if (!trim) {
            data.resize(std::size_t{blocks} * nvme::kBlockBytes);
            for (std::uint32_t i = 0; i < blocks; ++i)
                sim::Pattern(sequence).fill(data.data() + std::size_t{i} * nvme::kBlockBytes);
            c.data = data.data();
        }
        auto& keys = in_flight[sequence];
        for (std::uint32_t i = 0; i < blocks; ++i) {
            keys.push_back(make_key(volume, block + i));
            expected.blocks[keys.back()].sent.push_back({sequence, trim});
        }
        shard->execute(c);
    }

    /// `accept_older`: as a reader to whom every replica has answered Doubtful.
    nvme::Status read(BlockKey key, std::vector<std::byte>& to, bool accept_older = false) {
        to.assign(nvme::kBlockBytes, std::byte{0xEE});
        ShardCommand c{};
        c.op = ShardOp::kRead;
        c.volume = key_volume(key);
        c.first = key_block(key);
        c.blocks = 1;
        c.data = to.data();
        c.tag = kReadTag;
        c.accept_older = accept_older;
        shard->execute(c);
        return last_status;
    }

    /// Every block holds what it may; what it holds now is what it must hold from now on. Empty: all is well.
    std::string check() {
        std::vector<std::byte> got;
        for (auto& [key, history] : expected.blocks) {
            if (!expected.lives.lives(key_volume(key), ~0u, key_block(key))) continue;
            nvme::Status status = read(key, got);
            if (status == nvme::Status::kDoubtful) status = read(key, got, true);
            ++blocks_checked;
            const auto name = fmt::format("volume {} block {}", key_volume(key), key_block(key));
            if (!ok(status)) return fmt::format("{} cannot be read", name);
            std::uint64_t seen = ~0ull;
            if (sim::Pattern(0).matches(got.data(), 0, nvme::kSectorsPerBlock)) {
                seen = 0;
                for (const auto& change : history.sent)
                    if (change.trim) seen = change.sequence;
            } else {
                for (const auto& change : history.sent)
                    if (!change.trim &&
                        sim::Pattern(change.sequence).matches(got.data(), 0, nvme::kSectorsPerBlock))
                        seen = change.sequence;
            }
            if (seen == ~0ull) return fmt::format("{} holds what was never written there", name);
            if (seen < history.acknowledged)
                return fmt::format("{} holds {} although {} was acknowledged", name, seen,
                                   history.acknowledged);
            // A trim of the past reads like any: the latest that it can be is what it must be from now on
            // only if nothing was written since.
            if (seen != 0 && (history.sent.empty() || !is_zero(got) || history.sent.back().trim))
                history.acknowledged = seen;
            std::erase_if(history.sent,
                          [&h = history](const auto& c) { return c.sequence < h.acknowledged; });
        }
        in_flight.clear();
        return {};
    }
    static bool is_zero(const std::vector<std::byte>& bytes) {
        return sim::Pattern(0).matches(bytes.data(), 0, nvme::kSectorsPerBlock);
    }

    static constexpr std::uint64_t kReadTag = ~0ull;
    /// What the medium holds now, as a kill leaves it.
    void reboot() {
        shard.reset();
        in_flight.clear();
        medium = medium->image(CutMode::kKill, [](auto&&...) { return Fate::whole(); });
    }

    std::unique_ptr<Medium> medium;
    Flash* through = nullptr;  ///< a view of the medium to be mounted in its place
    Expectation expected;
    EngineOptions options;
    RecoveryReport report{};
    std::unique_ptr<Shard> shard;
    std::map<std::uint64_t, std::vector<BlockKey>> in_flight;
    std::vector<std::byte> data;
    nvme::Status last_status{};
    std::uint64_t answers = 0;
    std::uint64_t blocks_checked = 0;
};

}  // namespace gnstor::deengine::test
