// recovery_erase_test.cpp: erasures that a power cut took or left half done, and what comes to light in them:
// pages of an opening long past, copies whose originals are still there.
#include "deengine/shard_rig.hpp"

#include <cstdio>
#include <set>
#include <vector>

namespace gnstor::deengine::test::recovery_erase_test {

using Kind = sim::Operation::Kind;

EngineOptions power_options() {
    EngineOptions o;
    o.volatile_cache = false;
    o.mdts_blocks = 8;
    o.max_volumes = 16;
    o.max_tombstones = 64;
    return o;
}

std::unique_ptr<ShardRig> mounted(FlashGeometry geometry) {
    MediumOptions m;
    m.geometry = geometry;
    m.power_cuts = true;
    Expectation e;
    e.lives.volumes[1] = {1, 64};
    auto rig = std::make_unique<ShardRig>(std::make_unique<Medium>(m), std::move(e), power_options());
    EXPECT_TRUE(rig->mount().ok());
    return rig;
}

void write_durably(ShardRig& rig, nvme::BlockAddress block, bool trim = false) {
    rig.write(1, block, trim);
    rig.shard->settle();
}

/// Mounts an image, compares, and does so again from what that recovery left.
void expect_whole(std::unique_ptr<Medium> image, const Expectation& expected, const std::string& what) {
    ShardRig cut(std::move(image), expected, power_options());
    for (int boot = 0; boot < 2; ++boot) {
        const Result<void> result = cut.mount();
        ASSERT_TRUE(result.ok()) << what << ", boot " << boot << ": " << result.error().message;
        ASSERT_EQ(cut.check(), "") << what << ", boot " << boot;
        const auto findings = cut.shard->audit();
        ASSERT_TRUE(findings.empty()) << what << ": " << findings.front();
        cut.reboot();
    }
}

/// A cut takes the erasure of a unit and leaves the program after it, and recovery calls the pages behind
/// that one torn. When the unit is erased again and that is cut too, they may be all that is left: what was
/// trimmed in them must not come back, and they say nothing of a page that was lost.
TEST(Erasure, PagesLeftByALostErasureAreNotTakenForRecentOnesWhenTheNextErasureIsCut) {
    auto rig = mounted({24, 8});
    for (nvme::BlockAddress b = 0; b < 16; ++b) write_durably(*rig, b);
    for (nvme::BlockAddress b = 0; b < 16; ++b) write_durably(*rig, b, true);
    // The first program into an erased unit that held them.
    std::unique_ptr<Medium> mixed;
    std::uint32_t unit = 0;
    rig->medium->on_operation = [&](Medium& medium) {
        const sim::Operation* op = medium.pending();
        if (mixed || op == nullptr || op->kind != Kind::kProgram || op->where % 8 != 0) return;
        mixed = medium.image(CutMode::kPower, [&](std::size_t, std::size_t, const sim::Operation& o, bool) {
            const bool taken = o.kind == Kind::kErase && o.where == op->where / 8 && o.before[1].recorded &&
                               o.before[1].oob.kind == PageKind::kData && o.before[1].oob.vba < 16;
            if (taken) unit = o.where + 1;
            return taken ? Fate::absent() : Fate::whole();
        });
        if (unit == 0) mixed.reset();
    };
    for (std::uint32_t i = 0; unit == 0 && i < 500; ++i) {
        rig->write(1, 20 + i % 20, false);
        if (i % 4 == 3) rig->shard->settle();
    }
    ASSERT_NE(mixed, nullptr);
    --unit;
    rig->shard.reset();
    rig->in_flight.clear();
    rig->medium = std::move(mixed);
    ASSERT_TRUE(rig->mount().ok());
    ASSERT_EQ(rig->check(), "");
    ASSERT_NE(rig->medium->page(unit * 8).oob.unit_serial, rig->medium->page(unit * 8 + 1).oob.unit_serial);
    // Nobody remembers the trims any more: the floor has passed them, and checkpoints say so.
    rig->shard->set_floor(1, 1, rig->expected.sequence);
    std::uint32_t looked = 0;
    rig->medium->on_operation = [&](Medium& medium) {
        const sim::Operation* op = medium.pending();
        if (op == nullptr || op->kind != Kind::kErase || op->where != unit || looked != 0) return;
        for (std::uint32_t i = 0; i < 60 && !HasFatalFailure(); ++i) {
            const Fate half = i < 8 ? Fate::torn(i, 0) : Fate::torn(0, 0, i);
            const auto fates = [&](std::size_t, std::size_t, const sim::Operation&, bool pending) {
                return pending ? half : Fate::whole();
            };
            ++looked;
            expect_whole(medium.image(CutMode::kPower, fates), rig->expected, fmt::format("cut {}", i));
        }
    };
    for (std::uint32_t i = 0; looked == 0 && i < 2000; ++i) {
        rig->write(1, 20 + i % 20, false);
        if (i % 4 == 3) rig->shard->settle();
        (void)rig->shard->poll(i);
    }
    EXPECT_EQ(looked, 60u) << "unit " << unit << " was erased";
}

/// A unit is filled, collected and empty within one group: of page and copy it cannot be told which came
/// later. Half erased it must not look as if something was lost in it.
TEST(Erasure, AHalfErasedUnitWhoseCopiesAreOfTheSameGroupIsNoLoss) {
    std::uint32_t looked = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        auto rig = mounted({24, 8});
        SplitMix64 random(seed);
        rig->medium->on_operation = [&](Medium& medium) {
            const sim::Operation* op = medium.pending();
            if (op == nullptr || op->kind != Kind::kErase) return;
            for (std::uint32_t i = 0; i < 4 && !HasFatalFailure(); ++i) {
                const Fate half = Fate::torn(0, 0, random.next() | 1);
                const auto fates = [&](std::size_t, std::size_t, const sim::Operation&, bool pending) {
                    return pending ? half : Fate::whole();
                };
                ++looked;
                expect_whole(medium.image(CutMode::kPower, fates), rig->expected,
                             fmt::format("seed {}, erasure {}", seed, looked));
            }
        };
        const std::uint64_t group = 10 + 20 * seed;
        for (std::uint32_t i = 0; i < 1500 && !HasFatalFailure(); ++i) {
            rig->write(
                1, static_cast<nvme::BlockAddress>(random.below(8) == 0 ? random.below(60) : random.below(4)),
                false);
            if (random.below(group) == 0) rig->shard->settle();
        }
        rig->medium->on_operation = nullptr;
    }
    std::printf("GN_COUNT deengine_half_erasures=%u\n", looked);
    EXPECT_GT(looked, 1000u);
}

