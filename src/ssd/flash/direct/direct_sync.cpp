// direct_sync.cpp: completion of DirectFlash's writes, and its sync: first the pages, then the records of
// those that are written, then (for power loss) the device's own cache.
#include <gnstor/base/log.hpp>

#include "ssd/flash/direct/direct_flash.hpp"

#include <cerrno>
#include <cstring>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::PageNumber;
using deengine::PageOob;
using deengine::SyncLevel;
using deengine::SyncState;

namespace {

constexpr std::chrono::seconds kDeadline{120};
constexpr std::chrono::milliseconds kLook{1000};

}  // namespace

bool DirectFlash::pump_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    for (;;) {
        pump();
        if (done()) return true;
        if (!queue_->submit()) {
            fail("the kernel takes no further requests", -EIO);
            return false;
        }
        if (std::chrono::steady_clock::now() > deadline) {
            fail("writes do not complete", -ETIMEDOUT);
            return false;
        }
        (void)queue_->wait(kLook);
    }
}

void DirectFlash::fail(const char* what, std::int64_t result) {
    if (!shared_.file->failed()) {
        log_error("the store {}: {} ({}); no write is acknowledged as stable until the store is opened again",
                  shared_.file->path().string(), what, std::strerror(static_cast<int>(-result)));
    }
    shared_.file->fail();
    if (phase_ != Phase::kIdle) phase_ = Phase::kFailed;
}

void DirectFlash::pump() {
    IoQueue::Done done{};
    while (queue_->reap(done)) handle(done);
    advance();
}

void DirectFlash::handle(const IoQueue::Done& done) {
    const auto index = static_cast<std::uint32_t>(done.token);
    switch (static_cast<Op>(done.token >> 32)) {
        case Op::kPage:
            page_ended(index, done.result);
            break;
        case Op::kLine:
            line_ended(index, done.result);
            break;
        case Op::kAhead:
            ahead_->ended(index, done.result == nvme::kBlockBytes);
            break;
        case Op::kSync:
            if (done.result < 0) {
                fail("the store cannot be synchronized", done.result);
            } else if (phase_ == Phase::kSync) {
                phase_ = Phase::kDone;
            }
            break;
    }
}

void DirectFlash::page_ended(std::uint32_t slot, std::int64_t result) {
    const PageNumber page = slots_[slot].page;
    --in_flight_[slots_[slot].generation & 1];
    if (result != nvme::kBlockBytes) {
        if (!write_all(shared_.direct.get(), slot_data(slot), nvme::kBlockBytes, page_offset(page))) {
            // The page stays staged, so that it can be read; its record is never written.
            unit_of(page).bad = true;
            fail("a page cannot be written", result < 0 ? result : -EIO);
            return;
        }
    }
    staged_.erase(page);
    free_slots_.push_back(slot);
    page_written(page);
}

void DirectFlash::queue_line(std::uint32_t index) {
    const std::uint32_t buffer = index / 2;
    queue_->write(lines_.data() + std::size_t{buffer} * kLineBytes, kLineBytes,
                  line_offset(line_buffers_[buffer].line, index % 2), token(Op::kLine, index));
}

void DirectFlash::line_ended(std::uint32_t index, std::int64_t result) {
    LineBuffer& b = line_buffers_[index / 2];
    if (result != kLineBytes && !b.tried[index % 2]) {
        b.tried[index % 2] = true;
        queue_line(index);
        if (!queue_->submit()) fail("the kernel does not accept writes of page records", -EIO);
        return;
    }
    if (result != kLineBytes) fail("page records cannot be written", result < 0 ? result : -EIO);
    if (--b.on_their_way > 0) return;
    --lines_in_flight_;
    free_lines_.push_back(index / 2);
}

/// The pages of a unit below the first one still in flight are on the medium: their records may be written.
void DirectFlash::page_written(PageNumber page) {
    Unit& u = unit_of(page);
    const PageNumber first = page - page % geometry_.pages_per_unit;
    if (page != first + u.written) return;
    while (u.written < u.next && !staged_.contains(first + u.written)) ++u.written;
}

void DirectFlash::mark_dirty(std::uint32_t line) {
    if (is_dirty_[line - first_line_]) return;
    is_dirty_[line - first_line_] = true;
    dirty_.push_back(line);
}

