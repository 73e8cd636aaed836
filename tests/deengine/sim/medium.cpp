// medium.cpp: NAND's rules, faults, syncs, and what a cut leaves.
#include "deengine/sim/medium.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gnstor::deengine::sim {
namespace {

const ContentsRef& zero_contents() {
    static const ContentsRef kZero = [] {
        auto c = std::make_shared<Contents>();
        std::memset(c->bytes, 0, sizeof(c->bytes));
        c->seal();
        return c;
    }();
    return kZero;
}

bool is_erased(const PageOob& oob) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(&oob);
    return std::all_of(p, p + sizeof(oob), [](std::uint8_t b) { return b == 0xFF; });
}

void make_noise(void* to, std::size_t bytes, std::uint64_t seed) {
    SplitMix64 random(seed);
    auto* out = static_cast<std::byte*>(to);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(random.next());
}

}  // namespace

bool holds_record(const MediumPage& page) {
    return page.recorded && !page.rotten_record && crc32c(&page.oob, offsetof(PageOob, crc)) == page.oob.crc;
}

bool is_whole(const MediumPage& page) {
    return holds_record(page) && page.data != nullptr && !page.rotten_data &&
           std::memcmp(page.data->crcs, page.oob.sector_crc, sizeof(page.oob.sector_crc)) == 0;
}

/// One shard's window on the medium.
class Medium::View : public Flash {
  public:
    View(Medium& m, std::uint32_t index) : m_(m), index_(index) {}
    [[nodiscard]] FlashGeometry geometry() const override { return m_.options_.geometry; }
    FlashStatus program(PageNumber page, const std::byte* data, PageOob& oob) override {
        return m_.program(index_, page, data, oob, false, nullptr);
    }
    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs) override {
        return m_.read(page, first, count, to, crcs);
    }
    FlashStatus read_oob(PageNumber page, PageOob& oob) override { return m_.read_oob(page, oob); }
    FlashStatus copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) override {
        return m_.copy_back(index_, from, to, oob, crcs);
    }
    FlashStatus erase(std::uint32_t unit) override { return m_.erase(index_, unit); }
    FlashStatus reserve(std::uint32_t unit) override { return m_.reserve(index_, unit); }
    [[nodiscard]] bool is_bad(std::uint32_t unit) const override {
        return m_.bad_[unit] != 0 && (m_.options_.remembers_bad || m_.failed_now_[unit] != 0);
    }
    [[nodiscard]] bool survives_kill() const override { return m_.options_.survives_kill; }

    FlashStatus sync_begin(SyncLevel level) override {
        Sync& s = m_.syncs_[index_];
        if (s.active) return m_.violate("a sync was begun while another is under way");
        s = {true, level, m_.operations_, 0};
        if (m_.options_.asynchronous) s.polls = static_cast<std::uint32_t>(m_.random_.below(5));
        return FlashStatus::kOk;
    }
    SyncState sync_poll() override {
        Sync& s = m_.syncs_[index_];
        if (!s.active) return SyncState::kIdle;
        if (s.polls != 0) {
            --s.polls;
            return SyncState::kBusy;
        }
        return end() ? SyncState::kDone : SyncState::kFailed;
    }
    using Flash::sync;
    FlashStatus sync(SyncLevel level) override {
        Sync& s = m_.syncs_[index_];
        if (s.active && !end()) return FlashStatus::kRefused;
        s = {true, level, m_.operations_, 0};
        return end() ? FlashStatus::kOk : FlashStatus::kRefused;
    }

  private:
    bool end() {
        Sync& s = m_.syncs_[index_];
        m_.announce(nullptr);
        s.active = false;
        m_.sync_failed_ = m_.sync_failed_ || m_.fail_syncs_;
        if (m_.sync_failed_) return false;
        ++m_.counters_.syncs;
        m_.end_sync(index_, s.before, s.level);
        return true;
    }
    Medium& m_;
    std::uint32_t index_;
};

Medium::Medium(const MediumOptions& options)
    : options_(options),
      pages_(options.geometry.pages()),
      next_(options.geometry.units, 0),
      bad_(options.geometry.units, 0),
      failed_now_(options.geometry.units, 0),
      has_room_(options.geometry.units, 0),
      syncs_(options.views) {
    for (std::uint32_t i = 0; i < options.views; ++i) views_.push_back(std::make_unique<View>(*this, i));
}
Medium::~Medium() = default;

