#include "daemon/decisions/events.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace gnstor::daemon {
namespace {

std::string ssd_name(const SsdInfo& ssd) {
    return ssd.serial.empty() ? "its SSD" : "SSD " + ssd.serial;
}

/// Null: the slot had no SSD, missing ones included.
const SsdInfo* ssd_of(const ArrayInfo& info, std::uint32_t slot) {
    const auto found = std::ranges::find(info.ssds, slot, &SsdInfo::slot);
    return found == info.ssds.end() ? nullptr : &*found;
}

/// A VID is used again after a deletion, so the name belongs to what tells volumes apart.
bool comes_before(const VolumeInfo& a, const VolumeInfo& b) {
    return std::tie(a.id, a.name) < std::tie(b.id, b.name);
}

}  // namespace

void EventRing::add(Event event) {
    event.number = ++last_;
    events_.push_back(std::move(event));
    if (events_.size() > kEventsMax) events_.pop_front();
}

EventPage EventRing::since(std::uint64_t number) const {
    EventPage page;
    page.last = last_;
    page.first = events_.empty() ? 0 : events_.front().number;
    if (number > last_) number = 0;
    std::ranges::copy_if(events_, std::back_inserter(page.events),
                         [number](const Event& event) { return event.number > number; });
    return page;
}

EventPage EventRecorder::since(std::uint64_t number) const {
    EventPage page = ring_.since(number);
    page.started_ms = started_ms_;
    return page;
}

void EventRecorder::add(std::string_view code, Event event) {
    event.code = code;
    event.time_ms = time_ms_;
    ring_.add(std::move(event));
}

void EventRecorder::observe(const ArrayInfo& info, Observed after, bool readings, std::uint64_t time_ms) {
    time_ms_ = time_ms;
    if (before_) {
        compare_volumes(info);
        compare_leases(info, after);
        compare_clients(info);
        compare_scrub(info);
    } else {
        start(info);
    }
    compare_ssds(info);
    compare_health(info, readings);
    before_ = info;
}

void EventRecorder::start(const ArrayInfo& info) {
    started_ms_ = time_ms_;
    const auto slots =
        std::ranges::count_if(info.ssds, [](const SsdInfo& ssd) { return ssd.slot != kSpareSlot; });
    add(event::kDaemonStarted, {.text = fmt::format("gnstord started: term {}, map {}, {} slots, {} volumes",
                                                    info.term, info.map_version, slots, info.volumes)});
}

void EventRecorder::compare_ssds(const ArrayInfo& info) {
    for (const SsdInfo& ssd : info.ssds)
        if (ssd.slot != kSpareSlot) compare_ssd(before_ ? ssd_of(*before_, ssd.slot) : nullptr, ssd);
}

/// At the start, an SSD that does not serve is news, and so is one that is out.
void EventRecorder::compare_ssd(const SsdInfo* before, const SsdInfo& ssd) {
    const auto tell = [&](std::string_view code, std::string what) {
        add(code, {.slot = ssd.slot, .text = fmt::format("slot {}: {}", ssd.slot, what)});
    };
    const std::string state = before == nullptr ? "in" : before->state;
    if (before != nullptr && before->uuid != ssd.uuid) {
        silent_.erase(ssd.slot);
        return tell(event::kSsdReplaced,
                    fmt::format("SSD {} takes the place of {}, and is filled from the other replicas",
                                ssd.serial, before->serial.empty() ? "a lost one" : "SSD " + before->serial));
    }
    if (state == "out" && ssd.state != "out") {
        silent_.erase(ssd.slot);
        return tell(event::kSsdBack, ssd_name(ssd) + " is back, and is filled with what it missed");
    }
    if (!ssd.serves && ssd.state != "out" && silent_.insert(ssd.slot).second)
        tell(event::kSsdSilent, fmt::format("{} does not serve{}{}", ssd_name(ssd),
                                            ssd.trouble.empty() ? "" : ": ", ssd.trouble));
    if (ssd.serves && silent_.erase(ssd.slot) != 0) tell(event::kSsdBack, ssd_name(ssd) + " serves again");
    if (ssd.state == "out" && state != "out")
        tell(event::kSsdOut, ssd_name(ssd) + " is out of the map: writes go on without it");
    if (ssd.state == "in" && state == "rebuilding")
        tell(event::kSsdFilled, ssd_name(ssd) + " is filled, and holds every replica of the slot");
}

