#include "deengine/front/stored_state.hpp"

namespace gnstor::deengine {

bool StoredState::lives(nvme::VolumeId volume, nvme::Epoch epoch, nvme::BlockAddress block) const {
    const Volume* known = state_.permissions.find(volume);
    return known != nullptr && epoch >= known->record.birth_epoch &&
           block < known->record.geometry.capacity_blocks;
}

bool StoredState::explains(nvme::VolumeId volume, nvme::Epoch epoch) const {
    if (const Volume* known = state_.permissions.find(volume); known != nullptr)
        return epoch <= known->record.epoch;
    const auto deleted = state_.permissions.deleted().find(volume);
    return deleted != state_.permissions.deleted().end() && epoch <= deleted->second;
}

std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> StoredState::living() const {
    std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> all;
    for (const Volume& volume : state_.permissions.volumes())
        all.emplace_back(volume.record.geometry.volume, volume.record.epoch);
    return all;
}

}  // namespace gnstor::deengine
