// What a kill leaves of a store that is written without the page cache, whatever order its writes end in: a
// queue that holds writes back, ends them in any order, fails them, or loses those that were not sent.
#include "backbones.hpp"
#include "ssd/flash/direct/direct_flash.hpp"

#include <cerrno>
#include <map>
#include <set>

namespace gnstor::ssd::direct_order_test {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageOob;
using deengine::SyncLevel;
using deengine::SyncState;
using testing::oob_of;
using testing::page_of;
using testing::program;
using testing::Scratch;

/// Passes operations on when it is told to, one by one.
class HeldQueue final : public IoQueue {
  public:
    struct Control {
        SplitMix64 random{0};
        HeldQueue* queue = nullptr;
        std::uint32_t fail_next = 0;  // so many of the next end with an error, not done
        bool fail_syncs = false;
        std::uint64_t ended = 0;
    };
    HeldQueue(std::unique_ptr<IoQueue> below, Control& control)
        : below_(std::move(below)), control_(control) {
        control_.queue = this;
    }
    void write(const void* from, std::uint32_t bytes, std::uint64_t at, std::uint64_t token) override {
        held_.push_back({from, bytes, at, token});
    }
    void read(void*, std::uint32_t, std::uint64_t, std::uint64_t) override { std::abort(); }
    void sync(std::uint64_t token) override { held_.push_back({nullptr, 0, 0, token}); }
    [[nodiscard]] bool submit() override { return true; }
    [[nodiscard]] bool reap(Done& done) override {
        if (done_.empty()) return false;
        done = done_.back();
        done_.pop_back();
        return true;
    }
    /// Nobody waits in vain: then something ends.
    [[nodiscard]] bool wait(std::chrono::milliseconds) override {
        release(1);
        return !done_.empty();
    }
    [[nodiscard]] const char* kind() const override { return "held"; }

    void release(std::uint64_t count) {
        for (; count > 0 && !held_.empty(); --count) {
            const std::size_t i = control_.random.below(held_.size());
            const Held h = held_[i];
            held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
            ++control_.ended;
            if (control_.fail_next > 0 || (h.from == nullptr && control_.fail_syncs)) {
                control_.fail_next -= control_.fail_next > 0 ? 1 : 0;
                done_.push_back({h.token, -EIO});
                continue;
            }
            if (h.from == nullptr) {
                done_.push_back({h.token, 0});
                continue;
            }
            below_->write(h.from, h.bytes, h.at, h.token);
            Done done{};
            while (!below_->reap(done)) ASSERT_TRUE(below_->wait(std::chrono::seconds(30)));
            done_.push_back(done);
        }
    }
    [[nodiscard]] std::size_t held() const { return held_.size(); }

  private:
    struct Held {
        const void* from;
        std::uint32_t bytes;
        std::uint64_t at;
        std::uint64_t token;
    };
    std::unique_ptr<IoQueue> below_;
    Control& control_;
    std::vector<Held> held_;
    std::vector<Done> done_;
};

struct Rig {
    explicit Rig(std::uint64_t seed) : scratch(testing::direct_place()) {
        control.random = SplitMix64(seed);
        (void)StoreFile::create(scratch / "s",
                                {.geometry = {5, 24, 1, 1}, .capacity_bytes = 4096, .serial = ""})
            .value();
        open();
    }
    void open() {
        flash.clear();
        store.reset();
        DirectOptions o{.queue = IoQueueKind::kPlain, .staged_pages = 7};
        o.around = [this](std::unique_ptr<IoQueue> below) {
            return std::make_unique<HeldQueue>(std::move(below), control);
        };
        store = DirectStore::over(StoreFile::open(scratch / "s").value(), o).value();
        flash = store->parts(1).value();
    }
    deengine::Flash& operator*() { return *flash.front(); }
    deengine::Flash* operator->() { return flash.front().get(); }

    Scratch scratch;
    HeldQueue::Control control;
    std::unique_ptr<DirectStore> store;
    FlashParts flash;
};

/// What was programmed since the erasure of its unit, and which of it a sync has made stable.
struct Model {
    std::map<std::uint32_t, std::uint64_t> contents;
    std::set<std::uint32_t> stable;
    std::set<std::uint32_t> holes;    // lost by a kill, below pages of their unit that are there
    std::set<std::uint32_t> of_sync;  // programmed before the sync in flight
    std::vector<std::uint32_t> next = std::vector<std::uint32_t>(5, 0);

