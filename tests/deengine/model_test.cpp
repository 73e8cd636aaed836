// model_test.cpp: long random histories of an engine against a plain model, with mounts, and with a power cut
// at every step.
//
// The model is a std::map per volume from block to the winning (epoch, sequence, CRC of contents) and the id
// of its contents. It knows nothing of pages, buckets or units.
#include <gtest/gtest.h>

#include "deengine/map/order.hpp"
#include "deengine/rig.hpp"
#include "support/seed.hpp"

#include <algorithm>
#include <map>

namespace gnstor::deengine::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kOperations = 40'000, kCutOperations = 120;
#else
constexpr std::uint64_t kOperations = 400'000, kCutOperations = 700;
#endif
constexpr std::uint32_t kCapacity = 48;
constexpr nvme::ClientId kClients = 4;

std::uint32_t written_crc(std::uint64_t id, bool tombstone) {
    std::uint32_t crcs[nvme::kSectorsPerBlock] = {};
    const Block b = pattern(id);
    for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock && !tombstone; ++s)
        crcs[s] = crc32c(b.data() + s * 512, 512);
    return content_crc(crcs);
}

struct Held {
    WriteOrder order;
    std::uint64_t id = 0;
};

struct ModelVolume {
    nvme::VolumeRecord record{};
    std::uint64_t next_sequence = 1;
    std::map<nvme::BlockAddress, Held> blocks;
};

struct Model {
    std::map<nvme::VolumeId, ModelVolume> volumes;
    std::map<nvme::VolumeId, nvme::Epoch> dead;
    nvme::MapSet map = make_map(1, 2);

    [[nodiscard]] bool owns(const ModelVolume& v, std::uint64_t block) const {
        const auto chunk = static_cast<std::uint32_t>(block >> v.record.geometry.chunk_shift);
        return placement::holds(placement::place(map.map, v.record.geometry, chunk), 0);
    }
    [[nodiscard]] std::uint64_t id_at(const ModelVolume& v, nvme::BlockAddress b) const {
        const auto it = v.blocks.find(b);
        return it == v.blocks.end() ? 0 : it->second.id;
    }
};

/// One random history; every step changes rig and model alike and compares what can be compared.
class History {
  public:
    explicit History(std::uint64_t seed, Rig& r) : random(seed), rig(r) {
        EXPECT_EQ(rig.set_map(model.map), Status::kSuccess);
    }

    void step() {
        const std::uint64_t dice = random.below(1000);
        if (model.volumes.size() < 2 || dice < 4) return create();
        if (dice < 6) return destroy();
        if (dice < 12) return reopen();
        if (dice < 15) return new_map();
        if (dice < 17) return remount();
        if (dice < 120) return refused();
        pick();
        if (dice < 500) return read();
        write(dice);
    }

    void pick() {
        auto it = model.volumes.begin();
        std::advance(it, static_cast<long>(random.below(model.volumes.size())));
        vid = it->first;
        volume = &it->second;
    }
    IoFields fields(nvme::ClientId client, std::uint32_t blocks) {
        IoFields f;
        f.volume = vid;
        f.client = client;
        f.blocks = blocks;
        f.block = static_cast<nvme::BlockAddress>(random.below(kCapacity - blocks + 1));
        f.epoch = volume->record.epoch;
        f.map_version = model.map.map.version;
        return f;
    }
    [[nodiscard]] bool all_owned(const IoFields& f) const {
        for (std::uint32_t i = 0; i < f.blocks; ++i)
            if (!model.owns(*volume, f.block + i)) return false;
        return true;
    }

