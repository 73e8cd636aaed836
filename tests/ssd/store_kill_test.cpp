// kill -9 at any instruction leaves every acknowledged page readable, no half page, and the last acknowledged
// metadata, with a mapped file and with one without the page cache (there pages are acknowledged after a
// sync). A child programs pages and acknowledges each over a pipe; the parent kills it at a random moment,
// mounts the store and checks.
#include <gnstor/base/crc32c.hpp>

#include "scratch.hpp"
#include "ssd/flash/direct/direct_store.hpp"
#include "ssd/flash/file/file_store.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <set>
#include <vector>

namespace gnstor::ssd::store_kill_test {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageOob;

constexpr deengine::FlashGeometry kGeometry{8, 16};
constexpr std::uint64_t kPages = 8 * 16;
constexpr std::uint64_t kMetadataFlag = 1ull << 63;

/// Unit by unit: erase, program every page, acknowledge all of them. Page p of pass k has sequence k * kPages
/// + p.
[[noreturn]] void child(const std::filesystem::path& path, bool direct, std::uint64_t sequence,
                        int acknowledge) {
    auto file = StoreFile::open(path);
    if (!file.ok()) ::_exit(3);
    std::unique_ptr<Store> opened;
    if (direct) {
        opened = DirectStore::over(std::move(file).value()).value();
    } else {
        opened = FileStore::over(std::move(file).value()).value();
    }
    deengine::MetadataStore& metadata = opened->metadata();
    const FlashParts parts = opened->parts(1).value();
    deengine::Flash& store = *parts.front();
    // Prepared unit by unit, so that most of the time goes into programming: that is where the kill shall
    // strike.
    std::array<testing::Page, kGeometry.pages_per_unit> data;
    std::array<std::uint64_t, kGeometry.pages_per_unit> said;
    for (;;) {
        const auto unit = static_cast<std::uint32_t>(sequence % kPages / kGeometry.pages_per_unit);
        for (std::uint64_t i = 0; i < data.size(); ++i) testing::fill_page(data[i].data(), sequence + i);
        if (store.erase(unit) != FlashStatus::kOk) ::_exit(4);
        for (std::uint64_t i = 0; i < data.size(); ++i, ++sequence) {
            const auto page = static_cast<std::uint32_t>(sequence % kPages);
            PageOob oob = testing::oob_of(1, page, sequence);
            if (store.program(page, data[i].data(), oob) != FlashStatus::kOk) ::_exit(5);
            said[i] = sequence;
        }
        if (!store.survives_kill() && store.sync(deengine::SyncLevel::kKill) != FlashStatus::kOk) ::_exit(9);
        if (::write(acknowledge, said.data(), sizeof said) != static_cast<ssize_t>(sizeof said)) ::_exit(6);
        if (unit % 4 == 3) {
            std::vector<std::byte> blob(3 * nvme::kBlockBytes);
            for (std::size_t i = 0; i < 3; ++i)
                testing::fill_page(blob.data() + i * nvme::kBlockBytes, sequence + i);
            std::memcpy(blob.data(), &sequence, sizeof sequence);
            if (!metadata.store(blob)) ::_exit(7);
            const std::uint64_t stored = sequence | kMetadataFlag;
            if (::write(acknowledge, &stored, sizeof stored) != static_cast<ssize_t>(sizeof stored))
                ::_exit(8);
        }
    }
}

struct Tally {
    std::uint64_t next = 0;      // first sequence that was not acknowledged
    std::uint64_t metadata = 0;  // newest acknowledged metadata
    std::uint64_t pages_checked = 0;
    std::uint64_t torn = 0;
    std::uint64_t extra = 0;  // whole but not acknowledged
    std::set<std::uint64_t> excused;
};

void check_metadata(FileStore& store, const Tally& t) {
    const std::vector<std::byte> blob = store.load();
    std::uint64_t sequence = 0;
    if (blob.empty()) {
        EXPECT_EQ(t.metadata, 0u);
        return;
    }
    ASSERT_EQ(blob.size(), 3u * nvme::kBlockBytes);
    std::memcpy(&sequence, blob.data(), sizeof sequence);
    EXPECT_GE(sequence, t.metadata) << "acknowledged metadata went back";
    testing::Page last;
    testing::fill_page(last.data(), sequence + 2);
    EXPECT_EQ(std::memcmp(blob.data() + 2 * nvme::kBlockBytes, last.data(), last.size()), 0) << "half a blob";
}

/// Returns the sequence to go on with: behind every page that is used, at the start of a unit.
std::uint64_t check_store(const std::filesystem::path& path, Tally& t) {
    auto store = FileStore::open(path).value();
    std::vector<bool> found(kPages, false);
    std::uint64_t newest = t.next;
    for (std::uint32_t page = 0; page < kPages; ++page) {
        PageOob oob{};
        const FlashStatus status = store->read_oob(page, oob);
        if (status != FlashStatus::kOk) {
            ++t.torn;
            continue;
        }
        if (oob.kind == PageKind::kErased) continue;
        testing::Page to;
        std::uint32_t crcs[8];
        EXPECT_EQ(store->read(page, 0, 8, to.data(), crcs), FlashStatus::kOk);
        EXPECT_EQ(std::memcmp(crcs, oob.sector_crc, sizeof crcs), 0)
            << "a record without its data: sequence " << oob.sequence;
        EXPECT_EQ(to, testing::page_of(oob.sequence)) << "half a page";
        ++t.pages_checked;
        if (oob.sequence >= t.next) ++t.extra;
        newest = std::max(newest, oob.sequence + 1);
        found[page] = true;
    }
    // Everything acknowledged whose unit has not been erased for the next pass is there.
    const std::uint64_t kept = kPages - 2 * kGeometry.pages_per_unit;
    for (std::uint64_t s = t.next > kept ? t.next - kept : 0; s < t.next; ++s) {
        PageOob oob{};
        const auto page = static_cast<std::uint32_t>(s % kPages);
        if (t.excused.count(s) != 0) continue;
        EXPECT_TRUE(found[page]) << "acknowledged sequence " << s << " is gone";
        if (found[page] && store->read_oob(page, oob) == FlashStatus::kOk) {
            EXPECT_EQ(oob.sequence, s);
        }
    }
    check_metadata(*store, t);
    const std::uint64_t per = kGeometry.pages_per_unit;
    const std::uint64_t resume = (newest + per - 1) / per * per;
    // Fill the open unit up, so that the next round may rely on every sequence below `resume` (this is
    // "acknowledged" here).
    for (std::uint64_t s = newest; s < resume; ++s) {
        PageOob oob = testing::oob_of(1, static_cast<std::uint32_t>(s % kPages), s);
        const testing::Page data = testing::page_of(s);
        const FlashStatus status = store->program(static_cast<std::uint32_t>(s % kPages), data.data(), oob);
        // A torn page is used up; nobody was told that its sequence is there.
        if (status == FlashStatus::kRefused)
            t.excused.insert(s);
        else
            EXPECT_EQ(status, FlashStatus::kOk) << s;
    }
    t.next = resume;
    return resume;
}

class StoreKill : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Backbones, StoreKill, ::testing::Values(false, true),
                         [](const auto& p) { return p.param ? "Direct" : "Mapped"; });

