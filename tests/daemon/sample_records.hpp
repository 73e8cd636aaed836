// sample_records.hpp: a change that sets every field of the records, for tests of stores.
#pragma once

#include "daemon/records/records.hpp"

#include <fmt/core.h>

#include <cstring>

namespace gnstor::daemon::test {

inline nvme::VolumeRecord sample_volume(nvme::VolumeId id) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.geometry = {99, 16, id, 4, 2, 0};
    r.birth_epoch = 3;
    r.epoch = 4;
    r.owner = 1;
    std::strcpy(r.name, fmt::format("v{}", id).c_str());
    std::strcpy(r.owner_name, "alice");
    return r;
}

inline Change sample_change() {
    Change change;
    change.term = 7;
    change.epoch_floor = 4'000'000'000u;
    change.map.emplace();
    change.map->version = 3;
    change.map->slot_count = 2;
    change.told = 2;
    change.put_clients = {{1, {"alice", 4097}}, {2, {"bob", 4'294'967'295u, true}}, {65535, {""}}};
    change.put_volumes = {sample_volume(5), sample_volume(65535)};
    change.begin_creations = {5};
    change.retire_volumes = {{8, 12}};
    change.ssd_terms = {{SsdUuid{0xAB, 1, 2}, 7}};
    return change;
}

}  // namespace gnstor::daemon::test