    void create() {
        const auto id = static_cast<nvme::VolumeId>(1 + random.below(4));
        const auto client = static_cast<nvme::ClientId>(1 + random.below(kClients));
        const nvme::Epoch birth = model.dead.contains(id) ? model.dead[id] + 1 : 1;
        nvme::VolumeRecord r = make_record(id, client, birth, kCapacity);
        const bool taken = model.volumes.contains(id);
        ASSERT_EQ(rig.add(r), taken ? Status::kVolumeExists : Status::kSuccess);
        if (!taken) {
            model.volumes[id] = ModelVolume{r, 1, {}};
        } else {
            ++refusals;
        }
    }
    void destroy() {
        pick();
        ASSERT_EQ(rig.remove(vid), Status::kSuccess);
        model.dead[vid] = volume->record.epoch;
        model.volumes.erase(vid);
    }
    void reopen() {
        pick();
        nvme::VolumeRecord r = volume->record;
        ++r.epoch;
        r.writer = static_cast<nvme::ClientId>(1 + random.below(kClients));
        r.reader_count = static_cast<std::uint32_t>(random.below(3));
        for (std::uint32_t i = 0; i < nvme::kMaxReaders; ++i)
            r.readers[i] = i < r.reader_count ? static_cast<nvme::ClientId>(1 + random.below(kClients)) : 0;
        ASSERT_EQ(rig.chmod(r), Status::kSuccess);
        volume->record = r;
        volume->next_sequence = 1;
    }
    void new_map() {
        ++model.map.map.version;
        ASSERT_EQ(rig.set_map(model.map), Status::kSuccess);
    }
    void remount() {
        rig.mount();
        ++mounts;
        ASSERT_EQ(rig.set_map(model.map), Status::kSuccess);
        compare_all(rig, nullptr);
    }
    void read() {
        const auto client = static_cast<nvme::ClientId>(1 + random.below(kClients));
        IoFields f = fields(client, 1 + static_cast<std::uint32_t>(random.below(4)));
        if (f.blocks == 1 && random.below(2) == 0) {
            f.first_sector = static_cast<std::uint8_t>(random.below(8));
            f.sectors = static_cast<std::uint8_t>(1 + random.below(8u - f.first_sector));
        }
        Block got;
        const Status status = rig.read(f, got).status;
        const nvme::VolumeRecord& r = volume->record;
        const bool may =
            client == r.owner || client == r.writer ||
            std::find(r.readers, r.readers + r.reader_count, client) != r.readers + r.reader_count;
        const Status expected = !may           ? Status::kAccessDenied
                                : all_owned(f) ? Status::kSuccess
                                               : Status::kWrongSsd;
        ASSERT_EQ(status, expected);
        if (!ok(status)) {
            ++refusals;
            ASSERT_TRUE(same_bytes(got, Block(got.size(), std::byte{0xEE})))
                << "a refused read touches no byte";
            return;
        }
        ++reads;
        Block whole;
        for (std::uint32_t i = 0; i < f.blocks; ++i) {
            const Block b = pattern(model.id_at(*volume, f.block + i));
            whole.insert(whole.end(), b.begin(), b.end());
        }
        if (f.sectors != 0)
            whole = Block(whole.begin() + f.first_sector * 512,
                          whole.begin() + (f.first_sector + f.sectors) * 512);
        ASSERT_TRUE(same_bytes(got, whole)) << "volume " << vid << " block " << f.block;
    }
    /// Mostly new sequences, some late, some used before.
    std::uint64_t sequence() {
        if (random.below(5) == 0) return 1 + random.below(volume->next_sequence);
        return volume->next_sequence += 1 + random.below(3);
    }
    void write(std::uint64_t dice) {
        const bool data = dice < 850;
        IoFields f = fields(volume->record.writer, 1 + static_cast<std::uint32_t>(random.below(4)));
        f.sequence = sequence();
        const std::uint64_t id = data ? (next_id += 8) : 0;
        if (!all_owned(f)) {
            ASSERT_EQ(issue(f, id, dice), Status::kWrongSsd);
            ++refusals;
            return;
        }
        in_flight = Pending{vid, f, id};
        const Status status = issue(f, id, dice);
        in_flight.reset();
        if (status == Status::kCapacityExceeded) {
            ++full;  // tombstones are kept: a small drive may fill up. Nothing was done; that is compared
                     // below and at each mount
            return;
        }
        ASSERT_EQ(status, Status::kSuccess);
        ++writes;
        for (std::uint32_t i = 0; i < f.blocks; ++i) merge(*volume, f, i, id);
    }
    static void merge(ModelVolume& v, const IoFields& f, std::uint32_t i, std::uint64_t id) {
        const std::uint64_t block_id = id == 0 ? 0 : id + i;
        const WriteOrder order{f.epoch, f.sequence, written_crc(block_id, id == 0)};
        auto [it, fresh] = v.blocks.try_emplace(f.block + i, Held{order, block_id});
        if (!fresh && order > it->second.order) it->second = Held{order, block_id};
    }
    Status issue(const IoFields& f, std::uint64_t id, std::uint64_t dice) {
        if (id != 0) return rig.write(f, f.sequence, pattern(id, f.blocks)).status;
        if (dice < 925) return rig.zero(f, f.sequence).status;
        return rig.trim(f, f.sequence, {{0, f.blocks, f.block}}).status;
    }
    /// A right write with exactly one thing wrong.
    void refused() {
        pick();
        IoFields f = fields(volume->record.writer, 1);
        if (!all_owned(f)) return;
        f.sequence = volume->next_sequence + 1;
        nvme::ClientId from = f.client;
        std::size_t bytes = nvme::kBlockBytes;
        Status expected = Status::kSuccess;
        switch (random.below(8)) {
            case 0:
                f.client = static_cast<nvme::ClientId>(f.client + 1), expected = Status::kAccessDenied;
                break;
            case 1:
                f.volume = 999, expected = Status::kAccessDenied;
                break;
            case 2:
                f.map_version -= 1, expected = Status::kStaleMap;
                break;
            case 3:
                f.epoch -= 1, expected = Status::kStaleEpoch;
                break;
            case 4:
                f.epoch += 1, expected = Status::kNotGranted;
                break;
            case 5:
                f.block = kCapacity, expected = Status::kLbaOutOfRange;
                break;
            case 6:
                f.sequence = 0, expected = Status::kInvalidField;
                break;
            default:
                bytes -= 512, expected = Status::kDataSglLengthInvalid;
                break;
        }
        Block data(bytes, std::byte{0x77});
        ASSERT_EQ(rig.io(nvme::encode_io(IoOpcode::kWrite, f), from, data).status, expected);
        ++refusals;
    }

