// medium.hpp: a flash in memory that is made for cutting its power. It obeys NAND's rules and says who broke
// them.
//
// State is what a reader sees now; beside it lies a log of what a cut may still take: every program and erase
// that no completed sync has made certain, each with what was there before. image() makes the medium that the
// next boot finds: every uncertain operation gets a fate (absent, whole, torn), in any combination, because a
// write cache reorders. In kill mode everything that was programmed is there (unless the medium says that it
// does not survive a kill), and only the operation under way is torn, in order: data first, then its record.
// Pages share their bytes, so that an image costs no copy of data.
// A medium has one Flash view a shard, each with units and a sync state of its own. Deterministic; one
// thread.
#pragma once

#include "deengine/flash.hpp"
#include "deengine/sim/contents.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::deengine::sim {

enum class CutMode : std::uint8_t { kKill, kPower };

struct MediumPage {
    ContentsRef data;       ///< null: as erased
    PageOob oob{};          ///< raw bytes, torn ones too; counts only if `recorded`
    bool recorded = false;  ///< its record differs from an erased one
    bool rotten_data = false;
    bool rotten_record = false;
    bool lost = false;  ///< its record was there: whoever reads the page was not wrong to
    bool weak = false;  ///< reads well, but needs correction
};

/// Its record is good.
[[nodiscard]] bool holds_record(const MediumPage& page);
/// Its record is good, and its contents are those that the record tells.
[[nodiscard]] bool is_whole(const MediumPage& page);

/// What becomes of an uncertain operation at a cut. A torn program leaves the first `data_bytes` and
/// `record_bytes`; behind them is what was there before, or noise. A torn erase leaves a subset of pages.
struct Fate {
    enum class Kind : std::uint8_t { kAbsent, kWhole, kTorn } kind = Kind::kAbsent;
    std::uint32_t data_bytes = 0;
    std::uint32_t record_bytes = 0;
    std::uint64_t noise = 0;  ///< 0: no garbage
    static Fate absent() { return {}; }
    static Fate whole() { return {Kind::kWhole}; }
    static Fate torn(std::uint32_t data, std::uint32_t record, std::uint64_t noise = 0) {
        return {Kind::kTorn, data, record, noise};
    }
};

struct Operation {
    enum class Kind : std::uint8_t { kProgram, kErase } kind;
    std::uint32_t where;  ///< page or unit
    std::uint32_t view;
    bool survives_kill;              ///< the uncertainty left is that of a power cut
    std::uint64_t number;            ///< counts operations of this medium
    std::vector<MediumPage> before;  ///< one page, or the unit's
    MediumPage after;                ///< programs
};

struct MediumOptions {
    FlashGeometry geometry{16, 8};
    std::uint32_t views = 1;
    bool survives_kill = true;   ///< programs need no sync to survive a kill
    bool power_cuts = false;     ///< images of power cuts will be asked for
    bool remembers_bad = true;   ///< is_bad() tells a later boot of units that failed
    bool erase_reorders = true;  ///< a program may last where the erase before it does not (files)
    bool asynchronous = false;   ///< syncs end some polls after they began
    // Faults, in a million operations.
    std::uint32_t program_fails = 0;
    std::uint32_t erase_fails = 0;
    std::uint32_t corrections = 0;
};

struct MediumCounters {
    std::uint64_t programs = 0, erases = 0, syncs = 0, programs_failed = 0, erases_failed = 0, reads = 0,
                  corrected = 0, torn = 0, lost = 0, without_room = 0;
};

class Medium {
  public:
    explicit Medium(const MediumOptions& options);
    Medium(const Medium&) = delete;
    Medium& operator=(const Medium&) = delete;
    ~Medium();

    [[nodiscard]] Flash& view(std::uint32_t index);
    [[nodiscard]] std::vector<Flash*> views();
    [[nodiscard]] const MediumOptions& options() const { return options_; }
    MediumOptions& options() { return options_; }

    /// Called before each program, erase and end of a sync; what is about to happen is pending() (null at the
    /// end of a sync).
    std::function<void(Medium&)> on_operation;
    [[nodiscard]] const Operation* pending() const { return pending_; }

