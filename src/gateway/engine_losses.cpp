// engine_losses.cpp: of CommandEngine: what a flush may say, and the record that a successor goes by.
#include "gateway/command_engine.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <utility>

namespace gnstor::gateway {

using nvme::Status;

namespace {

constexpr std::uint32_t kRestLooks = 10;  // of the tender, 100 ms apart, before a record is put right

}  // namespace

/// The map may be another one since the last look, without SSDs that hold what was answered.
void CommandEngine::see_map() {
    if (!watch_.look_at(*volume_.operation().map, changing_ != 0)) return;
    log_error(
        "gateway of volume {}: SSDs with all replicas of writes that were answered and not flushed were "
        "lost: "
        "flushes fail from now on. Unmount it on its hosts, start the gateway again and check the file "
        "system",
        options_.volume);
}

/// Whether a change is under way that began under an earlier map than the one in use.
bool CommandEngine::has_old_changes() const {
    return changing_ != 0 && std::ranges::any_of(under_way_, [this](const auto& work) {
               return work->begun && VolumeRef::changes(work->command.opcode) &&
                      work->map_version != watch_.version();
           });
}

/// Of a flush that every SSD of the map has answered well.
Status CommandEngine::judge_flush(const Work& work) {
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

bool CommandEngine::record_covers() const {
    return !options_.record_wanted || (stable_ && stable_->dirty && stable_->map.version == watch_.version());
}

/// A change that is done: a successor of this gateway must know of it before its host does.
bool CommandEngine::wait_for_record(Work& work, std::uint64_t now_ns) {
    if (!VolumeRef::changes(work.command.opcode) || !nvme::ok(work.request.result())) return false;
    see_map();
    if (record_covers() || record_fails_ || now_ns >= work.deadline_ns) return false;
    if (!std::exchange(record_wanted_, true)) options_.record_wanted();
    return true;
}

std::optional<LossRecord> CommandEngine::record_to_write() {
    if (!options_.record_wanted || stopped_) return std::nullopt;
    const bool changing = changing_ != 0;
    LossRecord now = watch_.record(changing);
    now.volume = options_.uuid;
    settled_looks_ = now.dirty ? 0 : settled_looks_ + 1;
    // A record that says too much is put right when that is so for a while: each costs a sync of the next
    // one.
    const bool news = !stable_ || now.lost != stable_->lost || now.told != stable_->told;
    const bool at_rest = settled_looks_ >= kRestLooks && (!stable_ || !same(now, *stable_));
    if (!record_wanted_ && !at_rest && !(news && (now.lost || stable_))) return std::nullopt;
    if (record_wanted_) now.dirty = true;
    stable_.reset();  // until it is known which of them the medium holds
    return now;
}

void CommandEngine::record_written(const LossRecord& record, bool stable) {
    record_fails_ = !stable;
    if (!stable) return;
    ++counters_.record_writes;
    stable_ = record;
    // Else what waits asks again.
    record_wanted_ = false;
}

}  // namespace gnstor::gateway