    void erase(std::uint32_t unit) {
        for (std::uint32_t p = unit * 24; p < unit * 24 + 24; ++p) {
            contents.erase(p);
            stable.erase(p);
            of_sync.erase(p);
            holes.erase(p);
        }
        next[unit] = 0;
    }
};

void step(Rig& rig, Model& m, SplitMix64& random) {
    const auto unit = static_cast<std::uint32_t>(random.below(5));
    const std::uint64_t dice = random.below(100);
    if (dice < 55 && m.next[unit] < 24) {
        const std::uint32_t page = unit * 24 + m.next[unit];
        const std::uint64_t contents = random.next();
        ASSERT_EQ(program(*rig, page, contents), FlashStatus::kOk);
        m.contents[page] = contents;
        ++m.next[unit];
    } else if (dice < 58) {
        ASSERT_EQ(rig->erase(unit), FlashStatus::kOk);
        m.erase(unit);
    } else if (dice < 85) {
        rig.control.queue->release(random.below(4));
    } else {
        const SyncState state = rig->sync_poll();
        ASSERT_NE(state, SyncState::kFailed);
        if (state == SyncState::kDone) m.stable.insert(m.of_sync.begin(), m.of_sync.end());
        if (state == SyncState::kBusy) return;
        m.of_sync.clear();
        if (random.below(2) == 0) return;
        for (const auto& [page, contents] : m.contents) m.of_sync.insert(page);
        ASSERT_EQ(rig->sync_begin(random.below(3) == 0 ? SyncLevel::kPower : SyncLevel::kKill),
                  FlashStatus::kOk);
    }
    // Anything that was programmed reads as it is, on its way or not.
    if (m.contents.empty()) return;
    auto known = m.contents.lower_bound(static_cast<std::uint32_t>(random.below(120)));
    if (known == m.contents.end()) known = m.contents.begin();
    testing::Page to;
    std::uint32_t crcs[8];
    ASSERT_EQ(rig->read(known->first, 0, 8, to.data(), crcs), FlashStatus::kOk);
    ASSERT_EQ(to, page_of(known->second)) << "page " << known->first;
}

/// After a kill: what is there now is what there is.
void check(Rig& rig, Model& m, std::uint64_t& lost) {
    std::map<std::uint32_t, std::uint64_t> found;
    for (std::uint32_t page = 0; page < 120; ++page) {
        PageOob oob{};
        const FlashStatus status = rig->read_oob(page, oob);
        if (status != FlashStatus::kOk) {
            // Lines of one sync end in any order: a later one of the unit may be there without this one.
            ASSERT_EQ(status, FlashStatus::kUncorrectable);
            ASSERT_LT(page / DirectFlash::kRecordsPerLine,
                      (page / 24 * 24 + 23) / DirectFlash::kRecordsPerLine)
                << "a torn record, page " << page;
            ASSERT_TRUE(m.contents.contains(page) || m.holes.contains(page))
                << "page " << page << " was erased";
            m.holes.insert(page);
        }
        if (status != FlashStatus::kOk || oob.kind == PageKind::kErased) {
            ASSERT_FALSE(m.stable.contains(page)) << "page " << page << " was stable";
            lost += m.contents.contains(page) ? 1 : 0;
            continue;
        }
        ASSERT_TRUE(m.contents.contains(page)) << "page " << page << " was erased";
        testing::Page to;
        std::uint32_t crcs[8];
        ASSERT_EQ(rig->read(page, 0, 8, to.data(), crcs), FlashStatus::kOk) << "a hole below page " << page;
        ASSERT_EQ(to, page_of(m.contents[page])) << "a record without its page " << page;
        found[page] = m.contents[page];
    }
    for (std::uint32_t unit = 0; unit < 5; ++unit) {
        m.next[unit] = 0;
        for (std::uint32_t i = 0; i < 24; ++i)
            if (found.contains(unit * 24 + i)) m.next[unit] = i + 1;
    }
    m.contents = found;
    m.of_sync.clear();
    m.stable.clear();
    // What a kill has left is stable: it was read from the medium.
    for (const auto& [page, contents] : found) m.stable.insert(page);
}

TEST(DirectOrder, AKillAtAnyMomentLeavesWholePagesInOrderAndEverythingThatASyncHadMadeStable) {
    const std::uint64_t base = testing::seed_or(20);
    std::uint64_t kills = 0;
    std::uint64_t lost = 0;
    std::uint64_t ended = 0;
    for (std::uint64_t seed = base; seed < base + 20 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(fmt::format("GN_SEED={}", seed));
        SplitMix64 random(seed);
        Rig rig(seed);
        Model m;
        for (int kill = 0; kill < 20 && !::testing::Test::HasFatalFailure(); ++kill, ++kills) {
            for (std::uint64_t steps = random.below(250); steps > 0; --steps) {
                step(rig, m, random);
                if (::testing::Test::HasFatalFailure()) return;
            }
            rig.open();
            check(rig, m, lost);
        }
        ended += rig.control.ended;
    }
    std::printf("direct order: %llu kills, %llu writes ended, %llu unstable pages lost, seed %llu\n",
                static_cast<unsigned long long>(kills), static_cast<unsigned long long>(ended),
                static_cast<unsigned long long>(lost), static_cast<unsigned long long>(base));
    std::printf("GN_COUNT ssd_direct_kills=%llu\n", static_cast<unsigned long long>(kills));
    EXPECT_GE(kills, 300u);
    EXPECT_GE(lost, 300u) << "too few kills lost unsynced pages, so the test covers too little";
}

TEST(DirectOrder, AFailedPageWriteIsRetriedOnceAndNothingIsLost) {
    Rig rig(3);
    rig.control.fail_next = 3;
    for (std::uint32_t p = 0; p < 5; ++p) ASSERT_EQ(program(*rig, p, p + 1), FlashStatus::kOk);
    EXPECT_EQ(rig->sync(SyncLevel::kKill), FlashStatus::kOk);
    EXPECT_EQ(rig.control.fail_next, 0u);
    EXPECT_FALSE(rig->is_bad(0));
    rig.open();
    testing::Page to;
    std::uint32_t crcs[8];
    for (std::uint32_t p = 0; p < 5; ++p) {
        ASSERT_EQ(rig->read(p, 0, 8, to.data(), crcs), FlashStatus::kOk);
        EXPECT_EQ(to, page_of(p + 1));
    }
}

TEST(DirectOrder, AFailedSyncFailsAllLaterSyncsAndReadsContinue) {
    Rig rig(4);
    ASSERT_EQ(program(*rig, 0, 1), FlashStatus::kOk);
    rig.control.fail_syncs = true;
    EXPECT_NE(rig->sync(SyncLevel::kPower), FlashStatus::kOk);
    rig.control.fail_syncs = false;
    EXPECT_NE(rig->sync(SyncLevel::kPower), FlashStatus::kOk) << "the kernel tells of lost pages once";
    EXPECT_NE(rig->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
    EXPECT_FALSE(rig.store->end_use()) << "it was not closed cleanly";
    EXPECT_FALSE(rig.store->metadata().store({}));
    testing::Page to;
    std::uint32_t crcs[8];
    EXPECT_EQ(rig->read(0, 0, 8, to.data(), crcs), FlashStatus::kOk);
    EXPECT_EQ(to, page_of(1));
}

TEST(DirectOrder, AFailedRecordWriteIsRetriedOnce) {
    Rig rig(5);
    ASSERT_EQ(program(*rig, 0, 1), FlashStatus::kOk);
    ASSERT_EQ(rig->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
    rig.control.queue->release(1);
    EXPECT_EQ(rig->sync_poll(), SyncState::kBusy) << "its record follows";
    rig.control.fail_next = 1;
    rig.control.queue->release(2);  // both copies
    EXPECT_EQ(rig->sync_poll(), SyncState::kBusy) << "the sync must still be busy";
    rig.control.queue->release(1);
    EXPECT_EQ(rig->sync_poll(), SyncState::kDone);
    rig.open();
    PageOob oob{};
    ASSERT_EQ(rig->read_oob(0, oob), FlashStatus::kOk);
    EXPECT_EQ(oob.kind, PageKind::kData);
}

TEST(DirectOrder, ARecordWriteThatFailsTwiceFailsItsSync) {
    Rig rig(5);
    ASSERT_EQ(program(*rig, 0, 1), FlashStatus::kOk);
    ASSERT_EQ(rig->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
    rig.control.queue->release(1);
    EXPECT_EQ(rig->sync_poll(), SyncState::kBusy) << "its record follows";
    // One of its copies, twice: the order of the queue is the seed's.
    rig.control.fail_next = 1;
    rig.control.queue->release(2);
    EXPECT_EQ(rig->sync_poll(), SyncState::kBusy);
    rig.control.fail_next = 1;
    rig.control.queue->release(1);
    EXPECT_EQ(rig->sync_poll(), SyncState::kFailed);
    EXPECT_EQ(rig->sync_poll(), SyncState::kIdle);
    EXPECT_NE(rig->sync_begin(SyncLevel::kKill), FlashStatus::kOk);
}

}  // namespace gnstor::ssd::direct_order_test
