// manager_scrub.cpp: lets the scrub work while nothing more urgent is copied. docs/array.md, rule 13.
#include "daemon/decisions/manager.hpp"

#include <gnstor/base/log.hpp>

namespace gnstor::daemon {

Result<void> Manager::start_scrub(std::uint64_t now_ms) {
    observe_time(now_ms);
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    scrub_.start(records_.volumes, now_ms);
    return {};
}

/// Its newest record is in force on every SSD, and no comparison is under way that removes blocks (scrub.hpp).
bool Manager::may_scrub(const nvme::VolumeRecord& record) const {
    const auto live = live_.find(record.geometry.volume);
    return (record.flags & nvme::kVolumeDeleting) == 0 &&
           !records_.creating.contains(record.geometry.volume) && live != live_.end() &&
           live->second.in_force && behind_in(record.geometry.volume) == nullptr &&
           (record.writer != 0 || is_equal(record));
}

bool Manager::scrub_some(std::uint32_t commands) {
    if (!superseded_.empty() || unsure_ || told_ != records_.map.version) return false;
    SsdCopyPort port = copy_port();
    const std::uint64_t before = scrub_.passes();
    const bool more = scrub_.work(
        commands, records_.map, records_.volumes,
        [this](const nvme::VolumeRecord& record) { return may_scrub(record); }, port);
    if (scrub_.passes() != before) tell_of_scrub();
    return more;
}

void Manager::tell_of_scrub() const {
    const ScrubPassInfo pass = scrub_.info(records_.volumes, now_ms_).pass;
    if (pass.mended != 0)
        log_warn("the scrub has put {} blocks again on SSDs that could not read them", pass.mended);
    if (pass.unreadable + pass.different != 0)
        log_error(
            "the scrub found {} blocks that no replica can read, and {} whose replicas differ; 'gnstor "
            "scrub' "
            "names the volumes",
            pass.unreadable, pass.different);
}

}  // namespace gnstor::daemon
