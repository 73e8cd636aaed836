// model_host.hpp: random commands of an ordinary host on several queues, held against a plain model.
//
// The model has, of each block, what it may hold: one tag after an answered write, more after writes whose
// answer was an error or never came. Commands under way at once never share a block that one of them changes.
#pragma once

#include "gateway/rig.hpp"

#include <algorithm>
#include <set>

namespace gnstor::test {

/// The words of a block that carries `tag`; 0: zeroes.
inline void fill_block(std::byte* to, std::uint64_t tag, std::uint64_t block) {
    for (std::uint32_t i = 0; i < kBlock / 8; ++i) {
        const std::uint64_t word = tag == 0 ? 0 : i == 0 ? tag : mix64(tag ^ (block << 20) ^ i);
        std::memcpy(to + std::size_t{i} * 8, &word, 8);
    }
}

class ModelHost {
  public:
    ModelHost(BlockHost& host, std::uint64_t blocks, std::uint64_t seed)
        : host_(host),
          random_(seed),
          allowed_(blocks, std::set<std::uint64_t>{0}),
          readers_(blocks),
          writers_(blocks) {
        forget_all();
    }

    /// Issues commands until `total` have been sent, then waits for the rest, unless `leave`: then they stay
    /// under way, for a disconnect to end. `may_fail`: errors of writes are no mistake.
    void run(std::uint64_t total, bool leave, bool may_fail = false) {
        may_fail_ = may_fail;
        for (std::uint64_t sent = 0; sent < total;) {
            bool moved = false;
            for (std::uint32_t q = 0; q < host_.queues(); ++q) {
                moved = reap(q) || moved;
                if (sent < total && issue(q)) {
                    ++sent;
                    moved = true;
                }
            }
            if (!moved) std::this_thread::yield();
            if (::testing::Test::HasFailure()) return;
        }
        if (leave) return;
        EXPECT_TRUE(nvmf::eventually(
            [&] {
                for (std::uint32_t q = 0; q < host_.queues(); ++q) (void)reap(q);
                return under_way() == 0;
            },
            120));
    }
    /// The connections are gone: whether what was under way took place nobody knows.
    void lose_what_is_under_way() {
        for (auto& queue : commands_)
            for (Sent& sent : queue) {
                if (!sent.busy) continue;
                settle(sent, Status::kAborted);
                ++lost;
            }
    }
    void forget_all() { commands_.assign(host_.queues(), std::vector<Sent>(BlockHost::kDepth)); }
    /// Every block as a reader of the volume itself sees it.
    void expect_contents(client::Volume& volume) {
        std::vector<std::byte> data(kBlock);
        for (std::uint64_t b = 0; b < allowed_.size(); ++b) {
            ASSERT_TRUE(volume.read(b, data).ok());
            check(b, data.data());
        }
    }
    [[nodiscard]] std::uint64_t under_way() const {
        std::uint64_t n = 0;
        for (const auto& queue : commands_)
            n += static_cast<std::uint64_t>(
                std::count_if(queue.begin(), queue.end(), [](const Sent& s) { return s.busy; }));
        return n;
    }

    std::uint64_t done = 0, failed = 0, lost = 0, under_way_most = 0, in_capsules = 0;
    bool read_only = false;  ///< issue reads and flushes alone

  private:
    struct Extent {
        std::uint64_t first;
        std::uint32_t blocks;
    };
    struct Sent {
        bool busy = false;
        IoOpcode opcode{};
        std::uint64_t tag = 0;
        std::vector<Extent> extents;
    };

    bool issue(std::uint32_t q) {
        auto& queue = commands_[q];
        const auto free = std::find_if(queue.begin(), queue.end(), [](const Sent& s) { return !s.busy; });
        if (free == queue.end()) return false;
        const auto slot = static_cast<std::uint32_t>(free - queue.begin());
        Sent sent;
        sent.opcode = pick_opcode();
        const bool changes = sent.opcode != IoOpcode::kRead && sent.opcode != IoOpcode::kFlush;
        const std::uint64_t ranges = sent.opcode == IoOpcode::kDatasetManagement ? 1 + random_.below(5) : 1;
        for (std::uint64_t i = 0; i < ranges && sent.opcode != IoOpcode::kFlush; ++i) {
            const auto blocks = static_cast<std::uint32_t>(
                1 + (random_.below(3) == 0 ? random_.below(BlockHost::kDataBlocks) : random_.below(4)));
            const Extent e{random_.below(allowed_.size() - blocks + 1), blocks};
            if (!is_free(e, changes)) return false;
            sent.extents.push_back(e);
        }
        nvme::Command command = make(q, slot, sent);
        command.command_id = static_cast<std::uint16_t>(slot);
        // A write of one block may travel with its command, as Linux has it.
        std::span<const std::byte> in_capsule;
        if (sent.opcode == IoOpcode::kWrite && sent.extents.front().blocks == 1 && random_.below(2) == 0) {
            in_capsule = {host_.buffer.data() + host_.offset(q, slot), kBlock};
            command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, kBlock);
            ++in_capsules;
        }
        if (!host_.post(q, command, in_capsule)) {
            ADD_FAILURE() << "a queue takes no command";
            return false;
        }
        for (const Extent& e : sent.extents) mark(e, changes, 1);
        sent.busy = true;
        *free = std::move(sent);
        under_way_most = std::max(under_way_most, under_way());
        return true;
    }

