// store_check.cpp: checks of the head and of the medium. The check through the firmware: store_mount.cpp.
#include "ssd/tools/store_check.hpp"

#include <fmt/core.h>

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/uuid.hpp>

#include "ssd/tools/store_mount.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace gnstor::ssd {
namespace {

using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

/// Collects findings; a full list drops notes to make room for damage.
class Findings {
  public:
    explicit Findings(StoreCheck& check) : check_(check) {}
    void add(Severity severity, std::uint64_t offset, std::string what) {
        ++(severity == Severity::kDamage ? check_.damages : check_.notes);
        std::vector<StoreFinding>& list = check_.findings;
        if (list.size() == StoreCheck::kMaxFindings) {
            if (severity == Severity::kNote) return;
            const auto note = std::find_if(list.begin(), list.end(), [](const StoreFinding& f) {
                return f.severity == Severity::kNote;
            });
            if (note == list.end()) return;
            list.erase(note);
        }
        list.push_back({severity, offset, std::move(what)});
    }
    void damage(std::uint64_t offset, std::string what) { add(Severity::kDamage, offset, std::move(what)); }
    void note(std::uint64_t offset, std::string what) { add(Severity::kNote, offset, std::move(what)); }

  private:
    StoreCheck& check_;
};

/// False: the contents behind the head are void.
bool check_boot(const StoreView& view, Findings& findings) {
    const auto copies = view.boot_copies();
    if (!copies[0].whole && !copies[1].whole) {
        findings.damage(kBootOffset,
                        "both copies of the boot record are damaged: it is not known which incarnation of "
                        "the drive the store holds");
        return true;
    }
    for (std::size_t i = 0; i < 2; ++i)
        if (!copies[i].whole)
            findings.note(kBootOffset + i * sizeof(BootRecord),
                          fmt::format("copy {} of the boot record is damaged; the other copy is used", i));
    const Result<BootRecord> boot = view.boot();
    if (!boot.ok()) {
        findings.damage(kBootOffset, boot.error().message);
        return true;
    }
    if (boot->state == BootState::kEmptying) {
        findings.note(kBootOffset,
                      "the store was being emptied when its process ended: its contents are void, and its "
                      "drive completes the emptying when it is started");
        return false;
    }
    if (!trusted(*boot, host_boot_id()))
        findings.damage(kBootOffset,
                        "the store was open with durability 'process' when its host stopped, so "
                        "acknowledged writes may be missing; a drive started on it begins empty");
    return true;
}

void check_metadata(const StoreView& view, Findings& findings) {
    const auto copies = view.metadata_copies();
    const std::uint64_t base = view.superblock().metadata_offset;
    const int newest = newest_slot(copies);
    if (copies[0].rotten || copies[1].rotten)
        findings.damage(base,
                        "the header of a copy of the metadata was damaged after it was written: that copy "
                        "may have been the newest, and the other copy would undo later acknowledged changes");
    const std::uint64_t missing = view.metadata_missing();
    if (missing == kMetadataGivenUp)
        findings.damage(base, "a recovery from an older copy of the metadata was interrupted");
    else if (missing != 0)
        findings.damage(base,
                        fmt::format("the metadata had reached generation {}, and no copy of that generation "
                                    "can be read: an older copy would undo later acknowledged changes",
                                    missing));
    for (int i = 0; i < 2; ++i) {
        const MetadataSlot& copy = copies[static_cast<std::size_t>(i)];
        const std::uint64_t at = base + static_cast<std::uint64_t>(i) * view.superblock().metadata_bytes;
        if (i == newest && !copy.body_whole)
            findings.damage(at,
                            "the newest copy of the metadata fails its checksum: volumes and permissions are "
                            "lost, and the older copy would undo later acknowledged changes");
        else if (i != newest && newest >= 0 && copy.head_whole && !copy.body_whole)
            findings.note(at, "the older copy of the metadata fails its checksum; the newer copy is used");
        else if (copy.head_whole && !copy.head_twice)
            findings.note(
                at,
                "one of the two copies of the header of this metadata copy is damaged; the other is used");
    }
}

void check_journals(const StoreView& view, Findings& findings) {
    if (const std::optional<JournalLoss> loss = view.journal_loss(); loss)
        findings.damage(view.superblock().oob_offset, describe(*loss));
}

struct BadPage {
    PageNumber page;
    bool torn;  ///< in one of the last two groups: a power cut explains it
    std::uint64_t offset;
    std::string what;
};

/// Checks the erase units of one service unit.
class MediumCheck {
  public:
    MediumCheck(const StoreView& view, StoreCheck& check, Findings& findings, const CheckProgress& progress)
        : view_(view), check_(check), findings_(findings), progress_(progress) {}