    /// The fate of operation `index` of `count`; the pending one is the last, if there is one.
    using Fates =
        std::function<Fate(std::size_t index, std::size_t count, const Operation& op, bool pending)>;
    [[nodiscard]] std::unique_ptr<Medium> image(CutMode mode, const Fates& fates) const;
    /// What a kill leaves of a medium that survives one: all of it but the end of the operation under way,
    /// and what was uncertain is still so: a cut of power may take it yet.
    [[nodiscard]] std::unique_ptr<Medium> killed(const Fate& pending) const;
    /// Operations that a cut of this mode may take or tear, the pending one included.
    [[nodiscard]] std::size_t uncertain(CutMode mode) const;
    /// By page: a cut of this mode may take or tear what was programmed there.
    [[nodiscard]] std::vector<bool> uncertain_pages(CutMode mode) const;

    /// Faults by place.
    void rot_data(PageNumber page) { pages_[page].rotten_data = true; }
    void rot_record(PageNumber page) { pages_[page].rotten_record = true; }
    /// Nothing of its record is left: it looks like a page that was never programmed.
    void lose_record(PageNumber page) {
        pages_[page] = MediumPage{};
        pages_[page].lost = true;
        settle_units();
    }
    void flip_byte(PageNumber page, std::uint32_t byte);
    void fail_syncs(bool on) { fail_syncs_ = on; }
    /// On: what lies below has room for the units that had some, and for no other.
    void fill_disk(bool on) { disk_is_full_ = on; }
    [[nodiscard]] bool disk_is_full() const { return disk_is_full_; }
    void reseed(std::uint64_t seed) { random_ = SplitMix64(seed); }

    [[nodiscard]] const MediumPage& page(PageNumber page) const { return pages_[page]; }
    /// A line for each page with a record, for people.
    [[nodiscard]] std::vector<std::string> dump() const;
    [[nodiscard]] std::uint32_t programmed(std::uint32_t unit) const { return next_[unit]; }
    [[nodiscard]] bool is_bad(std::uint32_t unit) const { return bad_[unit]; }
    [[nodiscard]] const MediumCounters& counters() const { return counters_; }
    /// What NAND or the contract forbids and was done; empty: nothing.
    [[nodiscard]] const std::string& violation() const { return violation_; }

  private:
    class View;
    struct Sync {
        bool active = false;
        SyncLevel level = SyncLevel::kPower;
        std::uint64_t before = 0;  ///< operations below this number are covered
        std::uint32_t polls = 0;   ///< until it ends
    };

    FlashStatus program(std::uint32_t view, PageNumber page, const std::byte* data, PageOob& oob,
                        bool keep_crcs, const ContentsRef& copied);
    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs);
    FlashStatus read_oob(PageNumber page, PageOob& oob);
    FlashStatus copy_back(std::uint32_t view, PageNumber from, PageNumber to, PageOob& oob,
                          std::uint32_t* crcs);
    FlashStatus erase(std::uint32_t view, std::uint32_t unit);
    FlashStatus fail_program(Operation& op);
    FlashStatus reserve(std::uint32_t view, std::uint32_t unit);
    void end_sync(std::uint32_t view, std::uint64_t before, SyncLevel level);
    void remember(Operation&& op);
    void announce(const Operation* op);
    FlashStatus violate(std::string what);
    bool chance(std::uint32_t per_million) {
        return per_million != 0 && random_.below(1'000'000) < per_million;
    }
    [[nodiscard]] bool may_fail(std::uint32_t view) const;
    [[nodiscard]] std::uint32_t first_unit(std::uint32_t view) const {
        return static_cast<std::uint32_t>(std::uint64_t{view} * options_.geometry.units / options_.views);
    }
    [[nodiscard]] bool owns(std::uint32_t view, std::uint32_t unit) const {
        return unit >= first_unit(view) && unit < first_unit(view + 1);
    }
    void apply(const Operation& op, Fate fate);
    void tear_program(const Operation& op, Fate fate);
    void tear_erase(std::uint32_t unit, Fate fate);
    void settle_units();

    MediumOptions options_;
    std::vector<MediumPage> pages_;
    std::vector<std::uint32_t> next_;  ///< by unit: behind the last page with a record
    std::vector<char> bad_;            ///< a program or an erase failed, for good
    std::vector<char> failed_now_;     ///< and this boot was told
    std::vector<char> has_room_;       ///< by unit: what lies below keeps room for it, in cuts too
    bool disk_is_full_ = false;
    std::vector<Operation> log_;
    std::vector<Sync> syncs_;
    std::vector<std::unique_ptr<View>> views_;
    const Operation* pending_ = nullptr;
    std::uint64_t operations_ = 0;
    bool fail_syncs_ = false;
    bool sync_failed_ = false;
    SplitMix64 random_{1};
    MediumCounters counters_;
    std::string violation_;
};

}  // namespace gnstor::deengine::sim