Flash& Medium::view(std::uint32_t index) {
    return *views_[index];
}
std::vector<Flash*> Medium::views() {
    std::vector<Flash*> all;
    for (const auto& v : views_) all.push_back(v.get());
    return all;
}

FlashStatus Medium::violate(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
    return FlashStatus::kRefused;
}

void Medium::announce(const Operation* op) {
    pending_ = op;
    if (on_operation) on_operation(*this);
    pending_ = nullptr;
}

void Medium::remember(Operation&& op) {
    const bool uncertain = options_.power_cuts || !op.survives_kill;
    if (uncertain) log_.push_back(std::move(op));
}

/// A medium that is worn out may be refused; one with some bad units may not.
bool Medium::may_fail(std::uint32_t view) const {
    const auto first = bad_.begin() + first_unit(view);
    const auto end = bad_.begin() + first_unit(view + 1);
    return std::count(first, end, 1) < std::max<std::ptrdiff_t>(1, (end - first) / 10);
}

FlashStatus Medium::program(std::uint32_t view, PageNumber page, const std::byte* data, PageOob& oob,
                            bool keep_crcs, const ContentsRef& copied) {
    const std::uint32_t per_unit = options_.geometry.pages_per_unit;
    const std::uint32_t unit = page / per_unit;
    if (unit >= options_.geometry.units || !owns(view, unit))
        return violate(fmt::format("page {} was programmed, which is not this shard's", page));
    if (failed_now_[unit] != 0) return violate(fmt::format("unit {} was programmed after it failed", unit));
    if (page % per_unit != next_[unit])
        return violate(fmt::format("page {} was programmed, next of its unit is {}", page,
                                   unit * per_unit + next_[unit]));
    if (const FlashStatus room = reserve(view, unit); room != FlashStatus::kOk) return room;
    Operation op{
        Operation::Kind::kProgram, page, view, options_.survives_kill, operations_, {pages_[page]}, {}};
    if (copied != nullptr) {
        op.after.data = copied;
    } else if (data != nullptr) {
        auto contents = std::make_shared<Contents>();
        std::memcpy(contents->bytes, data, nvme::kBlockBytes);
        contents->seal();
        op.after.data = std::move(contents);
    }
    if (!keep_crcs) {
        std::memset(oob.sector_crc, 0, sizeof(oob.sector_crc));
        if (op.after.data) std::memcpy(oob.sector_crc, op.after.data->crcs, sizeof(oob.sector_crc));
    }
    oob.crc = crc32c(&oob, offsetof(PageOob, crc));
    op.after.oob = oob;
    op.after.recorded = true;
    announce(&op);
    ++operations_;
    if (bad_[unit] != 0 || (may_fail(view) && chance(options_.program_fails))) return fail_program(op);
    ++counters_.programs;
    pages_[page] = op.after;
    next_[unit] = page % per_unit + 1;
    remember(std::move(op));
    return FlashStatus::kOk;
}

FlashStatus Medium::reserve(std::uint32_t view, std::uint32_t unit) {
    if (unit >= options_.geometry.units || !owns(view, unit))
        return violate(fmt::format("room was taken for unit {}, which is not this shard's", unit));
    if (has_room_[unit] == 0 && disk_is_full_) {
        ++counters_.without_room;
        return FlashStatus::kNoRoom;
    }
    has_room_[unit] = 1;
    return FlashStatus::kOk;
}

/// A failed program leaves anything, even a page that looks whole.
FlashStatus Medium::fail_program(Operation& op) {
    const std::uint32_t unit = op.where / options_.geometry.pages_per_unit;
    ++counters_.programs_failed;
    bad_[unit] = failed_now_[unit] = 1;
    switch (random_.below(4)) {
        case 0:
            op.after.oob.crc ^= 1;
            break;
        case 1:
            // After a kill it must be known that it failed (Flash::survives_kill).
            if (options_.survives_kill && !options_.power_cuts && !options_.remembers_bad)
                op.after = MediumPage{};
            else
                op.after.rotten_data = true;
            break;
        case 2:
            op.after = MediumPage{};
            break;
        default:
            break;
    }
    pages_[op.where] = op.after;
    if (op.after.recorded) next_[unit] = op.where % options_.geometry.pages_per_unit + 1;
    remember(std::move(op));
    return FlashStatus::kProgramFailed;
}

