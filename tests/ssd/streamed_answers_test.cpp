// streamed_answers_test.cpp: an answer implies its data, also where the drive stores what is read past the
// caches, in whatever order the processor likes: the host looks at the last bytes of a block the moment the
// answer is there. Stored past the caches only on processors with the vectors for it (copy_crc32c.cpp);
// there, without fences, about one answer of some millions comes before its data.
#include "drive_rig.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

namespace gnstor::ssd {
namespace {

using nvme::Status;

constexpr std::uint32_t kBlocks = 512;
constexpr std::uint32_t kReads = 300'000;
constexpr std::uint32_t kOutstanding = 48;

struct alignas(64) Block {
    std::array<std::uint64_t, nvme::kBlockBytes / 8> words;
};

/// How the drive's threads lie.
struct Threads {
    std::uint32_t units;        ///< service units
    std::uint32_t own_threads;  ///< for them; 0: the front's
};

struct Rig {
    explicit Rig(Threads t) {
        DriveOptions options;
        options.capacity_bytes = 64u << 20;
        options.service_units = t.units;
        options.memory.past_caches = {.programs = true, .reads = true};
        front = Reactor::start("test-front").value();
        for (std::uint32_t i = 0; i < t.own_threads; ++i) {
            reactors.push_back(Reactor::start("test-unit-" + std::to_string(i)).value());
            units.push_back(reactors.back().get());
        }
        if (units.empty()) units.push_back(front.get());
        drive = Drive::open(options, *front, units).value();
        admin = drive->create_queue(0, 16, 0, Priority::kUrgent, true).value();
        io = drive->create_queue(1, 64, testing::kWriter, Priority::kMedium, false).value();
    }
    ~Rig() {
        EXPECT_TRUE(drive->delete_queue(io).ok());
        EXPECT_TRUE(drive->delete_queue(admin).ok());
    }
    void vendor(nvme::AdminOpcode op, const void* data, std::size_t bytes) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(op);
        c.flags = nvme::kFlagsSgl;
        c.cdw14 = 1;  // term
        c.data = testing::sgl(data, bytes);
        ASSERT_EQ(testing::call(*admin, *front, c).result(), Status::kSuccess);
    }
    nvme::Command command(nvme::IoOpcode op, std::uint32_t block, std::uint16_t id, const void* data) {
        nvme::IoFields f;
        f.volume = testing::kVolume;
        f.client = testing::kWriter;
        f.block = block;
        f.blocks = 1;
        f.epoch = 1;
        f.map_version = 1;
        f.sequence = op == nvme::IoOpcode::kWrite ? block + 1 : 0;
        nvme::Command c = nvme::encode_io(op, f);
        c.command_id = id;
        c.data = testing::sgl(data, nvme::kBlockBytes);
        return c;
    }
    void prepare() {
        nvme::MapSet set{};
        set.map.version = 1;
        set.map.slot_count = 1;
        set.map.slots[0].state = placement::SlotState::kIn;
        set.map.slots[0].weight = 1;
        std::memcpy(set.map.slots[0].ssd_uuid, drive->uuid().data(), 16);
        vendor(nvme::AdminOpcode::kMapSet, &set, sizeof set);
        const nvme::VolumeRecord record = testing::record_of(testing::kVolume, testing::kWriter, kBlocks);
        vendor(nvme::AdminOpcode::kVolumeAdd, &record, sizeof record);
        auto block = std::make_unique<Block>();
        for (std::uint32_t b = 0; b < kBlocks; ++b) {
            block->words.fill(b + 1);
            const nvme::Command c = command(nvme::IoOpcode::kWrite, b, 0, block.get());
            ASSERT_EQ(testing::call(*io, *front, c).result(), Status::kSuccess);
        }
    }

    std::unique_ptr<Reactor> front;
    std::vector<std::unique_ptr<Reactor>> reactors;
    std::vector<Reactor*> units;
    std::unique_ptr<Drive> drive;
    NvmeQueue* admin = nullptr;
    NvmeQueue* io = nullptr;
};

/// Reads, always so many at once, and looks at each from its end.
void read_and_look(Threads threads) {
    Rig rig(threads);
    rig.prepare();
    if (::testing::Test::HasFatalFailure()) return;
    auto buffers = std::make_unique<std::array<Block, kOutstanding>>();
    std::array<std::uint32_t, kOutstanding> block_of{};
    std::uint32_t submitted = 0, answered = 0, late = 0;
    const auto submit = [&](std::uint16_t slot) {
        Block& into = (*buffers)[slot];
        into.words.fill(0);  // in this processor's cache: the drive's stores take their time
        block_of[slot] = submitted * 7 % kBlocks;
        ASSERT_TRUE(rig.io->submit(rig.command(nvme::IoOpcode::kRead, block_of[slot], slot, &into)));
        ++submitted;
        rig.front->wake();
    };
    for (std::uint16_t slot = 0; slot < kOutstanding; ++slot) submit(slot);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    nvme::Completion c{};
    for (std::uint32_t vain = 0; answered < kReads;) {
        if (!rig.io->reap(c)) {
            if (++vain % 64 != 0) continue;
            ASSERT_LT(std::chrono::steady_clock::now(), deadline) << answered << " answers";
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(c.result(), Status::kSuccess);
        const Block& got = (*buffers)[c.command_id];
        for (std::size_t at = got.words.size(); at-- > 0;)
            if (got.words[at] != block_of[c.command_id] + 1) {
                ++late;
                break;
            }
        if (++answered + kOutstanding <= kReads) submit(c.command_id);
    }
    EXPECT_EQ(late, 0u) << "answers came before their data";
    test::count("streamed_reads", answered);
}

TEST(StreamedAnswers, FromTheFrontsThreadImplyTheirData) {
    read_and_look({1, 0});
}

TEST(StreamedAnswers, FromServiceUnitsOnTheirOwnThreadsImplyTheirData) {
    read_and_look({4, 2});
}

TEST(StreamedAnswers, FromServiceUnitsOnTheFrontsThreadImplyTheirData) {
    read_and_look({4, 0});
}

}  // namespace
}  // namespace gnstor::ssd
