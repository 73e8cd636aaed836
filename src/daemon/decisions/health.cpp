#include "daemon/decisions/health.hpp"

#include <gnstor/base/units.hpp>

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

namespace gnstor::daemon {
namespace {

enum Code : std::size_t {
    kSuperseded,
    kReadOnly,
    kUnreadable,
    kSlotDown,
    kStaleStore,
    kRebuildStuck,
    kReplicasDiffer,
    kBlocksUnreadable,
    kFull,
    kSlotOut,
    kDegraded,
    kRebuilding,
    kMapPending,
    kChangesPending,
    kSsdTrouble,
    kNearFull,
    kSpareLow,
    kMediaErrors,
    kCodes
};

/// In the order of Code.
constexpr std::array<HealthCode, kCodes> kTable = {{
    // kSuperseded
    {"GNS_SUPERSEDED", Severity::kError,
     "This gnstord renews no grant and changes nothing. Another gnstord has taken over the array, "
     "and tells whether that is healthy.",
     "Stop this gnstord. If the other one was started by mistake, stop that one and restart this one."},
    // kReadOnly
    {"GNS_READ_ONLY", Severity::kError,
     "Nothing can be created, opened for writing, shared or deleted. Clients that hold a lease "
     "still write, and volumes are read, as long as the SSDs serve.",
     "Make room for gnstord's records, or mend their file system. gnstord tries again every second."},
    // kUnreadable
    {"GNS_UNREADABLE", Severity::kError,
     "Reads and writes of chunks whose replicas are all on SSDs that do not serve fail, until these "
     "SSDs serve again.",
     "Bring back the SSDs that GNS_SLOT_DOWN, GNS_SLOT_OUT or GNS_STALE_STORE names, and wait for a "
     "rebuild."},
    // kSlotDown
    {"GNS_SLOT_DOWN", Severity::kError,
     "Writes to chunks with a replica on this SSD fail; their reads come from other replicas. No "
     "volume can be created or deleted. If the other replicas serve, the SSD is taken out of the map when "
     "its grant has "
     "ended, after some ten seconds, and writes go on without it.",
     "Start the node that serves the SSD ('gnstor up' starts the nodes of a folder that do not "
     "run), or bring back its store and restart gnstord. The SSD takes what it missed and serves by "
     "itself. If its data is lost, put an empty SSD in its place and run 'gnstor ssd replace SLOT'."},
    // kStaleStore
    {"GNS_STALE_STORE", Severity::kError,
     "The SSD may lack acknowledged writes, so it is not read and gets no grant. Writes to chunks "
     "with a replica on it fail until gnstord has taken it out of the map.",
     "Stop the array, put the newest store of this SSD in place of the copy, and start the array. If that "
     "store is lost, put an empty SSD in its place and run 'gnstor ssd replace SLOT'."},
    // kRebuildStuck
    {"GNS_REBUILD_STUCK", Severity::kError,
     "The slot stays rebuilding, because some of its blocks are not copied: no other SSD can read them "
     "(then their reads fail with Unrecovered Read Error, too), or the SSD of the slot refuses them.",
     "gnstord tries these blocks again and again. If the last refusal is Unrecovered Read Error, write "
     "the blocks again, for instance by putting again the objects that cannot be read. If it is Capacity "
     "Exceeded, make room: in the file system that holds the SSD's store, if that is full, else by deleting. "
     "If it is "
     "Busy, wait: trims that are under way delay the copy."},
    // kReplicasDiffer
    {"GNS_REPLICAS_DIFFER", Severity::kError,
     "A read of these blocks may return one version now and another one later. The SSDs read both without an "
     "error, so GNStor does not choose between them.",
     "Write the blocks again, for instance by putting the object again; then all replicas have the new "
     "version. 'gnstor scrub' names the volumes, and 'gnstor scrub --start' looks again. An SSD that was "
     "full explains the difference, and so does a program that changed a buffer during its write. If neither "
     "was the case, an SSD has lost an acknowledged write: replace it."},
    // kBlocksUnreadable
    {"GNS_BLOCKS_UNREADABLE", Severity::kError,
     "Reads of these blocks fail with Unrecovered Read Error: no SSD can read its replica.",
     "Write the blocks again, for instance by putting the object again, or bring back SSDs that are out. "
     "'gnstor scrub --start' looks again."},
    // kFull
    {"GNS_FULL", Severity::kError,
     "Writes of new blocks fail with Capacity Exceeded, or will soon. Data can be read, overwritten "
     "and deleted.",
     "Delete volumes or objects, or trim blocks that are not needed.", true},
    // kSlotOut
    {"GNS_SLOT_OUT", Severity::kWarning,
     "Reads and writes go on without this SSD, and creations and deletions do not wait for it. What is "
     "written now has "
     "one replica less.",
     "Start the node that serves the SSD ('gnstor up' starts the nodes of a folder that do not run). The SSD "
     "is filled "
     "with what it missed when no volume is open for writing, or when 'gnstor ssd replace SLOT' is run; "
     "until "
     "reclaim(), writes of clients that were connected before then fail. If its data is lost, put an empty "
     "SSD in its "
     "place and run 'gnstor ssd replace SLOT'."},
    // kDegraded
    {"GNS_DEGRADED", Severity::kWarning,
     "Data can be read. If more SSDs stop serving, some of it may become unreadable until they are back.",
     "Bring back the SSDs that GNS_SLOT_DOWN, GNS_SLOT_OUT or GNS_STALE_STORE names, and wait for a "
     "rebuild."},
    // kRebuilding
    {"GNS_REBUILDING", Severity::kWarning,
     "The SSD takes every write while it serves, and is filled from the other replicas; reads come from "
     "them.",
     "Wait; 'gnstor ssd replace' and 'gnstor status' show how far it is. If it stands still, see the "
     "other findings."},
    // kMapPending
    {"GNS_MAP_PENDING", Severity::kWarning, "SSDs that have not taken the map refuse reads and writes.",
     "Wait a few seconds. If it lasts, bring back the SSDs that other findings name."},
    // kChangesPending
    {"GNS_CHANGES_PENDING", Severity::kWarning,
     "The changes are recorded. Until they are in force, requests that need them fail or wait.",
     "Wait a few seconds. If it lasts, bring back the SSDs that other findings name."},
    // kSsdTrouble
    {"GNS_SSD_TROUBLE", Severity::kWarning,
     "The SSD serves. What the refused command was to change may not be in force on it, and "
     "commands that rely on that are refused.",
     "See the reason; gnstord tries again by itself. If it lasts, restart the process that serves "
     "the SSD."},
    // kNearFull
    {"GNS_NEARFULL", Severity::kWarning,
     "Writes succeed. Garbage collection makes them slower, the fuller the SSD is.",
     "Delete volumes or objects, or trim blocks that are not needed.", true},
    // kSpareLow
    {"GNS_SPARE_LOW", Severity::kWarning,
     "The SSD has taken so many erase units out of use that it soon cannot hold its capacity.",
     "Copy the volumes to another array, and replace the SSD.", true},
    // kMediaErrors
    {"GNS_MEDIA_ERRORS", Severity::kWarning,
     "Blocks on these pages are read from other replicas, and the scrub puts them again from there. Without "
     "another replica their reads fail with Unrecovered Read Error, until they are written again.",
     "Run 'gnstor scrub --start', or wait for its next pass. If errors come again and again, replace the "
     "SSD; 'gnstor ssd check' of the stopped SSD's store tells how much is damaged. The finding ends when "
     "the SSD is opened again.",
     true},
}};

std::string slot_name(const SsdInfo& ssd) {
    return ssd.serial.empty() ? fmt::format("slot {}", ssd.slot)
                              : fmt::format("slot {} ({})", ssd.slot, ssd.serial);
}

bool fills_slot(const SsdInfo& ssd) {
    return ssd.slot != kSpareSlot;
}

/// Whether reads of its chunks may come from it.
bool is_read(const SsdInfo& ssd) {
    return ssd.serves && ssd.state != "rebuilding";
}

std::uint64_t counter(const SsdInfo& ssd, std::string_view name) {
    for (const auto& [key, value] : ssd.counters)
        if (key == name) return value;
    return 0;
}

/// Collects the findings of one array in the order of their codes.
class Findings {
  public:
    explicit Findings(const ArrayInfo& info) : info_(info) {}
    std::vector<HealthFinding> take() && {
        look_at_daemon();
        // Of an array that another gnstord serves this one knows nothing any more.
        if (!info_.superseded.empty()) return std::move(found_);
        look_at_slots();
        look_at_rebuild();
        look_at_volumes();
        look_at_scrub();
        look_at_changes();
        look_at_room();
        look_at_media();
        std::ranges::sort(found_, {}, [](const HealthFinding& f) { return f.code; });
        return std::move(found_);
    }