FlashStatus Medium::read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                         std::uint32_t* crcs) {
    ++counters_.reads;
    if (page >= pages_.size() || first + count > nvme::kSectorsPerBlock)
        return violate(fmt::format("page {} was read, sectors {} + {}", page, first, count));
    const MediumPage& p = pages_[page];
    if (p.lost) return FlashStatus::kUncorrectable;
    if (!p.recorded) return violate(fmt::format("page {} was read unprogrammed", page));
    if (p.rotten_data) return FlashStatus::kUncorrectable;
    const Contents& c = p.data ? *p.data : *zero_contents();
    std::memcpy(to, c.bytes + std::size_t{first} * nvme::kSectorBytes,
                std::size_t{count} * nvme::kSectorBytes);
    std::memcpy(crcs, c.crcs + first, count * sizeof(crcs[0]));
    if (!p.weak && !chance(options_.corrections)) return FlashStatus::kOk;
    ++counters_.corrected;
    return FlashStatus::kCorrected;
}

FlashStatus Medium::read_oob(PageNumber page, PageOob& oob) {
    if (page >= pages_.size()) return violate(fmt::format("the record of page {} was read", page));
    const MediumPage& p = pages_[page];
    if (!p.recorded) {
        std::memset(&oob, 0xFF, sizeof(oob));
        return FlashStatus::kOk;
    }
    oob = p.oob;
    if (p.rotten_record) {
        make_noise(&oob, sizeof(oob), page + 1);
        return FlashStatus::kUncorrectable;
    }
    return crc32c(&oob, offsetof(PageOob, crc)) == oob.crc ? FlashStatus::kOk : FlashStatus::kUncorrectable;
}

FlashStatus Medium::copy_back(std::uint32_t view, PageNumber from, PageNumber to, PageOob& oob,
                              std::uint32_t* crcs) {
    if (from < pages_.size() && pages_[from].lost) return FlashStatus::kUncorrectable;
    if (from >= pages_.size() || !pages_[from].recorded)
        return violate(fmt::format("page {} was copied unprogrammed", from));
    if (pages_[from].rotten_data) return FlashStatus::kUncorrectable;
    const ContentsRef contents = pages_[from].data ? pages_[from].data : zero_contents();
    std::memcpy(crcs, contents->crcs, sizeof(contents->crcs));
    return program(view, to, nullptr, oob, true, contents);
}

FlashStatus Medium::erase(std::uint32_t view, std::uint32_t unit) {
    if (unit >= options_.geometry.units || !owns(view, unit))
        return violate(fmt::format("unit {} was erased, which is not this shard's", unit));
    if (failed_now_[unit] != 0) return violate(fmt::format("unit {} was erased after it failed", unit));
    const auto begin = pages_.begin() + std::ptrdiff_t{unit} * options_.geometry.pages_per_unit;
    Operation op{Operation::Kind::kErase,
                 unit,
                 view,
                 options_.survives_kill,
                 operations_,
                 {begin, begin + options_.geometry.pages_per_unit},
                 {}};
    announce(&op);
    ++operations_;
    if (bad_[unit] != 0 || (may_fail(view) && chance(options_.erase_fails))) {
        ++counters_.erases_failed;
        bad_[unit] = failed_now_[unit] = 1;
        return FlashStatus::kProgramFailed;
    }
    ++counters_.erases;
    std::fill(begin, begin + options_.geometry.pages_per_unit, MediumPage{});
    next_[unit] = 0;
    remember(std::move(op));
    return FlashStatus::kOk;
}

void Medium::end_sync(std::uint32_t view, std::uint64_t before, SyncLevel level) {
    const auto covered = [&](const Operation& op) { return op.view == view && op.number < before; };
    if (level == SyncLevel::kPower || !options_.power_cuts) {
        std::erase_if(log_, covered);
        return;
    }
    for (Operation& op : log_)
        if (covered(op)) op.survives_kill = true;
}