/// Leaves out records whose pages are still in flight: these pages were programmed after the sync that writes
/// this line began, and marked the line dirty for the next sync.
void DirectFlash::compose(std::uint32_t line, std::byte* to) const {
    const PageNumber first = line * kRecordsPerLine;
    std::memcpy(to, record_of(first), kLineBytes);
    for (std::uint32_t i = 0; i < kRecordsPerLine; ++i) {
        const std::uint32_t unit = (first + i) / geometry_.pages_per_unit;
        if (!range_.has(unit)) continue;
        const Unit& u = units_[unit - range_.first];
        const std::uint32_t offset = (first + i) % geometry_.pages_per_unit;
        if (offset < u.written || offset >= u.next) continue;
        std::memset(to + std::size_t{i} * sizeof(PageOob), 0, sizeof(PageOob));
    }
}

void DirectFlash::write_lines() {
    while (!to_write_.empty() && !free_lines_.empty()) {
        const std::uint32_t line = to_write_.back();
        to_write_.pop_back();
        const std::uint32_t buffer = free_lines_.back();
        free_lines_.pop_back();
        line_buffers_[buffer] = {line, {}, 2};
        compose(line, lines_.data() + std::size_t{buffer} * kLineBytes);
        // Both at once: either copy alone is a valid record, and both follow their page's data.
        queue_line(line_index(buffer, 0));
        queue_line(line_index(buffer, 1));
        ++lines_in_flight_;
    }
    if (!queue_->submit()) fail("the kernel does not accept writes of page records", -EIO);
}

void DirectFlash::advance() {
    if (phase_ == Phase::kPages && in_flight_[(generation_ - 1) & 1] == 0) phase_ = Phase::kLines;
    if (phase_ != Phase::kLines) return;
    write_lines();
    if (phase_ != Phase::kLines || !to_write_.empty() || lines_in_flight_ > 0) return;
    // The records are written and would outlive this process. The store syncs them before the boot record
    // names them.
    if (const JournalPage& newest = synced_journal_page_; newest.number != 0)
        shared_.file->note_journal_page(newest.page, newest.number);
    if (level_ == SyncLevel::kKill || !unsynced_) {
        phase_ = Phase::kDone;
        return;
    }
    unsynced_ = false;
    phase_ = Phase::kSync;
    queue_->sync(token(Op::kSync, 0));
    if (!queue_->submit()) fail("the store cannot be synchronized", -EIO);
}

FlashStatus DirectFlash::sync_begin(SyncLevel level) {
    if (phase_ != Phase::kIdle) return FlashStatus::kRefused;
    if (shared_.file->failed()) return FlashStatus::kProgramFailed;
    level_ = level;
    phase_ = Phase::kPages;
    began_ = std::chrono::steady_clock::now();
    ++generation_;
    synced_journal_page_ = newest_journal_page_;
    to_write_.swap(dirty_);
    for (const std::uint32_t line : to_write_) is_dirty_[line - first_line_] = false;
    unsent_ = 0;
    if (!queue_->submit()) fail("the kernel does not accept writes of pages", -EIO);
    pump();
    return FlashStatus::kOk;
}

SyncState DirectFlash::sync_poll() {
    if (phase_ == Phase::kIdle) return SyncState::kIdle;
    pump();
    // A failure of another part fails this sync too.
    if (shared_.file->failed()) phase_ = Phase::kFailed;
    if (phase_ == Phase::kDone || phase_ == Phase::kFailed) {
        const bool done = phase_ == Phase::kDone;
        phase_ = Phase::kIdle;
        to_write_.clear();
        return done ? SyncState::kDone : SyncState::kFailed;
    }
    if (std::chrono::steady_clock::now() - began_ > kDeadline)
        fail("a synchronization does not complete", -ETIMEDOUT);
    return SyncState::kBusy;
}

FlashStatus DirectFlash::sync(SyncLevel level) {
    const auto ended = [&] { return phase_ == Phase::kDone || phase_ == Phase::kFailed; };
    // A sync that is in flight ends first; sync_poll() still reports its result.
    const bool other = phase_ != Phase::kIdle;
    if (other && !pump_until(ended)) return FlashStatus::kProgramFailed;
    const Phase told = phase_;
    phase_ = Phase::kIdle;
    bool ok = sync_begin(level) == FlashStatus::kOk;
    ok = ok && pump_until(ended) && phase_ == Phase::kDone && !shared_.file->failed();
    phase_ = other ? (ok ? told : Phase::kFailed) : Phase::kIdle;
    to_write_.clear();
    return ok ? FlashStatus::kOk : FlashStatus::kProgramFailed;
}

}  // namespace gnstor::ssd
