// loss_record_test.cpp: what a gateway leaves for its successor: no damage of the record passes for a record,
// and over restarts and lost SSDs no flush succeeds for writes that are gone.
#include "gateway/loss_record.hpp"
#include "gateway/record_file.hpp"
#include "gateway/write_loss_tracker.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

namespace gnstor::gateway::loss_record_test {

using placement::SlotState;

constexpr std::uint32_t kSlots = 4;

placement::ArrayMap make_map() {
    placement::ArrayMap map{};
    map.version = 7;
    map.slot_count = kSlots;
    for (std::uint32_t s = 0; s < kSlots; ++s) {
        map.slots[s].state = SlotState::kIn;
        map.slots[s].ssd_uuid[0] = static_cast<std::uint8_t>(s + 1);
    }
    return map;
}

LossRecord make_record() {
    LossRecord record;
    record.volume = {1, 2, 3};
    record.map = make_map();
    record.gone = 5;
    record.dirty = record.told = true;
    return record;
}

TEST(LossRecord, ARecordReadBackEqualsTheOneWritten) {
    const LossRecord back = decode_loss_record(encode_loss_record(make_record())).value();
    EXPECT_TRUE(same(back, make_record()));
    EXPECT_TRUE(back.dirty && back.told && !back.lost);
    EXPECT_EQ(back.gone, 5u);
    EXPECT_EQ(back.map.slots[3].ssd_uuid[0], 4);
}

TEST(LossRecord, NoTornOrCorruptRecordIsAccepted) {
    LossRecord old = make_record();
    old.dirty = false;
    old.map.version = 6;
    const LossRecordBytes was = encode_loss_record(old), is = encode_loss_record(make_record());
    for (std::size_t cut = 1; cut < is.size(); ++cut) {
        LossRecordBytes torn = was;
        std::copy_n(is.begin(), cut, torn.begin());
        const auto read = decode_loss_record(torn);
        if (read.ok()) {
            EXPECT_TRUE(torn == is || torn == was) << "a mixture, cut at " << cut;
        }
        EXPECT_FALSE(decode_loss_record(std::span(is).first(cut)).ok()) << "a part of " << cut << " bytes";
    }
    for (std::size_t byte = 0; byte < is.size(); ++byte)
        for (int bit = 0; bit < 8; ++bit) {
            LossRecordBytes damaged = is;
            damaged[byte] ^= std::byte{1} << bit;
            ASSERT_FALSE(decode_loss_record(damaged).ok()) << byte << "." << bit;
        }
    test::count("gateway_record_damages", is.size() * 9);
}

TEST(LossRecord, TheFileBelongsToOneGatewayAndIsEmptyBeforeTheFirstRecord) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("gn-record-{}", ::getpid());
    std::filesystem::remove(path);
    {
        auto file = RecordFile::open(path).value();
        EXPECT_FALSE(file->read().value().has_value());
        EXPECT_EQ(RecordFile::open(path).error().code, Errc::kBusy);
        ASSERT_TRUE(file->write(make_record()).ok());
    }
    EXPECT_TRUE(same(*RecordFile::open(path).value()->read().value(), make_record()));
    std::filesystem::resize_file(path, kLossRecordBytes - 1);
    EXPECT_EQ(RecordFile::open(path).value()->read().error().code, Errc::kCorrupt);
    std::filesystem::remove(path);
    EXPECT_EQ(RecordFile::open(path / "no" / "folder").error().code, Errc::kIo);
}

/// A gateway with its record, over SSDs that keep what they are told in volatile caches; the truth beside it.
class Sim {
  public:
    explicit Sim(std::uint64_t seed) : random_(seed), map_(make_map()), watch_(kReplicas, map_) {}

    void step() {
        switch (random_.below(12)) {
            case 0:
                return lose();
            case 1:
                return restart();
            case 2:
                return rest();
            case 3:
            case 4:
                return flush();
            default:
                return write();
        }
    }
    std::uint64_t restarts = 0, lost_writes = 0, good_flushes = 0, bad_flushes = 0, record_writes = 0;
    bool may_lose = true, may_tear = true;

  private:
    static constexpr std::uint32_t kReplicas = 2;
    /// An answered change that no flush has settled: the incarnations of SSDs that hold it.
    using Holders = std::vector<std::uint8_t>;

    [[nodiscard]] bool serves(std::uint32_t s) const { return map_.slots[s].state == SlotState::kIn; }
    [[nodiscard]] bool lives(std::uint8_t incarnation) const {
        for (std::uint32_t s = 0; s < kSlots; ++s)
            if (serves(s) && map_.slots[s].ssd_uuid[0] == incarnation) return true;
        return false;
    }
    [[nodiscard]] bool gone(const Holders& holders) const {
        return std::ranges::none_of(holders, [this](std::uint8_t i) { return lives(i); });
    }

