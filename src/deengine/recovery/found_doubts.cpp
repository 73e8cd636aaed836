// found_doubts.cpp: which doubts are left when the map is complete.
#include "deengine/recovery/found_doubts.hpp"

#include <algorithm>

namespace gnstor::deengine {

void FoundDoubts::note(const LogRecord& record) {
    if (record.type == LogType::kLostRecords) return doubts_.add_lost(record.volume, record.epoch);
    doubts_.add(make_key(record.volume, record.first), {record.epoch, record.sequence, record.blocks});
}

WriteOrder FoundDoubts::present_order(const ShardState& state, BlockKey key) {
    PageOob oob{};
    if (const auto entry = state.map.find(key))
        return units_.read_record(entry->page, oob) == FoundUnits::Record::kGood
                   ? units_.order_of(entry->page, oob)
                   : WriteOrder{};
    return state.tombstones.find(key).value_or(WriteOrder{});
}

void FoundDoubts::drop_settled(const ShardState& state, const std::vector<BlockKey>& lost) {
    doubts_.drop_if([&](BlockKey key, const WriteOrder& order) {
        return !input_.lives.lives(key_volume(key), order.epoch, key_block(key)) ||
               present_order(state, key) >= order || std::ranges::find(lost, key) != lost.end();
    });
}

Result<void> FoundDoubts::hand_over(ShardState& state, std::vector<BlockKey>& lost) {
    for (const auto& [volume, epoch] : doubts_.lost())
        if (input_.lives.lives(volume, epoch, 0) || !input_.lives.explains(volume, epoch))
            state.doubts.add_lost(volume, epoch);
    GN_TRY(bound(state, lost));
    doubts_.for_each([&](BlockKey key, const WriteOrder& order) {
        state.doubts.add(key, order);
        findings_.add(
            fmt::format("block {} of volume {} is in doubt: its version of sequence {} is torn or damaged; "
                        "reads ask another replica, and the older version is kept",
                        key_block(key), key_volume(key), order.sequence));
    });
    findings_.report.blocks_doubtful += state.doubts.size();
    return {};
}

/// No doubt may be forgotten, so nothing is mounted with more of them than a checkpoint has room for: nothing
/// was changed, and the older versions are all there. With accept_loss the rest become media errors.
Result<void> FoundDoubts::bound(ShardState& state, std::vector<BlockKey>& lost) {
    const std::size_t most = Doubts::capacity(input_.pages);
    if (doubts_.size() <= most) return {};
    if (!input_.options.accept_loss)
        return error(Errc::kCorrupt,
                     "shard {}: {} blocks are in doubt, because their newest versions are torn or damaged, "
                     "but there is room to record only {}; nothing was changed; read its blocks from "
                     "replicas on other drives, where there are any, or give up the other {} blocks, "
                     "including their older versions, with `gnstor ssd recover STORE --accept-loss --write`",
                     input_.range.index, doubts_.size(), most, doubts_.size() - most);
    std::size_t kept = 0;
    doubts_.drop_if([&](BlockKey key, const WriteOrder&) {
        if (++kept <= most) return false;
        (void)state.map.erase(key);
        state.tombstones.remove(key);
        lost.push_back(key);
        return true;
    });
    findings_.report.blocks_lost += kept - most;
    findings_.note_change();
    return {};
}

}  // namespace gnstor::deengine