    IoOpcode pick_opcode() {
        const std::uint64_t dice = random_.below(read_only ? 5 : 16);
        if (dice < 4) return IoOpcode::kRead;
        if (dice == 4) return IoOpcode::kFlush;
        if (dice == 5) return IoOpcode::kWriteZeroes;
        return dice == 6 ? IoOpcode::kDatasetManagement : dice < 9 ? IoOpcode::kRead : IoOpcode::kWrite;
    }

    nvme::Command make(std::uint32_t q, std::uint32_t slot, Sent& sent) {
        std::byte* const data = host_.buffer.data() + host_.offset(q, slot);
        if (sent.opcode == IoOpcode::kFlush) return block_command(sent.opcode, 0, 1);
        if (sent.opcode == IoOpcode::kDatasetManagement) {
            nvme::Command c = trim_command(static_cast<std::uint32_t>(sent.extents.size()));
            for (std::size_t i = 0; i < sent.extents.size(); ++i) {
                const nvme::DsmRange range{0, sent.extents[i].blocks, sent.extents[i].first};
                std::memcpy(data + i * sizeof range, &range, sizeof range);
            }
            // As Linux has it: room for all ranges there can be.
            c.data = host_.buffer.sgl(host_.offset(q, slot), kBlock);
            return c;
        }
        const Extent e = sent.extents.front();
        nvme::Command c = block_command(sent.opcode, e.first, e.blocks);
        if (sent.opcode != IoOpcode::kRead && random_.below(4) == 0) c.cdw12 |= 1u << 30;  // FUA
        if (sent.opcode == IoOpcode::kRead) c.cdw13 = 7;                                   // read ahead
        if (sent.opcode == IoOpcode::kWrite) {
            sent.tag = ++last_tag_;
            for (std::uint32_t b = 0; b < e.blocks; ++b)
                fill_block(data + std::size_t{b} * kBlock, sent.tag, e.first + b);
        }
        if (sent.opcode == IoOpcode::kRead) std::memset(data, 0xA5, std::size_t{e.blocks} * kBlock);
        if (sent.opcode != IoOpcode::kWriteZeroes)
            c.data = host_.buffer.sgl(host_.offset(q, slot), e.blocks * kBlock);
        return c;
    }

    bool reap(std::uint32_t q) {
        nvme::Completion completion{};
        if (!host_.queue(q).poll(completion)) return false;
        if (completion.command_id >= BlockHost::kDepth || !commands_[q][completion.command_id].busy) {
            ADD_FAILURE() << "an answer to no command: " << completion.command_id;
            return true;
        }
        Sent& sent = commands_[q][completion.command_id];
        const Status status = completion.result();
        if (!nvme::ok(status)) {
            ++failed;
            EXPECT_TRUE(may_fail_) << nvme::status_name(status) << " to opcode "
                                   << static_cast<int>(sent.opcode);
        } else if (sent.opcode == IoOpcode::kRead) {
            const Extent e = sent.extents.front();
            for (std::uint32_t b = 0; b < e.blocks; ++b)
                check(e.first + b,
                      host_.buffer.data() + host_.offset(q, completion.command_id) + std::size_t{b} * kBlock);
        }
        settle(sent, status);
        ++done;
        return true;
    }

    void settle(Sent& sent, Status status) {
        const bool changes = sent.opcode != IoOpcode::kRead && sent.opcode != IoOpcode::kFlush;
        for (const Extent& e : sent.extents) {
            mark(e, changes, -1);
            for (std::uint32_t b = 0; changes && b < e.blocks; ++b) {
                auto& allowed = allowed_[e.first + b];
                if (nvme::ok(status)) allowed.clear();
                // A refusal before anything was done changes nothing.
                if (status != Status::kNamespaceWriteProtected) allowed.insert(sent.tag);
            }
        }
        sent.busy = false;
    }

    void check(std::uint64_t block, const std::byte* data) {
        std::uint64_t tag = 0;
        std::memcpy(&tag, data, sizeof tag);
        std::vector<std::byte> expected(kBlock);
        fill_block(expected.data(), tag, block);
        const bool whole = std::memcmp(expected.data(), data, kBlock) == 0;
        EXPECT_TRUE(whole && allowed_[block].contains(tag))
            << "block " << block << " holds " << tag << (whole ? "" : ", mixed")
            << ", GN_SEED=" << run_seed();
    }

    bool is_free(const Extent& e, bool changes) const {
        for (std::uint32_t b = 0; b < e.blocks; ++b)
            if (writers_[e.first + b] != 0 || (changes && readers_[e.first + b] != 0)) return false;
        return true;
    }
    void mark(const Extent& e, bool changes, int by) {
        for (std::uint32_t b = 0; b < e.blocks; ++b) (changes ? writers_ : readers_)[e.first + b] += by;
    }

    BlockHost& host_;
    SplitMix64 random_;
    std::vector<std::set<std::uint64_t>> allowed_;
    std::vector<int> readers_, writers_;  ///< of each block, under way
    std::vector<std::vector<Sent>> commands_;
    std::uint64_t last_tag_ = 0;
    bool may_fail_ = false;
};

}  // namespace gnstor::test