    struct Pending {
        nvme::VolumeId vid;
        IoFields f;
        std::uint64_t id;
    };

    /// Every owned block of every volume of `other` is what the model says, or, in the range of the command
    /// in flight, that.
    void compare_all(Rig& other, const Pending* pending) {
        for (auto& [id, v] : model.volumes) {
            ModelVolume after;
            if (pending != nullptr && pending->vid == id) {
                after = v;
                for (std::uint32_t i = 0; i < pending->f.blocks; ++i)
                    merge(after, pending->f, i, pending->id);
            }
            for (nvme::BlockAddress b = 0; b < kCapacity; ++b) {
                if (!model.owns(v, b)) continue;
                IoFields f;
                f.volume = id;
                f.client = v.record.owner;
                f.block = b;
                f.epoch = v.record.epoch;
                f.map_version = model.map.map.version;
                Block got;
                ASSERT_EQ(other.read(f, got).status, Status::kSuccess) << "volume " << id << " block " << b;
                ++compared;
                if (same_bytes(got, pattern(model.id_at(v, b)))) continue;
                ASSERT_TRUE(pending != nullptr && pending->vid == id &&
                            same_bytes(got, pattern(model.id_at(after, b))))
                    << "volume " << id << " block " << b
                    << " has neither the acknowledged contents nor those of the write in flight";
            }
        }
    }

    SplitMix64 random;
    Rig& rig;
    Model model;
    nvme::VolumeId vid = 0;
    ModelVolume* volume = nullptr;
    std::uint64_t next_id = 1;
    std::optional<Pending> in_flight;
    std::uint64_t reads = 0, writes = 0, refusals = 0, full = 0, mounts = 0, compared = 0;
};

void print_count(const char* name, std::uint64_t value) {
    std::printf("GN_COUNT %s=%llu\n", name, static_cast<unsigned long long>(value));
}