    /// Pages that fail their checksums, in page order.
    [[nodiscard]] const std::vector<BadPage>& bad() const { return bad_; }

    void service_unit(UnitRange range) {
        newest_group_ = newest_group(range);
        for (std::uint32_t u = range.first; u < range.first + range.units; ++u) unit(u);
    }

  private:
    [[nodiscard]] PageOob record(PageNumber page) const { return view_.record(page).counts; }
    [[nodiscard]] std::uint32_t newest_group(UnitRange range) const {
        const std::uint32_t per = view_.superblock().pages_per_unit;
        bool any = false;
        std::uint32_t newest = 0;
        for (std::uint64_t p = std::uint64_t{range.first} * per;
             p < std::uint64_t{range.first + range.units} * per; ++p) {
            const PageOob oob = record(static_cast<PageNumber>(p));
            if (is_erased(oob) || !is_whole(oob, static_cast<PageNumber>(p), view_.drive_seed())) continue;
            if (!any || static_cast<std::int32_t>(oob.group - newest) > 0) newest = oob.group;
            any = true;
        }
        return newest;
    }

    /// A power cut may leave torn pages in the last two groups.
    [[nodiscard]] bool may_be_torn(std::uint32_t group) const {
        return static_cast<std::int32_t>(newest_group_ - group) <= 1;
    }

    /// A unit's serial is the highest in its records. docs/store-format.md, "Records and pages".
    [[nodiscard]] std::uint32_t serial_of_unit(PageNumber first, std::uint32_t end) const {
        std::uint32_t serial = 0;
        for (std::uint32_t i = 0; i < end; ++i)
            if (const PageOob oob = record(first + i); is_whole(oob, first + i, view_.drive_seed()))
                serial = std::max(serial, oob.unit_serial);
        return serial;
    }

    void unit(std::uint32_t number) {
        const std::uint32_t per = view_.superblock().pages_per_unit;
        const PageNumber first = number * per;
        std::uint32_t end = per;  // above its last record that is not erased
        while (end > 0 && is_erased(record(first + end - 1))) --end;
        const std::uint32_t serial = serial_of_unit(first, end);
        bool any = false, system = false;
        std::uint32_t leftovers = 0;
        // The group of an unreadable record is at most that of the next good record.
        std::vector<PageNumber> unreadable;
        for (std::uint32_t i = 0; i < end; ++i) {
            const PageNumber page = first + i;
            const PageOob oob = record(page);
            ++check_.records;
            if (!is_whole(oob, page, view_.drive_seed())) {
                unreadable.push_back(page);
                ++check_.damaged_records;
                continue;
            }
            if (oob.unit_serial != serial) {
                ++leftovers;
                continue;
            }
            for (const PageNumber bad : unreadable) bad_record(bad, may_be_torn(oob.group));
            unreadable.clear();
            if (any && system != (oob.kind == PageKind::kSystem))
                findings_.damage(
                    view_.record_offset(page),
                    fmt::format("erase unit {} holds data pages and journal pages; it may hold only one kind",
                                number));
            any = true;
            system = oob.kind == PageKind::kSystem;
            page_of(page, oob);
        }
        if (leftovers != 0)
            findings_.note(view_.record_offset(first),
                           fmt::format("erase unit {}: {} pages of an earlier opening are left, because a "
                                       "power cut undid their erasure; they are ignored",
                                       number, leftovers));
        for (const PageNumber bad : unreadable) bad_record(bad, true);
        if (view_.record_copies_differ(first, per)) copies_of(first, per);
        looked_at(std::uint64_t{per} * 2 * sizeof(PageOob));
    }

