// mutant_store.hpp: a small good store, bytes of it changed, mounted: refused, or no block gives what was
// never its contents. Used by the test of random mutants and by the fuzzer.
//
// The good store has two phases. In the first every block is written, overwritten or trimmed at random, and
// the drive closes; in the second some blocks are written again and the process is killed. A block of the
// first phase alone must read as it was or as an error, whatever was changed. A block of the second phase may
// also read as it was before: damage among the last pages looks as a cut does, and what a cut takes was
// nobody's yet.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "shard_store.hpp"
#include "ssd/flash/record_copies.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace gnstor::ssd::testing {

/// Bytes to be changed. `seal`: the checksums of the structure that they lie in are set right again.
struct Change {
    std::uint64_t at;
    std::uint8_t bits;
    bool seal;
};

class MutantStore {
  public:
    MutantStore() {
        const Scratch scratch;
        const auto path = scratch / "good";
        SplitMix64 random(2026);
        {
            auto s = ShardStore::open(path).value();
            for (int i = 0; i < 500; ++i) change(*s, random, i < 48 ? i : -1);
            s->resolve();
            s->close();
            superblock_ = s->store().superblock();
            sequence_ = s->sequence;
        }
        second_phase_ = true;
        {
            auto s = ShardStore::open(path).value();
            s->sequence = sequence_;
            for (int i = 0; i < 40; ++i) change(*s, random, -1);
            sequence_ = s->sequence;
        }
        std::FILE* f = std::fopen(path.c_str(), "rb");
        good_.resize(std::filesystem::file_size(path));
        if (f == nullptr || std::fread(good_.data(), 1, good_.size(), f) != good_.size()) std::abort();
        std::fclose(f);
    }

    [[nodiscard]] std::size_t size() const { return good_.size(); }
    [[nodiscard]] const Superblock& superblock() const { return superblock_; }

    struct Outcome {
        bool mounted = false;
        std::uint64_t right = 0, failed = 0;  ///< blocks read
        std::string wrong;                    ///< the first block that gave what it must not; empty: none did
        std::string refusal;
    };

    /// Mounts the mutant; with `sealed` changes nothing is known of its contents, and none is wrong.
    Outcome mount(const std::vector<Change>& changes) {
        std::vector<std::byte> bytes = good_;
        bool sealed = false;
        for (const Change& c : changes) {
            bytes[c.at % bytes.size()] ^= std::byte{c.bits};
            if (c.seal) seal(bytes, c.at % bytes.size());
            sealed |= c.seal;
        }
        const int fd = ::memfd_create("mutant", MFD_CLOEXEC);
        if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
            std::abort();
        const std::filesystem::path path = "/proc/self/fd/" + std::to_string(fd);
        Outcome outcome;
        try_mount(path, sealed, outcome);
        // What was repaired once is not refused the second time, and is as it was.
        if (outcome.mounted && !sealed && outcome.wrong.empty()) {
            Outcome again;
            try_mount(path, sealed, again);
            if (!again.mounted)
                outcome.wrong = "mounted and closed, then refused: " + again.refusal;
            else if (again.right < outcome.right || !again.wrong.empty())
                outcome.wrong =
                    fmt::format("{} blocks were right, then {}; {}", outcome.right, again.right, again.wrong);
        }
        ::close(fd);
        return outcome;
    }

  private:
    using Block = std::pair<nvme::VolumeId, std::uint32_t>;

    void change(ShardStore& s, SplitMix64& random, int fill) {
        const nvme::VolumeId v = fill >= 0 ? kVolumes[fill % 2] : kVolumes[random.below(2)];
        const std::uint32_t blocks = fill >= 0 ? 4 : 1;
        const auto first = fill >= 0 ? static_cast<std::uint32_t>(fill / 2 * 4)
                                     : static_cast<std::uint32_t>(random.below(kVolumeBlocks));
        const bool trim = fill < 0 && random.below(8) == 0;
        if (!nvme::ok(trim ? s.trim(v, first) : s.write(v, first, blocks))) std::abort();
        for (std::uint32_t i = 0; i < blocks; ++i) {
            std::set<std::uint64_t>& options = may_be_[{v, first + i}];
            if (!second_phase_) options.clear();
            options.insert(trim ? 0 : s.sequence);
        }
        if (random.below(3) == 0) s.poll();
    }