void EventRecorder::compare_volumes(const ArrayInfo& info) {
    std::vector<VolumeInfo> gone, made;
    std::ranges::set_difference(before_->listed_volumes, info.listed_volumes, std::back_inserter(gone),
                                comes_before);
    std::ranges::set_difference(info.listed_volumes, before_->listed_volumes, std::back_inserter(made),
                                comes_before);
    for (const VolumeInfo& volume : gone)
        add(event::kVolumeDeleted, {.volume = volume.name,
                                    .client = volume.owner_name,
                                    .text = fmt::format("volume '{}' of '{}' (VID {}) was deleted",
                                                        volume.name, volume.owner_name, volume.id)});
    for (const VolumeInfo& volume : made)
        add(event::kVolumeCreated, {.volume = volume.name,
                                    .client = volume.owner_name,
                                    .text = fmt::format("volume '{}' of '{}' (VID {}) was created",
                                                        volume.name, volume.owner_name, volume.id)});
}

/// A lease that has ended by itself: in a tick, or because another client could open the volume.
void EventRecorder::compare_leases(const ArrayInfo& info, Observed after) {
    std::map<nvme::VolumeId, const LeaseInfo*> now;
    for (const LeaseInfo& lease : info.leases) now[lease.volume] = &lease;
    std::set<nvme::VolumeId> listed;
    for (const VolumeInfo& volume : info.listed_volumes) listed.insert(volume.id);
    for (const LeaseInfo& lease : before_->leases) {
        const auto next = now.find(lease.volume);
        const bool other = next != now.end() && next->second->client != lease.client;
        const bool ended = next == now.end() && after == Observed::kTick;
        const bool removed = std::ranges::any_of(
            info.clients, [&](const ClientInfo& c) { return c.id == lease.client && c.removed; });
        if ((!other && !ended) || removed || !listed.contains(lease.volume)) continue;
        add(event::kLeaseExpired, {.volume = lease.volume_name,
                                   .client = lease.client_name,
                                   .text = fmt::format("the lease of '{}' on volume '{}' expired (epoch {})",
                                                       lease.client_name, lease.volume_name, lease.epoch)});
    }
}

void EventRecorder::compare_clients(const ArrayInfo& info) {
    std::map<nvme::ClientId, const ClientInfo*> before;
    for (const ClientInfo& client : before_->clients) before[client.id] = &client;
    for (const ClientInfo& client : info.clients) {
        const auto found = before.find(client.id);
        const bool was_in = found != before.end() && !found->second->removed;
        const auto tell = [&](std::string_view code, const char* what) {
            add(code, {.client = client.name,
                       .text = fmt::format("client '{}' (id {}) {}", client.name, client.id, what)});
        };
        if (!was_in && !client.removed)
            tell(event::kClientAdded, "was added");
        else if (was_in && client.removed)
            tell(event::kClientRemoved, "was removed");
        else if (was_in && found->second->generation != client.generation)
            tell(event::kClientRotated, "got other keys and another token");
    }
}

void EventRecorder::compare_scrub(const ArrayInfo& info) {
    if (info.scrub.passes == before_->scrub.passes) return;
    const ScrubPassInfo& pass = info.scrub.pass;
    add(event::kScrubEnded,
        {.text =
             fmt::format("the scrub has compared {} blocks: {} mended, {} that no replica can read, {} whose "
                         "replicas differ",
                         pass.compared, pass.mended, pass.unreadable, pass.different)});
}

void EventRecorder::compare_health(const ArrayInfo& info, bool readings) {
    std::set<const HealthCode*> found;
    for (const HealthFinding& finding : health_of(info)) {
        if (finding.code->from_readings && !readings) continue;
        found.insert(finding.code);
        if (!found_.contains(finding.code))
            add(event::kHealthFound, {.health = std::string(finding.code->name),
                                      .text = fmt::format("{} ({}): {}", finding.code->name,
                                                          name_of(finding.code->severity), finding.summary)});
    }
    for (const HealthCode* code : found_) {
        if (found.contains(code)) continue;
        if (code->from_readings && !readings)
            found.insert(code);
        else
            add(event::kHealthGone, {.health = std::string(code->name),
                                     .text = fmt::format("{} is not reported any more", code->name)});
    }
    found_ = std::move(found);
}

}  // namespace gnstor::daemon
