// Shards on threads of their own: nothing is lost or mixed between threads, and a change of epoch is a
// barrier through all of them: once it is acknowledged, nothing of the old epoch takes effect.
#include "ssd/drive/service_units.hpp"
#include "drive_rig.hpp"
#include "ssd/flash/memory/memory_flash.hpp"

#include <atomic>
#include <cstdlib>
#include <map>
#include <random>

namespace gnstor::ssd::service_units_test {

using nvme::Status;
using testing::kVolume;
using testing::kWriter;

constexpr std::uint32_t kUnits = 4;
constexpr std::uint64_t kBlocks = 8192;  // 32 extents of 1 MiB

std::uint64_t seed_or(std::uint64_t fallback) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

/// A drive with its front on one thread and its units on others.
class UnitsRig {
  public:
    explicit UnitsRig(std::uint32_t threads, std::filesystem::path file = {}) {
        options.capacity_bytes = 64u << 20;
        options.service_units = kUnits;
        options.file = std::move(file);
        options.durability = Durability::kProcess;
        front = Reactor::start("test-front").value();
        for (std::uint32_t i = 0; i < threads; ++i) {
            reactors.push_back(Reactor::start("test-unit-" + std::to_string(i)).value());
            units.push_back(reactors.back().get());
        }
        if (units.empty()) units.push_back(front.get());
        open();
    }
    ~UnitsRig() { close(); }
    void open() {
        drive = Drive::open(options, *front, units).value();
        admin = drive->create_queue(0, 16, 0, Priority::kUrgent, true).value();
    }
    void close() {
        if (drive == nullptr) return;
        EXPECT_TRUE(drive->delete_queue(admin).ok());
        drive.reset();
    }
    Status vendor(nvme::AdminOpcode op, const void* data, std::size_t bytes, std::uint32_t cdw10 = 0) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(op);
        c.flags = nvme::kFlagsSgl;
        c.cdw10 = cdw10;
        c.cdw14 = 1;  // term
        c.data = testing::sgl(data, bytes);
        return testing::call(*admin, *front, c).result();
    }
    void grant() {
        nvme::MapSet set{};
        set.map.version = 1;
        set.map.slot_count = 1;
        set.map.slots[0].state = placement::SlotState::kIn;
        set.map.slots[0].weight = 1;
        std::memcpy(set.map.slots[0].ssd_uuid, drive->uuid().data(), 16);
        ASSERT_EQ(vendor(nvme::AdminOpcode::kMapSet, &set, sizeof set), Status::kSuccess);
    }
    void add_volume() {
        record = testing::record_of(kVolume, kWriter, kBlocks);
        ASSERT_EQ(vendor(nvme::AdminOpcode::kVolumeAdd, &record, sizeof record), Status::kSuccess);
    }
    [[nodiscard]] nvme::IoFields fields(nvme::BlockAddress block, std::uint32_t blocks, nvme::Epoch epoch,
                                        std::uint64_t sequence) const {
        nvme::IoFields f;
        f.volume = kVolume;
        f.client = kWriter;
        f.block = block;
        f.blocks = blocks;
        f.epoch = epoch;
        f.map_version = 1;
        f.sequence = sequence;
        return f;
    }
    Status io(NvmeQueue& queue, nvme::IoOpcode op, const nvme::IoFields& f, void* data) {
        nvme::Command c = nvme::encode_io(op, f);
        c.data = testing::sgl(data, std::size_t{f.blocks} * nvme::kBlockBytes);
        return testing::call(queue, *front, c).result();
    }

    DriveOptions options;
    std::unique_ptr<Reactor> front;
    std::vector<std::unique_ptr<Reactor>> reactors;
    std::vector<Reactor*> units;
    std::unique_ptr<Drive> drive;
    NvmeQueue* admin = nullptr;
    nvme::VolumeRecord record{};
};

std::vector<std::byte> contents(std::uint32_t blocks, std::uint64_t mark) {
    std::vector<std::byte> out(std::size_t{blocks} * nvme::kBlockBytes);
    for (std::uint32_t i = 0; i < blocks; ++i)
        for (std::size_t at = 0; at < nvme::kBlockBytes; at += 8) {
            const std::uint64_t word = mark * 1'000'003 + i;
            std::memcpy(out.data() + std::size_t{i} * nvme::kBlockBytes + at, &word, 8);
        }
    return out;
}

