// Parts of one store are used by threads of their own: programs, reads, erasures and syncs of one never show
// in another, and the firmware's small state is stored meanwhile.
#include "backbones.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace gnstor::ssd::store_parts_test {

using deengine::FlashStatus;
using deengine::SyncLevel;
using deengine::SyncState;
using testing::Kind;
using testing::page_of;
using testing::program;

constexpr deengine::FlashGeometry kGeometry{18, 64, 2, 2};
constexpr std::uint32_t kParts = 4;

struct Worker {
    deengine::Flash* flash = nullptr;
    UnitRange mine{};
    std::uint64_t seed = 0;
    std::uint64_t steps = 0;
    std::map<std::uint32_t, std::uint64_t> contents;
    std::uint64_t programmed = 0;
    std::uint64_t syncs = 0;
    std::uint64_t wrong = 0;  // checked by the test's own thread
};

void work(Worker& w) {
    SplitMix64 random(w.seed);
    std::map<std::uint32_t, std::uint32_t> next;
    bool syncing = false;
    for (std::uint64_t i = 0; i < w.steps; ++i) {
        const auto unit = w.mine.first + static_cast<std::uint32_t>(random.below(w.mine.units));
        const std::uint64_t dice = random.below(100);
        if (dice < 70 && next[unit] < 64) {
            const std::uint32_t page = unit * 64 + next[unit]++;
            w.contents[page] = random.next();
            w.wrong += program(*w.flash, page, w.contents[page]) == FlashStatus::kOk ? 0 : 1;
            ++w.programmed;
        } else if (dice < 72) {
            w.wrong += w.flash->erase(unit) == FlashStatus::kOk ? 0 : 1;
            for (std::uint32_t p = unit * 64; p < unit * 64 + 64; ++p) w.contents.erase(p);
            next[unit] = 0;
        } else if (dice < 80) {
            if (syncing) {
                const SyncState state = w.flash->sync_poll();
                w.wrong += state == SyncState::kFailed || state == SyncState::kIdle ? 1 : 0;
                syncing = state == SyncState::kBusy;
                w.syncs += syncing ? 0 : 1;
            } else {
                w.wrong +=
                    w.flash->sync_begin(i % 2 == 0 ? SyncLevel::kKill : SyncLevel::kPower) == FlashStatus::kOk
                        ? 0
                        : 1;
                syncing = true;
            }
        } else if (!w.contents.empty()) {
            auto known = w.contents.lower_bound(unit * 64 + static_cast<std::uint32_t>(random.below(64)));
            if (known == w.contents.end()) known = w.contents.begin();
            testing::Page to;
            std::uint32_t crcs[8];
            const bool ok = w.flash->read(known->first, 0, 8, to.data(), crcs) == FlashStatus::kOk;
            w.wrong += ok && to == page_of(known->second) ? 0 : 1;
        }
    }
    w.wrong += w.flash->sync(SyncLevel::kKill) == FlashStatus::kOk ? 0 : 1;
    if (!syncing) return;
    // On a slow disk the first one may have taken as long as all steps.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    SyncState state = w.flash->sync_poll();
    while (state == SyncState::kBusy && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
        state = w.flash->sync_poll();
    }
    w.wrong += state == SyncState::kDone ? 0 : 1;
    ++w.syncs;
}

class StoreParts : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Backbones, StoreParts,
                         ::testing::Values(Kind::kMemory, Kind::kTmpfs, Kind::kRing, Kind::kPlain),
                         [](const auto& p) { return testing::name_of(p.param); });

TEST_P(StoreParts, ThreadsProgramReadEraseAndSyncTheirOwnUnitsAtOnce) {
    const std::uint64_t seed = testing::seed_or(71);
    testing::Backbone rig(GetParam(), {.geometry = kGeometry, .capacity_bytes = 4096 * 64, .serial = ""});
    rig.divide(kParts);
    std::vector<Worker> workers(kParts);
    for (std::uint32_t i = 0; i < kParts; ++i) {
        workers[i].flash = &rig.flash(i);
        workers[i].mine = UnitRange::of(kGeometry.units, i, kParts);
        workers[i].seed = seed + i;
        workers[i].steps = testing::is_direct(GetParam()) ? 800 : 3000;
    }
    std::vector<std::thread> threads;
    for (Worker& w : workers) threads.emplace_back([&w] { work(w); });
    // The front's own business meanwhile.
    std::vector<std::byte> blob(5000);
    for (std::uint32_t i = 0; i < 20; ++i) {
        blob[0] = static_cast<std::byte>(i);
        EXPECT_TRUE(rig.store().metadata().store(blob));
        EXPECT_EQ(rig.store().metadata().load(), blob);
    }
    for (std::thread& t : threads) t.join();
    std::uint64_t programmed = 0;
    for (const Worker& w : workers) {
        EXPECT_EQ(w.wrong, 0u) << "seed " << seed;
        EXPECT_GT(w.syncs, 0u);
        programmed += w.programmed;
    }
    if (rig.keeps()) rig.reopen(2);
    // By other parts than those that wrote: the store is one.
    for (const Worker& w : workers) {
        for (const auto& [page, contents] : w.contents) {
            const std::size_t part = !rig.keeps() ? static_cast<std::size_t>(&w - workers.data())
                                     : UnitRange::of(kGeometry.units, 0, 2).has(page / 64) ? 0
                                                                                           : 1;
            testing::Page to;
            std::uint32_t crcs[8];
            ASSERT_EQ(rig.flash(part).read(page, 0, 8, to.data(), crcs), FlashStatus::kOk) << page;
            ASSERT_EQ(to, page_of(contents));
        }
    }
    std::printf("store parts, %s: %llu pages programmed by %u threads, seed %llu\n",
                testing::name_of(GetParam()).c_str(), static_cast<unsigned long long>(programmed), kParts,
                static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_parts_pages=%llu\n", static_cast<unsigned long long>(programmed));
}

TEST(StoreParts, DirectPartsNeedUnitsWhoseRecordsFillWholePages) {
    testing::Backbone rig(Kind::kPlain, {.geometry = {8, 16, 1, 1}, .capacity_bytes = 4096, .serial = ""});
    const auto refused = rig.store().parts(2);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("multiple of 64"), std::string::npos);
}

}  // namespace gnstor::ssd::store_parts_test
