// kill_writer.cpp: a process that serves a drive under load until somebody kills it. For kill_test.py.
//
//   kill_writer run STORE BACKBONE DURABILITY PAGES SEED SEQUENCE BLOCKS
//     writes, trims and zeroes at random, for ever; PAGES of an erase unit, when it makes the store
//   kill_writer read STORE BACKBONE DURABILITY PAGES BLOCKS
//     mounts, and puts all blocks on its output
//
// `run` says on its output what it is about to do, before, and what was acknowledged, after, in records of 24
// bytes: {sequence u64, kind u32, first block u32, blocks u32, 0 u32}, little endian; kind 'M' when mounted;
// 'W', 'T', 'Z' intended; 'A' acknowledged (of that sequence), 'X' refused. Contents: see fill().
#include "ssd/drive_rig.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace gnstor;
using namespace gnstor::ssd;
using namespace gnstor::ssd::testing;  // NOLINT: the rig's names

namespace {

constexpr std::uint32_t kDepth = 16;
constexpr std::uint32_t kBlocksMax = 16;

struct Said {
    std::uint64_t sequence;
    std::uint32_t kind;
    std::uint32_t first;
    std::uint32_t blocks;
    std::uint32_t zero = 0;
};
static_assert(sizeof(Said) == 24, "records of 24 bytes");

void say(const Said* said, std::size_t count) {
    const auto bytes = static_cast<ssize_t>(count * sizeof(Said));
    // At most 384 bytes at once: a pipe takes them whole or not at all.
    if (::write(1, said, static_cast<std::size_t>(bytes)) != bytes) ::_exit(9);
}

/// Every 32 bytes: sequence, block, place, and a mix of all three, so that neither a block of another time,
/// nor of another place, nor half a block looks right. kill_test.py makes the same.
void fill(std::byte* to, std::uint64_t sequence, std::uint32_t block) {
    for (std::uint32_t i = 0; i < nvme::kBlockBytes / 32; ++i) {
        const std::uint64_t words[4] = {sequence, block, i,
                                        sequence * 0x9E3779B97F4A7C15ull + block * 64ull + i};
        std::memcpy(to + std::size_t{i} * 32, words, sizeof words);
    }
}

DriveOptions options_of(char** words) {
    DriveOptions o;
    o.file = words[0];
    o.capacity_bytes = 12ull << 20;
    o.pages_per_unit = static_cast<std::uint32_t>(std::strtoul(words[3], nullptr, 10));
    o.serial = "KILL";
    o.backbone = std::string(words[1]) == "direct" ? BackboneKind::kDirect : BackboneKind::kMapped;
    o.durability = std::string(words[2]) == "power" ? Durability::kPower : Durability::kProcess;
    return o;
}

class Writer {
  public:
    Writer(DriveRig& rig, std::uint64_t seed, std::uint32_t blocks)
        : rig_(rig), random_(seed), blocks_(blocks) {
        for (auto& buffer : data_) buffer.resize(std::size_t{kBlocksMax} * nvme::kBlockBytes);
    }

    [[noreturn]] void run() {
        for (;;) {
            std::array<Said, kDepth> said{};
            std::array<Command, kDepth> commands{};
            for (std::uint16_t i = 0; i < kDepth; ++i) {
                commands[i] = make(i, said[i]);
                commands[i].command_id = i;
            }
            say(said.data(), kDepth);
            for (const Command& c : commands)
                if (!rig_.io->submit(c)) ::_exit(3);
            for (std::uint32_t left = kDepth; left > 0; --left) {
                Completion done{};
                if (!reap(*rig_.io, *rig_.reactor, done)) ::_exit(4);
                Said answer = said[done.command_id];
                answer.kind = nvme::ok(done.result()) ? 'A' : 'X';
                // What a full or busy drive refuses may be asked for again; anything else is a defect.
                if (answer.kind == 'X' && done.result() != Status::kCapacityExceeded &&
                    done.result() != Status::kBusy) {
                    std::fprintf(stderr, "kill_writer: sequence %llu: %s\n",
                                 static_cast<unsigned long long>(answer.sequence),
                                 nvme::status_name(done.result()));
                    ::_exit(5);
                }
                say(&answer, 1);
            }
            if (++batches_ % 16 == 0) give_floor();
        }
    }