std::size_t Medium::uncertain(CutMode mode) const {
    const auto taken = [&](const Operation& op) { return mode == CutMode::kPower || !op.survives_kill; };
    return static_cast<std::size_t>(std::ranges::count_if(log_, taken)) + (pending_ != nullptr ? 1 : 0);
}

std::vector<bool> Medium::uncertain_pages(CutMode mode) const {
    std::vector<bool> pages(pages_.size(), false);
    for (const Operation& op : log_)
        if (op.kind == Operation::Kind::kProgram && (mode == CutMode::kPower || !op.survives_kill))
            pages[op.where] = true;
    return pages;
}

std::unique_ptr<Medium> Medium::image(CutMode mode, const Fates& fates) const {
    auto out = std::make_unique<Medium>(options_);
    out->pages_ = pages_;
    out->bad_ = bad_;
    out->has_room_ = has_room_;
    out->disk_is_full_ = disk_is_full_;
    for (auto op = log_.rbegin(); op != log_.rend(); ++op) {
        const std::size_t first = op->kind == Operation::Kind::kProgram
                                      ? op->where
                                      : std::size_t{op->where} * options_.geometry.pages_per_unit;
        std::ranges::copy(op->before, out->pages_.begin() + static_cast<std::ptrdiff_t>(first));
    }
    const std::size_t count = uncertain(mode);
    std::size_t index = 0;
    std::vector<char> held(options_.geometry.units, 0);  // units whose erase was not whole
    const auto happen = [&](const Operation& op, Fate fate) {
        const bool erase = op.kind == Operation::Kind::kErase;
        const std::uint32_t unit = erase ? op.where : op.where / options_.geometry.pages_per_unit;
        if (held[unit] != 0 && !options_.erase_reorders) fate = Fate::absent();
        if (erase) held[unit] = fate.kind == Fate::Kind::kWhole ? 0 : 1;
        out->apply(op, fate);
    };
    for (const Operation& op : log_) {
        const bool taken = mode == CutMode::kPower || !op.survives_kill;
        happen(op, taken ? fates(index, count, op, false) : Fate::whole());
        index += taken ? 1 : 0;
    }
    if (pending_ != nullptr) happen(*pending_, fates(index, count, *pending_, true));
    out->settle_units();
    return out;
}

std::unique_ptr<Medium> Medium::killed(const Fate& pending) const {
    auto out = std::make_unique<Medium>(options_);
    out->pages_ = pages_;
    out->bad_ = bad_;
    out->has_room_ = has_room_;
    out->disk_is_full_ = disk_is_full_;
    out->log_ = log_;
    out->operations_ = operations_;
    if (pending_ != nullptr) {
        Operation op = *pending_;
        out->apply(op, pending);
        op.number = out->operations_++;
        if (op.kind == Operation::Kind::kProgram) op.after = out->pages_[op.where];
        // An erase that a kill interrupts leaves what it leaves: it is not taken back.
        if (op.kind == Operation::Kind::kProgram && pending.kind != Fate::Kind::kAbsent)
            out->log_.push_back(std::move(op));
    }
    out->settle_units();
    return out;
}

/// Rot that happened to a page after it was programmed stays: `after` is what the program left.
void Medium::apply(const Operation& op, Fate fate) {
    if (fate.kind == Fate::Kind::kAbsent) {
        ++counters_.lost;
        return;
    }
    if (fate.kind == Fate::Kind::kTorn) ++counters_.torn;
    if (op.kind == Operation::Kind::kProgram) {
        if (fate.kind == Fate::Kind::kWhole) {
            pages_[op.where] = op.after;
        } else {
            tear_program(op, fate);
        }
        return;
    }
    if (fate.kind == Fate::Kind::kTorn && !options_.power_cuts) return tear_erase(op.where, fate);
    SplitMix64 random(fate.noise);
    for (std::uint32_t i = 0; i < options_.geometry.pages_per_unit; ++i) {
        MediumPage& p = pages_[std::size_t{op.where} * options_.geometry.pages_per_unit + i];
        // Torn: without noise in order, so many pages; with noise any of them, some left as garbage.
        if (fate.kind == Fate::Kind::kTorn && fate.noise == 0 && i >= fate.data_bytes) continue;
        const std::uint64_t dice = fate.kind == Fate::Kind::kTorn && fate.noise != 0 ? random.below(3) : 0;
        if (dice == 0) p = MediumPage{};
        if (dice == 1 && p.recorded) make_noise(&p.oob, sizeof(p.oob), fate.noise + i);
    }
}