class ServiceUnits : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(ServiceUnits, ManyHostsReadBackWhatTheyWroteAcrossAllUnits) {
    UnitsRig rig(GetParam());
    rig.grant();
    rig.add_volume();
    constexpr std::uint32_t kHosts = 3;
    std::vector<NvmeQueue*> queues;
    for (std::uint16_t i = 0; i < kHosts; ++i)
        queues.push_back(
            rig.drive->create_queue(static_cast<std::uint16_t>(i + 1), 64, kWriter, Priority::kMedium, false)
                .value());
    std::atomic<std::uint64_t> operations{0};
    {
        std::vector<std::jthread> hosts;
        for (std::uint32_t h = 0; h < kHosts; ++h)
            hosts.emplace_back([&, h] {
                // Each host has blocks of its own, 64 blocks of every 192: every extent, and borders of
                // extents.
                std::mt19937_64 random(seed_or(7) + h);
                std::map<nvme::BlockAddress, std::uint64_t> model;  // first block of 8 to mark
                std::uint64_t sequence = 0;
                for (int i = 0; i < 600; ++i, ++operations) {
                    const auto group = static_cast<nvme::BlockAddress>(random() % (kBlocks / 192));
                    const nvme::BlockAddress first =
                        group * 192 + h * 64 + 8 * static_cast<nvme::BlockAddress>(random() % 8);
                    if (random() % 2 == 0) {
                        const std::uint64_t mark = random();
                        auto data = contents(8, mark);
                        ASSERT_EQ(rig.io(*queues[h], nvme::IoOpcode::kWrite,
                                         rig.fields(first, 8, 1, ++sequence * kHosts + h), data.data()),
                                  Status::kSuccess);
                        model[first] = mark;
                    } else {
                        std::vector<std::byte> got(8 * nvme::kBlockBytes, std::byte{0xEE});
                        ASSERT_EQ(
                            rig.io(*queues[h], nvme::IoOpcode::kRead, rig.fields(first, 8, 1, 0), got.data()),
                            Status::kSuccess);
                        const auto known = model.find(first);
                        ASSERT_EQ(got, known != model.end() ? contents(8, known->second)
                                                            : std::vector<std::byte>(8 * nvme::kBlockBytes))
                            << "host " << h << " block " << first << " seed " << seed_or(7);
                    }
                }
            });
    }
    std::printf("GN_COUNT service_unit_operations=%llu\n",
                static_cast<unsigned long long>(operations.load()));
    for (auto* queue : queues) EXPECT_TRUE(rig.drive->delete_queue(queue).ok());
}

TEST_P(ServiceUnits, ACommandAcrossExtentsIsAnsweredOnceAndCompletely) {
    UnitsRig rig(GetParam());
    rig.grant();
    rig.add_volume();
    NvmeQueue* queue = rig.drive->create_queue(1, 64, kWriter, Priority::kMedium, false).value();
    auto data = contents(256, 42);
    ASSERT_EQ(rig.io(*queue, nvme::IoOpcode::kWrite, rig.fields(100, 256, 1, 5), data.data()),
              Status::kSuccess);
    std::vector<std::byte> got(data.size());
    ASSERT_EQ(rig.io(*queue, nvme::IoOpcode::kRead, rig.fields(100, 256, 1, 0), got.data()),
              Status::kSuccess);
    EXPECT_EQ(got, data);
    nvme::IoFields flush = rig.fields(0, 1, 1, 0);
    nvme::Command c = nvme::encode_io(nvme::IoOpcode::kFlush, flush);
    EXPECT_EQ(testing::call(*queue, *rig.front, c).result(), Status::kSuccess);
    EXPECT_EQ(rig.drive->counters().mapped_blocks, 256u);
    EXPECT_TRUE(rig.drive->delete_queue(queue).ok());
}