    void try_mount(const std::filesystem::path& path, bool sealed, Outcome& outcome) {
        auto opened = ShardStore::open(path);
        if (!opened.ok()) {
            outcome.refusal = opened.error().message;
            return;
        }
        outcome.mounted = true;
        ShardStore& s = **opened;
        s.sequence = sequence_ + 1000;
        Page got, want;
        for (const auto& [block, options] : may_be_) {
            if (!nvme::ok(s.read(block.first, block.second, got))) {
                ++outcome.failed;
                continue;
            }
            bool fits = false;
            for (const std::uint64_t sequence : options) {
                want.fill(std::byte{0});
                if (sequence != 0) fill_block(want.data(), sequence, block.first, block.second);
                fits |= got == want;
            }
            if (fits)
                ++outcome.right;
            else if (!sealed && outcome.wrong.empty())
                outcome.wrong = fmt::format("block {} of volume {}", block.second, block.first);
        }
        // It goes on as a drive: what is written now is there, or was refused.
        if (nvme::ok(s.write(kVolumes[0], 0)) && nvme::ok(s.read(kVolumes[0], 0, got))) {
            fill_block(want.data(), s.sequence, kVolumes[0], 0);
            if (got != want && !sealed && outcome.wrong.empty())
                outcome.wrong = "a block written after the mount";
            may_be_[{kVolumes[0], 0}].insert(s.sequence);
        }
        s.close_if_possible();
    }

    void put_crc(std::vector<std::byte>& bytes, std::uint64_t from, std::uint64_t length, std::uint64_t to,
                 DriveSeed drive = {}) const {
        const std::uint32_t crc = crc32c(bytes.data() + from, length, drive.crc);
        std::memcpy(bytes.data() + to, &crc, sizeof crc);
    }

    /// Sets right the checksum of the structure around `at`, and of the record above it if it is a page.
    void seal(std::vector<std::byte>& bytes, std::uint64_t at) const {
        const Superblock& s = superblock_;
        if (at < kBootOffset) return put_crc(bytes, 0, offsetof(Superblock, crc), offsetof(Superblock, crc));
        if (at < kStoreHeadBytes) {
            const std::uint64_t copy = at / sizeof(BootRecord) * sizeof(BootRecord);
            return put_crc(bytes, copy, offsetof(BootRecord, crc), copy + offsetof(BootRecord, crc),
                           seed_of(s));
        }
        if (at < s.oob_offset) {
            const std::uint64_t slot =
                s.metadata_offset + (at - s.metadata_offset) / s.metadata_bytes * s.metadata_bytes;
            MetadataHeader h{};
            std::memcpy(&h, bytes.data() + slot, sizeof h);
            const std::uint64_t length = std::min<std::uint64_t>(h.length, s.metadata_bytes - sizeof h);
            // The blob ends with a checksum of its own.
            std::uint32_t total = 0;
            std::memcpy(&total, bytes.data() + slot + sizeof h + 12, sizeof total);
            if (total >= 8 && total <= length)
                put_crc(bytes, slot + sizeof h, total - 4, slot + sizeof h + total - 4);
            put_crc(bytes, slot + sizeof h, length, slot + offsetof(MetadataHeader, blob_crc));
            return put_crc(bytes, slot, offsetof(MetadataHeader, crc), slot + offsetof(MetadataHeader, crc),
                           seed_of(s));
        }
        std::uint64_t page = (at - s.oob_offset) / sizeof(deengine::PageOob);
        if (at >= s.data_offset) {
            page = (at - s.data_offset) / nvme::kBlockBytes;
            const std::uint64_t sector = (at - s.data_offset) % nvme::kBlockBytes / nvme::kSectorBytes;
            put_crc(bytes, at / nvme::kSectorBytes * nvme::kSectorBytes, nvme::kSectorBytes,
                    s.oob_offset + page * sizeof(deengine::PageOob) +
                        offsetof(deengine::PageOob, sector_crc) + sector * 4);
        }
        const std::uint64_t record = s.oob_offset + page * sizeof(deengine::PageOob);
        if (record + sizeof(deengine::PageOob) > s.data_offset) return;
        deengine::PageOob oob{};
        std::memcpy(&oob, bytes.data() + record, sizeof oob);
        oob.crc = record_crc(oob, static_cast<deengine::PageNumber>(page), seed_of(s));
        std::memcpy(bytes.data() + record, &oob, sizeof oob);
    }

    std::vector<std::byte> good_;
    Superblock superblock_{};
    std::map<Block, std::set<std::uint64_t>> may_be_;  ///< sequences of contents; 0: zeroes
    std::uint64_t sequence_ = 0;
    bool second_phase_ = false;
};

}  // namespace gnstor::ssd::testing
