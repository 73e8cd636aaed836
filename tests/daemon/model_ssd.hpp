// model_ssd.hpp: what gnstord relies on of a drive, in a few lines: nvme/vendor.hpp obeyed to the letter,
// with faults on request.
//
// A violation of what the daemon must guarantee towards drives (a term, an epoch or a version that goes back;
// equal revision with other bytes; a VID reborn below its old epochs) is kept in `violations`. One thread at
// a time.
#pragma once

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/fencing.hpp>

#include "daemon/decisions/ssd_port.hpp"
#include "nvmf/auth/dhchap_key.hpp"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace gnstor::daemon::test {

/// What a drive keeps; outlives the port.
struct ModelFlash {
    bool was_out = false;  ///< its slot was out: volumes were deleted without it
    std::array<std::uint8_t, 16> uuid{};
    std::string node = "model";  ///< the address at which it is
    std::uint64_t term = 0;
    std::map<nvme::VolumeId, nvme::VolumeRecord> volumes;
    std::map<nvme::VolumeId, nvme::Epoch> purged;       ///< last epoch of earlier lives
    std::map<std::uint32_t, placement::ArrayMap> maps;  ///< every version ever seen
    std::uint32_t map_version = 0;
    std::uint64_t capacity_blocks = 1u << 18;
    bool tells_map = true;  ///< false: its firmware does not know MAP GET
    /// Volumes that a client could write since their replicas were made equal, in which epoch.
    std::map<nvme::VolumeId, nvme::Epoch> unresolved;
    std::size_t max_volumes = 1024;
    std::shared_ptr<const nvmf::auth::DhchapKey> node_key;  ///< null: its node authenticates nobody
    std::vector<std::string> violations;
    std::uint64_t commands = 0;
};

enum class Fault { kNone, kRefuse, kLoseAnswer };

class ModelSsd final : public SsdPort {
  public:
    ModelSsd(std::uint32_t slot, ModelFlash& flash) : slot_(slot), flash_(flash) { flash_.map_version = 0; }

    /// Asked before every command; may throw to end the daemon there (`after` false: before it, true: after
    /// it took effect).
    std::function<Fault(bool after)> fault;
    bool refuses_maps = false;  ///< answers MAP SET with Invalid Field
    bool full = false;          ///< has no room for any change, not even of what it has

    bool reconnected = false;   ///< since the last volume_list()
    bool disconnected = false;  ///< until the next command
    bool hides_key = false;     ///< a defect: gnstord is not told that the node authenticates
    /// The hosts that its node lets in; forgotten when it restarts. Nothing: no list has come.
    std::optional<std::map<nvme::ClientId, std::uint32_t>> hosts;
    bool write_protected = false;  ///< what commands change is forgotten when the array boots

    std::uint32_t slot() const override { return slot_; }
    bool is_new() const override { return reconnected; }
    bool is_disconnected() const override { return disconnected; }
    bool keeps_terms() const override { return !write_protected; }
    SsdIdentity identity() const override {
        return SsdIdentity{flash_.uuid,
                           flash_.node,
                           fmt::format("{}", slot_),
                           fmt::format("nqn.2026-11.io.gnstor:ssd:{}", slot_),
                           fmt::format("MODEL{}", slot_),
                           flash_.capacity_blocks};
    }