TEST_P(StoreKill, AcknowledgedPagesAndMetadataSurviveKillNineAtRandomMoments) {
    const bool direct = GetParam();
    const std::uint64_t seed = testing::seed_or(99);
    SplitMix64 random(seed);
    testing::Scratch scratch(direct ? testing::Scratch::On::kDisk : testing::Scratch::On::kAny);
    const auto path = scratch / "s";
    {
        auto made =
            FileStore::create(
                path,
                {.geometry = kGeometry, .capacity_bytes = 4096 * 64, .metadata_bytes = 65536, .serial = ""})
                .value();
    }
    const int rounds = direct ? 150 : 300;
    Tally tally;
    std::uint64_t acknowledged = 0;
    std::uint64_t start = 0;
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        const pid_t pid = ::fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
            ::close(ends[0]);
            child(path, direct, start, ends[1]);
        }
        ::close(ends[1]);
        // A random number of acknowledgements, then a random number of instructions.
        const std::uint64_t wanted = random.below(300) + 1;
        std::uint64_t said = 0;
        std::uint64_t got = 0;
        while (got < wanted && ::read(ends[0], &said, sizeof said) == static_cast<ssize_t>(sizeof said)) {
            if (said & kMetadataFlag)
                tally.metadata = said & ~kMetadataFlag;
            else
                tally.next = said + 1;
            ++got;
        }
        std::uint64_t spin = random.next();
        for (std::uint64_t i = random.below(20000); i > 0; --i) spin = mix64(spin);
        if (spin == 0) std::printf(" ");  // keeps the loop
        ::kill(pid, SIGKILL);
        while (::read(ends[0], &said, sizeof said) == static_cast<ssize_t>(sizeof said)) {
            if (said & kMetadataFlag)
                tally.metadata = said & ~kMetadataFlag;
            else
                tally.next = said + 1;
            ++got;
        }
        ::close(ends[0]);
        int status = 0;
        ASSERT_EQ(::waitpid(pid, &status, 0), pid);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself, code " << WEXITSTATUS(status);
        acknowledged += got;
        start = check_store(path, tally);
    }
    std::printf(
        "store kill, %s: %d kills, %llu acknowledged, %llu pages checked, %llu whole but unacknowledged, "
        "%llu "
        "torn, seed %llu "
        "(floor 2000 acknowledged)\n",
        direct ? "direct" : "mapped", rounds, static_cast<unsigned long long>(acknowledged),
        static_cast<unsigned long long>(tally.pages_checked), static_cast<unsigned long long>(tally.extra),
        static_cast<unsigned long long>(tally.torn), static_cast<unsigned long long>(seed));
    std::printf("GN_COUNT ssd_store_kill_acknowledged=%llu\n", static_cast<unsigned long long>(acknowledged));
    EXPECT_GE(acknowledged, 2000u);
    EXPECT_LE(tally.excused.size(), tally.torn);
}

}  // namespace gnstor::ssd::store_kill_test