  private:
    void add(Code code, std::string summary, std::vector<std::string> details = {}) {
        if (details.size() > kDetailsMax) {
            const std::size_t more = details.size() - kDetailsMax;
            details.resize(kDetailsMax);
            details.push_back(fmt::format("and {} more", more));
        }
        found_.push_back({&kTable[code], std::move(summary), std::move(details)});
    }
    /// One finding about all SSDs of which `line` has something to say.
    template <class Line>
    void add_ssds(Code code, std::string_view that, Line line) {
        std::vector<std::string> details;
        for (const SsdInfo& ssd : info_.ssds)
            if (std::string text = fills_slot(ssd) ? line(ssd) : std::string(); !text.empty())
                details.push_back(fmt::format("{}: {}", slot_name(ssd), text));
        if (details.empty()) return;
        const auto slots = std::ranges::count_if(info_.ssds, fills_slot);
        std::string summary = fmt::format("SSDs {}: {} of {}", that, details.size(), slots);
        add(code, std::move(summary), std::move(details));
    }
    void look_at_daemon() {
        if (!info_.superseded.empty()) return add(kSuperseded, info_.superseded);
        if (!info_.read_only.empty()) add(kReadOnly, info_.read_only);
    }
    void look_at_slots() {
        add_ssds(kSlotDown, "that do not serve", [](const SsdInfo& ssd) -> std::string {
            if (ssd.serves || ssd.state == "stale" || ssd.state == "out") return {};
            return ssd.trouble.empty() ? "it has not taken the map yet" : ssd.trouble;
        });
        add_ssds(kSlotOut, "that are out", [](const SsdInfo& ssd) -> std::string {
            if (ssd.state != "out") return {};
            return ssd.trouble.empty() ? "it answers again" : ssd.trouble;
        });
        add_ssds(kSsdTrouble, "that serve and refused a command of gnstord",
                 [](const SsdInfo& ssd) -> std::string { return ssd.serves ? ssd.trouble : std::string(); });
        add_ssds(kStaleStore, "with an older copy of their store", [](const SsdInfo& ssd) -> std::string {
            return ssd.state == "stale" ? ssd.trouble : std::string();
        });
    }
    void look_at_rebuild() {
        if (!info_.rebuild) return;
        const RebuildInfo& r = *info_.rebuild;
        std::vector<std::string> details;
        if (!r.refusal.empty()) details.push_back(fmt::format("the last refusal of an SSD: {}", r.refusal));
        const std::uint64_t percent = r.blocks_total == 0 ? 0 : r.blocks_done * 100 / r.blocks_total;
        const bool takes = std::ranges::any_of(info_.ssds, [&](const SsdInfo& ssd) {
            return ssd.slot == r.slot && ssd.state == "rebuilding" && ssd.serves;
        });
        if (!takes)
            details.insert(details.begin(), "nothing is copied while the SSD of this slot does not serve");
        add(kRebuilding, fmt::format("slot {} is being filled: {} %", r.slot, percent), std::move(details));
        if (r.ranges_stuck != 0)
            add(kRebuildStuck,
                fmt::format("ranges of blocks that cannot be copied to slot {}: {}; the last refusal: {}",
                            r.slot, r.ranges_stuck, r.refusal));
    }
    void look_at_volumes() {
        if (std::ranges::all_of(info_.ssds, [](const auto& s) { return !fills_slot(s) || is_read(s); }))
            return;
        std::vector<std::string> unreadable, degraded;
        for (const VolumeInfo& volume : info_.listed_volumes)
            (may_lack_all_replicas(info_.ssds, volume.replicas) ? unreadable : degraded)
                .push_back(fmt::format("volume '{}', {}", volume.name, counted(volume.replicas, "replica")));
        const std::size_t all = info_.listed_volumes.size();
        if (!unreadable.empty())
            add(kUnreadable,
                fmt::format("volumes that may have data of which no replica is served: {} of {}",
                            unreadable.size(), all),
                unreadable);
        if (!degraded.empty())
            add(kDegraded,
                fmt::format("volumes that may have data with fewer replicas served than asked for: {} of {}",
                            degraded.size(), all),
                degraded);
    }
    void look_at_scrub() {
        std::vector<std::string> different, unreadable;
        for (const VolumeInfo& volume : info_.listed_volumes)
            if (volume.ranges_left != 0)
                different.push_back(fmt::format(
                    "volume '{}': {} could not be made equal after its last writer ended: an SSD refused "
                    "them, for instance because it had no room",
                    volume.name, counted(volume.ranges_left, "range")));
        for (const ScrubFindings& f : info_.scrub.findings) {
            if (f.different != 0)
                different.push_back(fmt::format("volume '{}': {}, the first: {}", f.volume,
                                                counted(f.different, "block"), f.first));
            if (f.unreadable != 0)
                unreadable.push_back(
                    fmt::format("volume '{}': {}", f.volume, counted(f.unreadable, "block")));
        }
        const auto found = [&](Code code, std::string_view what, std::vector<std::string>& details) {
            if (details.empty()) return;
            std::string summary = fmt::format("volumes with blocks {}: {}", what, details.size());
            add(code, std::move(summary), std::move(details));
        };
        found(kReplicasDiffer, "whose replicas differ", different);
        found(kBlocksUnreadable, "that no replica can read", unreadable);
    }
    void look_at_changes() {
        if (!info_.map_in_force)
            add(kMapPending, fmt::format("map {} is not in force on every SSD", info_.map_version));
        if (info_.pending_changes != 0)
            add(kChangesPending, fmt::format("{} in force on every SSD",
                                             info_.pending_changes == 1
                                                 ? "1 change is not"
                                                 : fmt::format("{} changes are not", info_.pending_changes)));
    }
    void look_at_room() {
        const auto between = [](std::uint64_t from, std::uint64_t below) {
            return [from, below](const SsdInfo& ssd) -> std::string {
                if (!ssd.used_blocks || ssd.capacity_blocks == 0) return {};
                const std::uint64_t percent = *ssd.used_blocks * 100 / ssd.capacity_blocks;
                if (percent < from || percent >= below) return {};
                return fmt::format("{} % used: {} of {} blocks of 4 KiB", percent, *ssd.used_blocks,
                                   ssd.capacity_blocks);
            };
        };
        add_ssds(kFull, "that are full", between(kFullPercent, ~std::uint64_t{0}));
        add_ssds(kNearFull, "that are nearly full", between(kNearFullPercent, kFullPercent));
    }
    void look_at_media() {
        add_ssds(kSpareLow, "with little spare flash left", [](const SsdInfo& ssd) -> std::string {
            if (!ssd.spare_percent || *ssd.spare_percent >= kSpareLowPercent) return {};
            return fmt::format("{} % of the spare flash is left", *ssd.spare_percent);
        });
        static constexpr std::pair<std::string_view, std::string_view> kCounters[] = {
            {"lost_blocks", "blocks found lost"},
            {"doubtful_blocks", "blocks in doubt"},
            {"doubtful_volumes", "volumes in doubt, counted by each service unit"},
            {"media_errors", "reads that met a bad page"},
            {"scrub_bad_pages", "bad pages found by the scrub"},
        };
        add_ssds(kMediaErrors, "with media errors since opening", [](const SsdInfo& ssd) {
            std::string text;
            for (const auto& [name, what] : kCounters)
                if (const std::uint64_t n = counter(ssd, name); n != 0)
                    fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", n, what);
            return text;
        });
    }