    Result<SsdVolumes> volume_list(std::uint64_t) override {
        SsdVolumes list;
        GN_TRY(run([&]() -> nvme::Status {
            list.term = flash_.term;
            for (const auto& [id, record] : flash_.volumes) list.records.push_back(record);
            for (const auto& [id, epoch] : flash_.purged)
                list.highest_deleted_epoch = std::max(list.highest_deleted_epoch, epoch);
            list.knows_out = flash_.tells_map;
            if (flash_.tells_map && !flash_.maps.empty()) list.newest_map = flash_.maps.rbegin()->second;
            if (!flash_.maps.empty())
                for (const placement::Slot& slot : flash_.maps.rbegin()->second.slots)
                    if (std::memcmp(slot.ssd_uuid, flash_.uuid.data(), flash_.uuid.size()) == 0)
                        list.incomplete = slot.state != placement::SlotState::kIn;
            reconnected = false;
            return nvme::Status::kSuccess;
        }));
        return list;
    }
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) override {
        return run([&] { return with_term(term, [&] { return add(record); }); });
    }
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) override {
        return run([&] { return with_term(term, [&] { return chmod(record); }); });
    }
    Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) override {
        return run([&] { return with_term(term, [&] { return remove(volume); }); });
    }
    Result<std::uint32_t> grant_ask(std::uint64_t term) override {
        std::uint32_t nonce = 0;
        GN_TRY(run([&] {
            return with_term(term, [&] {
                nonce = ++nonce_;
                return nvme::Status::kSuccess;
            });
        }));
        return nonce;
    }
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& set, std::uint32_t nonce) override {
        return run([&] {
            return with_term(term, [&] {
                if (flash_.node_key && !hosts) violated("a grant before the list of hosts");
                if (set.grant_ms != 0 && (nonce == 0 || nonce != nonce_)) return nvme::Status::kNotGranted;
                if (refuses_maps) return nvme::Status::kInvalidField;
                const nvme::Status done = set_map(set);
                if (nvme::ok(done)) ++grants;
                return done;
            });
        });
    }
    const nvmf::auth::DhchapKey* node_key() const override {
        return hides_key ? nullptr : flash_.node_key.get();
    }
    Result<void> hosts_set(std::uint64_t term, std::uint64_t version,
                           std::span<const nvme::HostSetEntry> list) override {
        return run([&] {
            if (reconnected) violated("a list of hosts before it was listed");
            return set_hosts(term, version, list);
        });
    }
    /// Without contents: what counts here is which commands come, and to whom.
    nvme::Status copy(const nvme::Command& command, std::span<std::byte> data, std::uint32_t& dw0) override {
        ++flash_.commands;
        if (fault && fault(false) != Fault::kNone) return nvme::Status::kQueueError;
        const placement::ArrayMap& map = flash_.maps[flash_.map_version];
        auto state = placement::SlotState::kEmpty;
        for (const placement::Slot& slot : map.slots)
            if (std::memcmp(slot.ssd_uuid, flash_.uuid.data(), flash_.uuid.size()) == 0) state = slot.state;
        if (command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor))
            return take_floor(command);
        const bool read = command.opcode == static_cast<std::uint8_t>(nvme::CopyOpcode::kCopyRead);
        if (command.cdw3 != flash_.map_version) return nvme::Status::kStaleMap;
        const bool survey = command.opcode == static_cast<std::uint8_t>(nvme::CopyOpcode::kCopySurvey);
        if (survey || command.cdw2 == nvme::kCopyClosed) return compare(command, state, data, dw0);
        if (state != (read ? placement::SlotState::kIn : placement::SlotState::kRebuilding))
            violated("a copy from or to a slot in another state");
        const auto volume = static_cast<nvme::VolumeId>(command.cdw11 >> 16);
        if (!flash_.volumes.contains(volume)) return nvme::Status::kNoSuchVolume;
        std::ranges::fill(data, std::byte{0});
        dw0 = 1;
        ++(read ? copies_read : copies_taken);
        return nvme::Status::kSuccess;
    }
    std::uint64_t copies_read = 0, copies_taken = 0, surveys = 0;
    bool knows_survey = true;  ///< false: its firmware does not know COPY SURVEY

    /// Its node and its own process begin anew, on the same flash.
    void restart() {
        reconnected = true;
        hosts.reset();
        hosts_term_ = hosts_version_ = 0;
    }
    std::uint32_t grants = 0;     ///< since it booted
    std::uint32_t host_sets = 0;  ///< lists that it has taken since it booted

  private:
    template <class Work>
    Result<void> run(Work work) {
        ++flash_.commands;
        disconnected = false;
        const Fault before = fault ? fault(false) : Fault::kNone;
        if (before == Fault::kRefuse) return error(Errc::kIo, "model SSD {} is told to refuse", slot_);
        const nvme::Status status = work();
        const Fault after = fault ? fault(true) : Fault::kNone;
        if (before == Fault::kLoseAnswer || after == Fault::kLoseAnswer)
            return error(Errc::kTimedOut, "model SSD {} is told to lose its answer", slot_);
        if (!nvme::ok(status)) return ssd_error(status, "a vendor command", fmt::format("MODEL{}", slot_));
        return {};
    }
    template <class Work>
    nvme::Status with_term(std::uint64_t term, Work work) {
        if (reconnected) violated("a command before it was listed");
        if (term < flash_.term) return nvme::Status::kStaleTerm;
        if (!nvme::is_plausible_term(term, flash_.term)) return nvme::Status::kCommandSequenceError;
        if (full) return nvme::Status::kCapacityExceeded;
        const nvme::Status done = work();
        if (nvme::ok(done)) flash_.term = term;
        return done;
    }
    /// COPY SURVEY, and the copy commands of a closed volume. All blocks are equal, but what the last writer did is not
    /// resolved.
    nvme::Status compare(const nvme::Command& command, placement::SlotState state, std::span<std::byte> data,
                         std::uint32_t& dw0) {
        const bool survey = command.opcode == static_cast<std::uint8_t>(nvme::CopyOpcode::kCopySurvey);
        if (survey && !knows_survey) return nvme::Status::kInvalidOpcode;
        if (!placement::is_written(state)) violated("replicas are compared with a slot in another state");
        const auto volume = flash_.volumes.find(static_cast<nvme::VolumeId>(command.cdw11 >> 16));
        if (volume == flash_.volumes.end()) return nvme::Status::kNoSuchVolume;
        if (!survey && volume->second.writer != 0)
            violated("the replicas of a volume are compared while a client may write it");
        dw0 = volume->second.epoch;
        std::ranges::fill(data, std::byte{0});
        ++surveys;
        for (std::size_t at = 0; survey && at < data.size(); at += sizeof(nvme::SurveyExtent)) {
            nvme::SurveyExtent extent{};
            extent.highest = flash_.unresolved.contains(volume->first) ? 1 : 0;
            extent.groups = ~0u;
            std::memcpy(data.data() + at, &extent, sizeof extent);
        }
        return nvme::Status::kSuccess;
    }
    nvme::Status take_floor(const nvme::Command& command) {
        const auto id = static_cast<nvme::VolumeId>(command.cdw10);
        const auto volume = flash_.volumes.find(id);
        if (volume == flash_.volumes.end()) return nvme::Status::kNoSuchVolume;
        const bool closes = (command.cdw12 | std::uint64_t{command.cdw13} << 32) == nvme::kClosedFloor;
        if (!closes) return nvme::Status::kSuccess;
        if (volume->second.writer != 0 || command.cdw11 != volume->second.epoch)
            violated("the daemon sends a floor of an epoch that is not closed");
        flash_.unresolved.erase(id);
        return nvme::Status::kSuccess;
    }
    void violated(std::string what) { flash_.violations.push_back(fmt::format("SSD {}: {}", slot_, what)); }

    /// As nvmf::DerivedHosts.
    nvme::Status set_hosts(std::uint64_t term, std::uint64_t version,
                           std::span<const nvme::HostSetEntry> list) {
        if (term < hosts_term_) return nvme::Status::kStaleTerm;
        std::map<nvme::ClientId, std::uint32_t> named;
        for (const nvme::HostSetEntry& entry : list) {
            if (entry.client == 0 || entry.generation == 0 ||
                (!named.empty() && named.rbegin()->first >= entry.client))
                violated("a malformed list of hosts");
            named[entry.client] = entry.generation;
        }
        if (hosts && term == hosts_term_ && version <= hosts_version_) {
            if (version == hosts_version_ && named != *hosts)
                violated("a version with another list of hosts");
            return nvme::Status::kSuccess;
        }
        hosts = std::move(named);
        hosts_term_ = term;
        hosts_version_ = version;
        ++host_sets;
        return nvme::Status::kSuccess;
    }
    nvme::Status add(const nvme::VolumeRecord& record) {
        const nvme::VolumeId id = record.geometry.volume;
        if (flash_.volumes.contains(id)) return nvme::Status::kVolumeExists;
        for (const auto& [other, known] : flash_.volumes)
            if (std::strcmp(known.name, record.name) == 0) return nvme::Status::kVolumeExists;
        if (flash_.volumes.size() >= flash_.max_volumes) return nvme::Status::kCapacityExceeded;
        if (const auto old = flash_.purged.find(id);
            old != flash_.purged.end() && record.birth_epoch <= old->second)
            return nvme::Status::kStaleEpoch;
        flash_.volumes[id] = record;
        return nvme::Status::kSuccess;
    }
    nvme::Status chmod(const nvme::VolumeRecord& record) {
        const auto found = flash_.volumes.find(record.geometry.volume);
        if (found == flash_.volumes.end()) return nvme::Status::kNoSuchVolume;
        nvme::VolumeRecord& known = found->second;
        if (std::memcmp(&known.geometry, &record.geometry, sizeof(known.geometry)) != 0 ||
            std::memcmp(known.name, record.name, sizeof(known.name)) != 0)
            return nvme::Status::kInvalidField;
        if (record.epoch < known.epoch) {
            violated(fmt::format("epoch of VID {} went from {} to {}", record.geometry.volume, known.epoch,
                                 record.epoch));
            return nvme::Status::kStaleEpoch;
        }
        const auto open = flash_.unresolved.find(record.geometry.volume);
        const bool deleting = (record.flags & nvme::kVolumeDeleting) != 0;
        if (open != flash_.unresolved.end() && record.epoch > open->second && !deleting && !flash_.was_out)
            violated("the next epoch begins before the replicas are compared");
        if (record.writer != 0 && record.geometry.replicas > 1)
            flash_.unresolved[record.geometry.volume] = record.epoch;
        if (record.revision < known.revision) violated("a revision went back");
        if (record.revision == known.revision && std::memcmp(&known, &record, sizeof(known)) != 0)
            violated(
                fmt::format("VID {} revision {} with other bytes", record.geometry.volume, record.revision));
        known = record;
        return nvme::Status::kSuccess;
    }
    nvme::Status remove(nvme::VolumeId volume) {
        const auto found = flash_.volumes.find(volume);
        if (found == flash_.volumes.end()) return nvme::Status::kNoSuchVolume;
        if ((found->second.flags & nvme::kVolumeDeleting) == 0 && !flash_.was_out)
            violated("purged a volume that was not marked");
        flash_.purged[volume] = std::max(flash_.purged[volume], found->second.epoch);
        flash_.volumes.erase(found);
        flash_.unresolved.erase(volume);
        return nvme::Status::kSuccess;
    }
    nvme::Status set_map(const nvme::MapSet& set) {
        const auto [known, fresh] = flash_.maps.try_emplace(set.map.version, set.map);
        if (!fresh && std::memcmp(&known->second, &set.map, sizeof(set.map)) != 0)
            violated("a map version with other bytes");
        if (flash_.maps.rbegin()->first > set.map.version) violated("a map version went back");
        flash_.map_version = set.map.version;
        return nvme::Status::kSuccess;
    }

    const std::uint32_t slot_;
    ModelFlash& flash_;
    std::uint32_t nonce_ = 0;
    std::uint64_t hosts_term_ = 0, hosts_version_ = 0;  ///< of `hosts`
};