/// By a kill: records are cleared from the last to the first, and of one page by half.
void Medium::tear_erase(std::uint32_t unit, Fate fate) {
    const std::uint32_t pages = options_.geometry.pages_per_unit;
    const std::uint32_t cut = pages - 1 - fate.data_bytes % pages;
    const std::size_t first = std::size_t{unit} * pages;
    for (std::uint32_t i = cut + 1; i < pages; ++i) pages_[first + i] = MediumPage{};
    MediumPage& p = pages_[first + cut];
    if (!p.recorded) return;
    std::memset(&p.oob, 0xFF, fate.record_bytes);
    if (is_erased(p.oob)) p = MediumPage{};
}

void Medium::tear_program(const Operation& op, Fate fate) {
    MediumPage& p = pages_[op.where];
    const ContentsRef& old_data = p.data ? p.data : zero_contents();
    if (op.after.data && (fate.data_bytes != 0 || fate.noise != 0)) {
        if (fate.data_bytes >= nvme::kBlockBytes) {
            p.data = op.after.data;
        } else {
            auto mixed = std::make_shared<Contents>(*old_data);
            std::memcpy(mixed->bytes, op.after.data->bytes, fate.data_bytes);
            if (fate.noise != 0)
                make_noise(mixed->bytes + fate.data_bytes, nvme::kBlockBytes - fate.data_bytes, fate.noise);
            mixed->seal();
            p.data = std::move(mixed);
        }
    }
    if (!p.recorded) std::memset(&p.oob, 0xFF, sizeof(p.oob));
    auto* record = reinterpret_cast<std::byte*>(&p.oob);
    std::memcpy(record, &op.after.oob, fate.record_bytes);
    if (fate.noise != 0 && fate.record_bytes != 0)
        make_noise(record + fate.record_bytes, sizeof(PageOob) - fate.record_bytes, fate.noise);
    p.rotten_data = p.rotten_record = p.weak = false;
    p.recorded = !is_erased(p.oob);
    p.lost = p.lost && !p.recorded;
}

void Medium::settle_units() {
    for (std::uint32_t unit = 0; unit < options_.geometry.units; ++unit) {
        next_[unit] = 0;
        for (std::uint32_t i = 0; i < options_.geometry.pages_per_unit; ++i)
            if (pages_[std::size_t{unit} * options_.geometry.pages_per_unit + i].recorded)
                next_[unit] = i + 1;
    }
}

void Medium::flip_byte(PageNumber page, std::uint32_t byte) {
    MediumPage& p = pages_[page];
    auto changed = std::make_shared<Contents>(p.data ? *p.data : *zero_contents());
    changed->bytes[byte % nvme::kBlockBytes] ^= std::byte{0x10};
    changed->seal();
    p.data = std::move(changed);
}

std::vector<std::string> Medium::dump() const {
    std::vector<std::string> lines;
    for (PageNumber p = 0; p < pages_.size(); ++p) {
        const MediumPage& page = pages_[p];
        if (!page.recorded) continue;
        const PageOob& o = page.oob;
        const bool good = !page.rotten_record && crc32c(&o, offsetof(PageOob, crc)) == o.crc;
        const bool data =
            page.data != nullptr && std::memcmp(page.data->crcs, o.sector_crc, sizeof(o.sector_crc)) == 0;
        lines.push_back(
            fmt::format("  unit {:3} page {:5}{}{} kind {} block {}:{} order ({}, {}) serial {} group {}",
                        p / options_.geometry.pages_per_unit, p, good ? "" : " BAD RECORD",
                        data && !page.rotten_data ? "" : " BAD DATA", static_cast<int>(o.kind), o.vid, o.vba,
                        o.epoch, o.sequence, o.unit_serial, o.group));
    }
    return lines;
}

}  // namespace gnstor::deengine::sim