    const ArrayInfo& info_;
    std::vector<HealthFinding> found_;
};

}  // namespace

std::span<const HealthCode> health_codes() {
    return kTable;
}

std::vector<HealthFinding> health_of(const ArrayInfo& info) {
    return Findings(info).take();
}

Severity worst_of(const std::vector<HealthFinding>& findings) {
    Severity worst = Severity::kOk;
    for (const HealthFinding& finding : findings) worst = std::max(worst, finding.code->severity);
    return worst;
}

std::string_view name_of(Severity severity) {
    static constexpr std::string_view kNames[] = {"ok", "warning", "error"};
    return kNames[static_cast<std::size_t>(severity)];
}

bool may_lack_all_replicas(const std::vector<SsdInfo>& ssds, std::uint32_t replicas) {
    std::set<std::uint32_t> domains, down_domains;
    std::size_t down = 0;
    for (const SsdInfo& ssd : ssds) {
        if (!fills_slot(ssd)) continue;
        domains.insert(ssd.domain);
        if (is_read(ssd)) continue;
        down_domains.insert(ssd.domain);
        ++down;
    }
    if (domains.size() >= replicas) return down_domains.size() >= replicas;
    return down_domains.size() == domains.size() && down >= replicas;
}

}  // namespace gnstor::daemon