inline nvmf::auth::DhchapKey model_node_key(std::uint8_t seed) {
    const std::array<std::uint8_t, 32> bytes{seed, 7};
    return nvmf::auth::DhchapKey::from_bytes(nvmf::auth::KeyTransform::kSha256,
                                             std::as_bytes(std::span(bytes)))
        .value();
}

/// N drives with distinct UUIDs.
struct ModelArray {
    explicit ModelArray(std::uint32_t count) {
        for (std::uint32_t s = 0; s < count; ++s) {
            flash.push_back(std::make_unique<ModelFlash>());
            flash.back()->uuid[0] = 0xA0;
            flash.back()->uuid[15] = static_cast<std::uint8_t>(s + 1);
        }
        boot();
    }
    /// The nodes of these drives authenticate hosts.
    void authenticate(std::initializer_list<std::size_t> slots) {
        for (const std::size_t s : slots)
            flash[s]->node_key = std::make_shared<const nvmf::auth::DhchapKey>(
                model_node_key(static_cast<std::uint8_t>(s + 1)));
    }
    /// New ports on the same flash: the drives restart.
    void boot() {
        drives.clear();
        for (std::uint32_t s = 0; s < flash.size(); ++s)
            drives.push_back(std::make_unique<ModelSsd>(s, *flash[s]));
    }
    std::vector<SsdPort*> ports() {
        std::vector<SsdPort*> out;
        for (auto& drive : drives) out.push_back(drive.get());
        return out;
    }
    std::vector<std::unique_ptr<ModelFlash>> flash;
    std::vector<std::unique_ptr<ModelSsd>> drives;
};

}  // namespace gnstor::daemon::test