  private:
    /// Everything so far is answered: what a trim left behind may be forgotten.
    void give_floor() {
        Command floor{};
        floor.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor);
        floor.flags = nvme::kFlagsSgl;
        floor.cdw10 = kVolume;
        floor.cdw11 = 1;
        floor.cdw12 = static_cast<std::uint32_t>(rig_.sequence);
        floor.cdw13 = static_cast<std::uint32_t>(rig_.sequence >> 32);
        floor.cdw14 = 1;  // term
        if (!nvme::ok(call(*rig_.admin, *rig_.reactor, floor).result())) ::_exit(10);
    }

    Command make(std::uint16_t slot, Said& said) {
        const std::uint64_t dice = random_.below(100);
        const bool many = dice >= 60;
        said.sequence = ++rig_.sequence;
        said.blocks = many ? static_cast<std::uint32_t>(random_.below(kBlocksMax) + 1) : 1;
        said.first = static_cast<std::uint32_t>(random_.below(blocks_ - said.blocks + 1));
        IoFields f = rig_.fields(said.first, said.blocks);
        f.sequence = said.sequence;
        if (dice >= 94) {
            said.kind = 'T';
            ranges_[slot] = {0, said.blocks, said.first};
            Command c = nvme::encode_trim(f, 1);
            c.data = sgl(&ranges_[slot], sizeof(nvme::DsmRange));
            return c;
        }
        if (dice >= 90) {
            said.kind = 'Z';
            return nvme::encode_io(IoOpcode::kWriteZeroes, f);
        }
        said.kind = 'W';
        f.fua = dice == 0;
        for (std::uint32_t i = 0; i < said.blocks; ++i)
            fill(data_[slot].data() + std::size_t{i} * nvme::kBlockBytes, said.sequence, said.first + i);
        Command c = nvme::encode_io(IoOpcode::kWrite, f);
        c.data = sgl(data_[slot].data(), std::size_t{said.blocks} * nvme::kBlockBytes);
        return c;
    }

    DriveRig& rig_;
    SplitMix64 random_;
    const std::uint32_t blocks_;
    std::uint64_t batches_ = 0;
    std::array<std::vector<std::byte>, kDepth> data_;
    std::array<nvme::DsmRange, kDepth> ranges_{};
};

int read_all(DriveRig& rig, std::uint32_t blocks) {
    Page in;
    for (std::uint32_t b = 0; b < blocks; ++b) {
        const Status status = rig.read(b, in);
        if (!nvme::ok(status)) {
            std::fprintf(stderr, "kill_writer: block %u: %s\n", b, nvme::status_name(status));
            return 6;
        }
        if (std::fwrite(in.data(), 1, in.size(), stdout) != in.size()) return 7;
    }
    return std::fflush(stdout) == 0 ? 0 : 7;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if ((mode != "run" || argc != 9) && (mode != "read" || argc != 7)) {
        std::fprintf(stderr,
                     "usage: kill_writer run STORE BACKBONE DURABILITY PAGES SEED SEQUENCE BLOCKS\n"
                     "       kill_writer read STORE BACKBONE DURABILITY PAGES BLOCKS\n");
        return 2;
    }
    const auto blocks = static_cast<std::uint32_t>(std::strtoul(argv[argc - 1], nullptr, 10));
    DriveRig rig(options_of(argv + 2));
    rig.grant();
    if (mode == "read") return read_all(rig, blocks);
    // The first life makes the volume; in later ones it is there.
    const nvme::VolumeRecord record = record_of(kVolume, kWriter, blocks);
    const Status added = rig.vendor(nvme::AdminOpcode::kVolumeAdd, &record, sizeof record);
    if (!nvme::ok(added) && added != Status::kVolumeExists) {
        std::fprintf(stderr, "kill_writer: the volume: %s\n", nvme::status_name(added));
        return 8;
    }
    rig.sequence = std::strtoull(argv[7], nullptr, 10);
    const Said mounted{0, 'M', 0, 0};
    say(&mounted, 1);
    Writer(rig, std::strtoull(argv[6], nullptr, 10), blocks).run();
}