/// Of what the collector moves a cut tears copies that nobody was promised, and a record in the unit that it
/// empties has rotted, of a block that it has not reached. Torn copies prove no erasure.
TEST(Erasure, TornCopiesProveNoErasureOfAUnitWithARottenRecord) {
    std::uint32_t looked = 0;
    auto rig = mounted({24, 8});
    const auto holds_newest = [&](const sim::MediumPage& page) {
        const auto block = rig->expected.blocks.find(make_key(page.oob.vid, page.oob.vba));
        return page.recorded && page.oob.kind == PageKind::kData && block != rig->expected.blocks.end() &&
               block->second.sent.back().sequence == page.oob.sequence;
    };
    const auto copy_of = [&](const PageOob& oob, std::uint32_t unit) {
        for (PageNumber p = 0; p < rig->medium->options().geometry.pages(); ++p) {
            const PageOob& other = rig->medium->page(p).oob;
            if (p / 8 != unit && rig->medium->page(p).recorded && other.kind == PageKind::kData &&
                other.vba == oob.vba && other.sequence == oob.sequence)
                return p;
        }
        return kNoPage;
    };
    rig->medium->on_operation = [&](Medium& medium) {
        for (std::uint32_t unit = 0; unit < 24 && !HasFatalFailure(); ++unit) {
            std::set<PageNumber> copies;
            std::vector<PageNumber> alone;
            bool all_uncertain = true;
            const std::vector<bool> uncertain = medium.uncertain_pages(CutMode::kPower);
            for (PageNumber p = unit * 8; p < unit * 8 + 8; ++p) {
                if (!holds_newest(medium.page(p))) continue;
                const PageNumber copy = copy_of(medium.page(p).oob, unit);
                copy == kNoPage ? alone.push_back(p) : void(copies.insert(copy));
                all_uncertain = all_uncertain && !uncertain[p] && (copy == kNoPage || uncertain[copy]);
            }
            if (alone.size() != 1 || copies.empty() || !all_uncertain || alone[0] % 8 == 7) continue;
            if (!medium.page(alone[0] + 1).recorded) continue;
            const auto fates = [&](std::size_t, std::size_t, const sim::Operation& op, bool pending) {
                if (pending) return Fate::absent();
                return op.kind == Kind::kProgram && copies.contains(op.where)
                           ? Fate::torn(1300, sizeof(PageOob))
                           : Fate::whole();
            };
            const nvme::BlockAddress block = medium.page(alone[0]).oob.vba;
            auto image = medium.image(CutMode::kPower, fates);
            image->rot_record(alone[0]);
            ShardRig cut(std::move(image), rig->expected, power_options());
            if (!cut.mount().ok()) continue;
            ++looked;
            std::vector<std::byte> got;
            ASSERT_EQ(cut.read(make_key(1, block), got), nvme::Status::kDoubtful)
                << "block " << block << " of page " << alone[0];
            EXPECT_GE(cut.report.records_lost, 1u);
        }
    };
    SplitMix64 random(3);
    for (std::uint32_t i = 0; i < 3000 && !HasFatalFailure(); ++i) {
        rig->write(1, static_cast<nvme::BlockAddress>(random.below(60)), false);
        if (random.below(12) == 0) rig->shard->settle();
    }
    rig->medium->on_operation = nullptr;
    std::printf("GN_COUNT deengine_torn_copies=%u\n", looked);
    EXPECT_GT(looked, 0u);
}

}  // namespace gnstor::deengine::test::recovery_erase_test