TEST(Engine, AgreesWithAPlainModelOverRandomHistories) {
    const std::uint64_t seed = gnstor::test::run_seed();
    std::uint64_t operations = 0, mounts = 0, refusals = 0, writes = 0, full = 0, compared = 0;
    for (std::uint64_t round = 0; operations < kOperations; ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        Rig rig(48, 16);
        rig.flash.program_faults = {{50 + round % 40, RamFlash::Fault::kBadData},
                                    {400 + round % 90, RamFlash::Fault::kBadRecord}};
        rig.flash.erase_faults = {3 + round % 5};
        History history(seed * 1000 + round, rig);
        for (int i = 0; i < 4000; ++i, ++operations) {
            history.step();
            if (::testing::Test::HasFatalFailure()) return;
        }
        history.remount();
        if (::testing::Test::HasFatalFailure()) return;
        EXPECT_EQ(rig.flash.violations, 0u) << "NAND's rules hold";
        mounts += history.mounts;
        refusals += history.refusals;
        writes += history.writes;
        full += history.full;
        compared += history.compared;
    }
    EXPECT_LT(full * 4, writes) << "the drive was full most of the time, so the test covers too little";
    print_count("deengine_model_operations", operations);
    print_count("deengine_model_writes", writes);
    print_count("deengine_model_refusals", refusals);
    print_count("deengine_model_mounts", mounts);
    print_count("deengine_model_blocks_compared", compared);
}

TEST(Recovery, NoAcknowledgedWriteIsLostByACutAtAnyFlashOperation) {
    const std::uint64_t seed = gnstor::test::run_seed();
    std::uint64_t cuts = 0, torn = 0, compared = 0;
    for (std::uint64_t round = 0; round < 3; ++round) {
        Rig rig(16, 8);
        History history(seed * 77 + round, rig);
        bool cutting = false;
        const auto cut = [&](Step) {
            if (cutting || ::testing::Test::HasFatalFailure()) return;
            cutting = true;
            RamMetadata store;
            store.blob = rig.metadata.blob;
            Rig other(rig.flash.image(), std::move(store), rig.options);
            other.tag = 1u << 30;
            if (ok(other.set_map(history.model.map)))
                history.compare_all(other, history.in_flight ? &*history.in_flight : nullptr);
            torn += other.report.pages_torn;
            ++cuts;
            cutting = false;
        };
        for (std::uint64_t i = 0; i < kCutOperations; ++i) {
            // Only while a data command is in flight: an admin command's cut is DeletionIsAllOrNothing's.
            rig.flash.on_step = [&](Step s) {
                if (history.in_flight) cut(s);
            };
            history.step();
            if (::testing::Test::HasFatalFailure()) return;
        }
        compared += history.compared;
    }
    print_count("deengine_power_cuts", cuts);
    std::printf("recovery: %llu torn pages met, %llu blocks compared\n",
                static_cast<unsigned long long>(torn), static_cast<unsigned long long>(compared));
    EXPECT_GT(torn, 0u);
}

TEST(Recovery, DeletionIsAllOrNothingWhereverItIsCut) {
    Rig rig;
    ASSERT_EQ(rig.add(make_record(3, 7)), Status::kSuccess);
    ASSERT_EQ(rig.add(make_record(4, 7)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    ASSERT_EQ(rig.write(rig.fields(3, 7, 0, 8), 1, pattern(10, 8)).status, Status::kSuccess);
    ASSERT_EQ(rig.write(rig.fields(4, 7, 0, 8), 1, pattern(30, 8)).status, Status::kSuccess);
    rig.metadata.fail = true;
    EXPECT_EQ(rig.remove(3), Status::kInternalError) << "a deletion that is not stored must not take effect";
    EXPECT_TRUE(rig.holds(rig.fields(3, 7, 2), 12));
    rig.mount();
    ASSERT_EQ(rig.report.volumes, 2u);
    rig.metadata.fail = false;
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.fields(3, 7, 2), 12));
    bool cut = false;
    rig.metadata.on_store = [&] {
        RamMetadata store;
        store.blob = rig.metadata.blob;
        Rig other(rig.flash.image(), std::move(store), rig.options);
        EXPECT_EQ(other.report.volumes, 1u);
        EXPECT_EQ(other.report.pages_mapped, 8u);
        ASSERT_EQ(other.set_map(make_map(1)), Status::kSuccess);
        EXPECT_TRUE(other.holds(other.fields(4, 7, 5), 35));
        Block got;
        EXPECT_EQ(other.read(other.fields(3, 7, 2), got).status, Status::kAccessDenied);
        cut = true;
    };
    EXPECT_EQ(rig.remove(3), Status::kSuccess);
    EXPECT_TRUE(cut);
    EXPECT_TRUE(rig.holds(rig.fields(4, 7, 5), 35));
}

}  // namespace
}  // namespace gnstor::deengine::test