/// A writer keeps all units busy with epoch e while the epoch is raised. When the CHMOD is answered, every
/// block is read; later they must read the same, whatever of epoch e was still on its way then.
TEST_P(ServiceUnits, NoWriteOfAClosedEpochTakesEffect) {
    UnitsRig rig(GetParam());
    rig.grant();
    rig.add_volume();
    constexpr std::uint32_t kSpots = 32;  // one in each extent
    std::atomic<nvme::Epoch> epoch{1};
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> refused{0};
    std::atomic<std::uint64_t> accepted{0};
    NvmeQueue* writes = rig.drive->create_queue(1, 256, kWriter, Priority::kUrgent, false).value();
    NvmeQueue* reads = rig.drive->create_queue(2, 64, kWriter, Priority::kMedium, false).value();
    std::jthread writer([&] {
        std::vector<std::vector<std::byte>> payloads;
        for (std::uint32_t i = 0; i < 256; ++i) payloads.push_back(contents(1, i));
        std::uint64_t sequence = 0;
        std::uint32_t outstanding = 0;
        while (!stop.load() || outstanding != 0) {
            nvme::Completion done;
            while (writes->reap(done)) {
                --outstanding;
                ++(done.result() == Status::kSuccess ? accepted : refused);
            }
            if (stop.load() || outstanding == 128) {
                rig.front->wake();
                std::this_thread::yield();
                continue;
            }
            ++sequence;
            nvme::Command c = nvme::encode_io(
                nvme::IoOpcode::kWrite, rig.fields(static_cast<nvme::BlockAddress>(sequence % kSpots) * 256,
                                                   1, epoch.load(), sequence));
            c.data = testing::sgl(payloads[sequence % 256].data(), nvme::kBlockBytes);
            if (writes->submit(c)) ++outstanding;
        }
    });
    const auto read_all = [&] {
        std::vector<std::vector<std::byte>> all;
        for (std::uint32_t i = 0; i < kSpots; ++i) {
            all.emplace_back(nvme::kBlockBytes);
            EXPECT_EQ(rig.io(*reads, nvme::IoOpcode::kRead, rig.fields(i * 256, 1, 1, 0), all.back().data()),
                      Status::kSuccess);
        }
        return all;
    };
    std::uint64_t changes = 0;
    for (nvme::Epoch next = 2; next < 12; ++next, ++changes) {
        // Some writes of this epoch have taken effect before it is closed.
        const std::uint64_t before = accepted.load();
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (accepted.load() < before + 200 && std::chrono::steady_clock::now() < deadline)
            rig.front->wake();
        rig.record.epoch = next;
        rig.record.revision = next;
        ASSERT_EQ(rig.vendor(nvme::AdminOpcode::kVolumeChmod, &rig.record, sizeof rig.record),
                  Status::kSuccess);
        // The writer still stamps the old epoch: all of that must be refused from now on.
        const auto first = read_all();
        const auto second = read_all();
        ASSERT_EQ(first, second) << "a write of epoch " << next - 1 << " took effect after it was closed";
        epoch.store(next);
    }
    stop.store(true);
    writer.join();
    EXPECT_GT(refused.load(), 0u) << "no write met a closed epoch: the test tested nothing";
    std::printf("GN_COUNT service_unit_epochs=%llu\n", static_cast<unsigned long long>(changes));
    EXPECT_TRUE(rig.drive->delete_queue(writes).ok());
    EXPECT_TRUE(rig.drive->delete_queue(reads).ok());
}

/// What an engine answered, in order.
struct Answers final : deengine::CompletionSink {
    struct Answer {
        std::uint64_t tag;
        Status status;
    };
    void on_complete(std::uint64_t tag, Status status, std::uint64_t) override {
        all.push_back({tag, status});
    }
    std::vector<Answer> all;
};

