// executor_losses.cpp: the part of CommandExecutor that decides what a flush may report, and keeps the record
// for a successor.
#include "gateway/command_executor.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <utility>

namespace gnstor::gateway {

using nvme::Status;

namespace {

constexpr std::uint32_t kRestLooks = 10;  // calls, 100 ms apart, before an outdated record is corrected

}  // namespace

/// Checks whether the map has changed, and lost SSDs that held answered writes.
void CommandExecutor::see_map() {
    if (!watch_.look_at(*volume_.operation().map, changing_ != 0)) return;
    log_error(
        "gateway of volume {}: SSDs that held all replicas of acknowledged, unflushed writes were lost: "
        "flushes fail from now on. Unmount it on its hosts, start the gateway again and check the file "
        "system",
        options_.volume);
}

/// Whether a change is in flight that began under an earlier map than the one in use.
bool CommandExecutor::has_old_changes() const {
    return changing_ != 0 && std::ranges::any_of(under_way_, [this](const auto& work) {
               return work->begun && VolumeRef::changes(work->command.opcode) &&
                      work->map_version != watch_.version();
           });
}

/// The status of a flush that every SSD of the map has answered with success.
Status CommandExecutor::judge_flush(const Work& work) {
    see_map();
    if (watch_.lost()) {
        if (work.queue != nullptr) watch_.tell(has_old_changes());
        return Status::kInternalError;
    }
    watch_.flush_ended(work.mark, has_old_changes());
    if (!watch_.inherited_loss()) return Status::kSuccess;
    if (work.queue == nullptr) return heard_.empty() ? Status::kInternalError : Status::kSuccess;
    if (!heard_.insert(work.queue->controller).second) return Status::kSuccess;
    watch_.tell(false);
    return Status::kInternalError;
}

bool CommandExecutor::record_covers() const {
    return !options_.record_wanted || (stable_ && stable_->dirty && stable_->map.version == watch_.version());
}

/// Whether a completed change must wait: a record of it must be stable before its host gets the answer.
bool CommandExecutor::wait_for_record(Work& work, std::uint64_t now_ns) {
    if (!VolumeRef::changes(work.command.opcode) || !nvme::ok(work.request.result())) return false;
    see_map();
    if (record_covers() || record_fails_ || now_ns >= work.deadline_ns) return false;
    if (!std::exchange(record_wanted_, true)) options_.record_wanted();
    return true;
}

std::optional<LossRecord> CommandExecutor::record_to_write() {
    if (!options_.record_wanted || stopped_) return std::nullopt;
    const bool changing = changing_ != 0;
    LossRecord now = watch_.record(changing);
    now.volume = options_.uuid;
    settled_looks_ = now.dirty ? 0 : settled_looks_ + 1;
    // A record that overstates is corrected only after an idle time, because the next change then needs
    // another sync.
    const bool news = !stable_ || now.lost != stable_->lost || now.told != stable_->told;
    const bool at_rest = settled_looks_ >= kRestLooks && (!stable_ || !same(now, *stable_));
    if (!record_wanted_ && !at_rest && !(news && (now.lost || stable_))) return std::nullopt;
    if (record_wanted_) now.dirty = true;
    stable_.reset();  // unknown until the write's outcome is known
    return now;
}

void CommandExecutor::record_written(const LossRecord& record, bool stable) {
    record_fails_ = !stable;
    if (!stable) return;
    ++counters_.record_writes;
    stable_ = record;
    // Changes that still wait set it again.
    record_wanted_ = false;
}

}  // namespace gnstor::gateway
