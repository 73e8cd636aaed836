// stored_state.hpp: the firmware's current state, which the metadata store holds too, and what recovery asks
// of it.
//
// Invariants
//   * a state is stored before it is current, except for floors (raise_floor());
//   * `now()` keeps its address: the command check refers to its permission table.
// One owner thread.
#pragma once

#include "deengine/front/firmware_state.hpp"
#include "deengine/shard/shard.hpp"

#include <utility>
#include <vector>

namespace gnstor::deengine {

class StoredState final : public VolumeRegistry {
  public:
    StoredState(MetadataStore& metadata, FirmwareState state)
        : metadata_(metadata), state_(std::move(state)) {}

    [[nodiscard]] const FirmwareState& now() const { return state_; }
    [[nodiscard]] bool fits(const FirmwareState& next) const {
        return next.serialise().size() <= metadata_.capacity();
    }
    /// Stores `next`, then makes it current. False: it was not stored, and nothing changed.
    [[nodiscard]] bool replace(FirmwareState&& next) {
        const auto blob = next.serialise();
        if (blob.size() > metadata_.capacity() || !metadata_.store(blob)) return false;
        state_ = std::move(next);
        return true;
    }
    /// Of a volume that exists. Kept in memory; the next stored state includes it. A crash that loses a floor
    /// loses no order: the order of every block and tombstone is on flash.
    void raise_floor(nvme::VolumeId volume, std::uint64_t floor) {
        state_.permissions.find(volume)->floor = floor;
    }

    [[nodiscard]] bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                             nvme::BlockAddress block) const override;
    [[nodiscard]] bool explains(nvme::VolumeId volume, nvme::Epoch epoch) const override;
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override;

  private:
    MetadataStore& metadata_;
    FirmwareState state_;
};

}  // namespace gnstor::deengine