    void see_map() { (void)watch_.look_at(map_, false); }

    void write() {
        Holders holders;
        const auto first = static_cast<std::uint32_t>(random_.below(kSlots));
        for (std::uint32_t i = 0; i < kSlots && holders.size() < kReplicas; ++i)
            if (const std::uint32_t s = (first + i) % kSlots; serves(s))
                holders.push_back(map_.slots[s].ssd_uuid[0]);
        if (holders.empty()) return;
        see_map();
        if (!stable_ || !stable_->dirty || stable_->map.version != watch_.version()) {
            stable_ = watch_.record(true);
            ++record_writes;
            // Cut before the answer: nothing was promised.
            if (random_.below(20) == 0) return restart();
        }
        watch_.answered();
        unsettled_.push_back(std::move(holders));
    }

    void flush() {
        see_map();
        const WriteLossTracker::Mark mark = watch_.flush_begins(false);
        bool good = !watch_.lost();
        if (good) {
            watch_.flush_ended(mark, false);
            if (watch_.inherited_loss()) good = heard_;
            heard_ = true;
        }
        if (!good) {
            ++bad_flushes;
            watch_.tell(false);
            stable_.reset();
            stable_ = watch_.record(watch_.unsettled() != 0);
            // The host knows. What SSDs hold is stable: they were asked first.
            unsettled_.clear();
            return;
        }
        ++good_flushes;
        for (const Holders& holders : unsettled_)
            ASSERT_FALSE(gone(holders)) << "a flush succeeded for a write that no SSD has any more";
        unsettled_.clear();
    }

    void lose() {
        if (!may_lose) return;
        const auto s = static_cast<std::uint32_t>(random_.below(kSlots));
        ++map_.version;
        const auto before = static_cast<std::uint64_t>(
            std::ranges::count_if(unsettled_, [this](const auto& h) { return gone(h); }));
        if (serves(s) && random_.below(2) == 0) {
            map_.slots[s].state = SlotState::kDown;
        } else {
            map_.slots[s].state = SlotState::kIn;
            map_.slots[s].ssd_uuid[0] = ++incarnation_;
        }
        lost_writes += static_cast<std::uint64_t>(
                           std::ranges::count_if(unsettled_, [this](const auto& h) { return gone(h); })) -
                       before;
        if (random_.below(2) == 0) see_map();
    }

    void rest() {
        see_map();
        if (watch_.unsettled() == 0) stable_ = watch_.record(false);
    }

    void restart() {
        ++restarts;
        while (random_.below(3) == 0) lose();
        const bool torn = may_tear && stable_ && random_.below(10) == 0;
        watch_ = stable_ ? WriteLossTracker::resume(kReplicas, torn ? nullptr : &*stable_, map_)
                         : WriteLossTracker(kReplicas, map_);
        if (torn) stable_.reset();
        // Until it is written anew the medium says what it said.
        if (watch_.inherited_loss()) stable_ = watch_.record(false);
        heard_ = false;
    }

    SplitMix64 random_;
    placement::ArrayMap map_;
    WriteLossTracker watch_;
    std::optional<LossRecord> stable_;
    std::vector<Holders> unsettled_;
    std::uint8_t incarnation_ = kSlots;
    bool heard_ = false;
};

TEST(LossRecord, AcrossRestartsAndLostSsdsNoFlushSucceedsForLostWrites) {
    std::uint64_t restarts = 0, lost = 0, good = 0, bad = 0;
    for (std::uint64_t seed = 0; seed < 3000; ++seed) {
        Sim sim(test::run_seed() + seed);
        for (int i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) sim.step();
        ASSERT_FALSE(::testing::Test::HasFailure()) << "GN_SEED=" << test::run_seed() << ", history " << seed;
        restarts += sim.restarts;
        lost += sim.lost_writes;
        good += sim.good_flushes;
        bad += sim.bad_flushes;
    }
    EXPECT_GT(lost, 0u);
    EXPECT_GT(bad, 0u);
    test::count("gateway_loss_restarts", restarts);
    test::count("gateway_loss_good_flushes", good);
}

TEST(LossRecord, WithoutALostSsdEveryFlushSucceedsAndEachDirtyPeriodWritesOneRecord) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        Sim sim(test::run_seed() + seed);
        sim.may_lose = sim.may_tear = false;
        for (int i = 0; i < 60; ++i) sim.step();
        EXPECT_EQ(sim.bad_flushes, 0u) << "GN_SEED=" << test::run_seed() << ", history " << seed;
        EXPECT_LE(sim.record_writes, 1 + sim.good_flushes + sim.restarts);
    }
}

}  // namespace gnstor::gateway::loss_record_test