    void copies_of(PageNumber first, std::uint32_t pages) {
        for (PageNumber page = first; page < first + pages; ++page) {
            const RecordCopies copies = view_.record(page);
            if (copies.contradict)
                findings_.damage(
                    view_.record_offset(page),
                    fmt::format("the two copies of the record of page {} contradict each other, and neither "
                                "copy can be proved correct: the page counts as damaged",
                                page));
            if (!copies.rotten) continue;
            ++check_.damaged_record_copies;
            findings_.note(
                view_.record_offset(page),
                fmt::format(
                    "one of the two copies of the record of page {} is damaged; the other copy is used",
                    page));
        }
    }

    void bad_record(PageNumber page, bool torn) {
        bad_.push_back({page, torn, view_.record_offset(page),
                        fmt::format("the record of page {} fails its checksum", page)});
    }

    void page_of(PageNumber page, const PageOob& oob) {
        if (oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder) {
            ++check_.lost_pages;
            return;
        }
        if (oob.kind != PageKind::kData && oob.kind != PageKind::kSystem) {
            findings_.damage(view_.record_offset(page), fmt::format("page {} has the unknown kind {}", page,
                                                                    static_cast<unsigned>(oob.kind)));
            return;
        }
        ++(oob.kind == PageKind::kData ? check_.data_pages : check_.system_pages);
        std::string sectors;
        const std::byte* data = view_.raw(view_.page_offset(page), nvme::kBlockBytes).data();
        for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
            if (crc32c(data + s * nvme::kSectorBytes, nvme::kSectorBytes) != oob.sector_crc[s])
                sectors += fmt::format("{}{}", sectors.empty() ? "" : ", ", s);
        looked_at(nvme::kBlockBytes);
        if (sectors.empty()) return;
        ++check_.damaged_pages;
        const std::string of = oob.kind == PageKind::kData
                                   ? fmt::format("block {} of volume {}", oob.vba, oob.vid)
                                   : fmt::format("journal page {}", oob.sequence);
        bad_.push_back({page, may_be_torn(oob.group), view_.page_offset(page),
                        fmt::format("sectors {} of page {} ({}) fail their checksums", sectors, page, of)});
    }

    void looked_at(std::uint64_t bytes) {
        check_.bytes_read += bytes;
        if (progress_) progress_(check_.bytes_read);
    }

    const StoreView& view_;
    StoreCheck& check_;
    Findings& findings_;
    const CheckProgress& progress_;
    std::uint32_t newest_group_ = 0;
    std::vector<BadPage> bad_;
};

void check_contents(StoreView& view, StoreCheck& check, Findings& findings, const CheckProgress& progress) {
    check_metadata(view, findings);
    check_journals(view, findings);
    const Superblock& s = view.superblock();
    MediumCheck medium(view, check, findings, progress);
    for (std::uint32_t i = 0; i < s.service_units; ++i)
        medium.service_unit(UnitRange::of(s.units, i, s.service_units));
    const BlockCheck blocks = check_blocks(view, check);
    for (const StoreFinding& f : blocks.findings) findings.add(f.severity, f.offset, f.what);
    for (const BadPage& bad : medium.bad()) {
        const auto reader = std::lower_bound(blocks.unreadable.begin(), blocks.unreadable.end(), bad.page,
                                             [](const auto& item, PageNumber p) { return item.page < p; });
        const bool read = reader != blocks.unreadable.end() && reader->page == bad.page;
        const std::string so =
            read ? fmt::format("reads of block {} of volume {} fail", deengine::key_block(reader->key),
                               deengine::key_volume(reader->key))
            : bad.torn
                ? "the page was torn by a power cut and is treated as never written"
                : "no block is mapped to the page (it was torn by an earlier power cut, or damaged later)";
        findings.add(read ? Severity::kDamage : Severity::kNote, bad.offset, bad.what + ": " + so);
    }
}

}  // namespace

std::uint64_t bytes_to_check(const StoreView& view) {
    const Superblock& s = view.superblock();
    return s.geometry().pages() * (2 * sizeof(PageOob) + nvme::kBlockBytes);
}

StoreCheck check_store(StoreView& view, const CheckProgress& progress) {
    const auto begin = std::chrono::steady_clock::now();
    StoreCheck check;
    Findings findings(check);
    if (check_boot(view, findings)) check_contents(view, check, findings, progress);
    std::stable_sort(check.findings.begin(), check.findings.end(),
                     [](const StoreFinding& a, const StoreFinding& b) {
                         return a.severity > b.severity || (a.severity == b.severity && a.offset < b.offset);
                     });
    check.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return check;
}

}  // namespace gnstor::ssd