/// Reads cannot tell: they queue behind the writes in every unit's ring. The order of answers can.
TEST_P(ServiceUnits, AChangeIsAnsweredOnlyWhenEveryUnitHasAnsweredEarlierCommands) {
    auto front = Reactor::start("test-front").value();
    std::vector<std::unique_ptr<Reactor>> threads;
    std::vector<Reactor*> units;
    for (std::uint32_t i = 0; i < std::max(1u, GetParam()); ++i) {
        threads.push_back(Reactor::start("test-unit-" + std::to_string(i)).value());
        units.push_back(threads.back().get());
    }
    auto store =
        MemoryStore::create({256, 64}, {.serial = "T", .capacity_bytes = 32u << 20, .service_units = kUnits})
            .value();
    FlashParts parts = store->parts(kUnits).value();
    std::vector<deengine::Flash*> flashes;
    for (const auto& part : parts) flashes.push_back(part.get());
    Answers answers;
    const auto mount = [&](const deengine::EngineOptions& o, const deengine::VolumeRegistry& lives,
                           deengine::CompletionSink& sink, deengine::RecoveryReport& report) {
        return ssd::ServiceUnits::mount(parts, units, *front, o, lives, sink, report);
    };
    auto engine = deengine::Engine::mount(flashes, mount, store->metadata(), {}, answers).value();
    const auto admin = [&](nvme::AdminOpcode op, auto& payload) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(op);
        c.cdw14 = 1;
        engine->submit_admin(c, {0, true}, std::as_writable_bytes(std::span(&payload, 1)), 0, 0);
    };
    nvme::MapSet set{};
    set.map.version = 1;
    set.map.slot_count = 1;
    set.map.slots[0].state = placement::SlotState::kIn;
    set.map.slots[0].weight = 1;
    admin(nvme::AdminOpcode::kMapSet, set);
    nvme::VolumeRecord record = testing::record_of(kVolume, kWriter, kBlocks);
    admin(nvme::AdminOpcode::kVolumeAdd, record);
    ASSERT_EQ(answers.all.back().status, Status::kSuccess);
    auto data = contents(8, 1);
    std::uint64_t barriers = 0;
    for (nvme::Epoch epoch = 1; epoch <= 20; ++epoch, ++barriers) {
        answers.all.clear();
        constexpr std::uint64_t kWrites = 400;
        for (std::uint64_t i = 1; i <= kWrites; ++i) {
            nvme::IoFields f;
            f.volume = kVolume;
            f.client = kWriter;
            f.block = static_cast<nvme::BlockAddress>(i * 256 % kBlocks);
            f.blocks = 8;
            f.epoch = epoch;
            f.map_version = 1;
            f.sequence = i;
            engine->submit(nvme::encode_io(nvme::IoOpcode::kWrite, f), {kWriter, false}, data, i, 0);
        }
        record.epoch = epoch + 1;
        record.revision = epoch + 1;
        admin(nvme::AdminOpcode::kVolumeChmod, record);
        ASSERT_EQ(answers.all.size(), kWrites + 1)
            << "epoch " << epoch << ": some earlier write was not answered before the change";
        ASSERT_EQ(answers.all.back().tag, 0u) << "the change is answered last";
        for (const auto& answer : answers.all) ASSERT_EQ(answer.status, Status::kSuccess);
    }
    ASSERT_TRUE(engine->close().ok());
    std::printf("GN_COUNT service_unit_barriers=%llu\n", static_cast<unsigned long long>(barriers));
}

TEST_P(ServiceUnits, AStoreKeepsItsUnitsAcrossOpenings) {
    testing::Scratch scratch;
    UnitsRig rig(GetParam(), scratch / "units.store");
    rig.grant();
    rig.add_volume();
    NvmeQueue* queue = rig.drive->create_queue(1, 64, kWriter, Priority::kMedium, false).value();
    for (std::uint32_t i = 0; i < 64; ++i) {
        auto data = contents(1, i);
        ASSERT_EQ(rig.io(*queue, nvme::IoOpcode::kWrite, rig.fields(i * 128, 1, 1, i + 1), data.data()),
                  Status::kSuccess);
    }
    EXPECT_TRUE(rig.drive->delete_queue(queue).ok());
    rig.close();
    rig.options.service_units = 1;  // the store knows better
    rig.open();
    rig.grant();
    queue = rig.drive->create_queue(1, 64, kWriter, Priority::kMedium, false).value();
    for (std::uint32_t i = 0; i < 64; ++i) {
        std::vector<std::byte> got(nvme::kBlockBytes);
        ASSERT_EQ(rig.io(*queue, nvme::IoOpcode::kRead, rig.fields(i * 128, 1, 1, 0), got.data()),
                  Status::kSuccess);
        EXPECT_EQ(got, contents(1, i)) << i;
    }
    EXPECT_TRUE(rig.drive->delete_queue(queue).ok());
}

INSTANTIATE_TEST_SUITE_P(Threads, ServiceUnits, ::testing::Values(0u, 2u, kUnits),
                         [](const auto& p) { return "On" + std::to_string(p.param) + "Threads"; });

}  // namespace gnstor::ssd::service_units_test
