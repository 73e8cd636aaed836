// records.hpp: what the daemon must not forget, and where it keeps it.
//
// Invariants
//   * a Change is applied as a whole or not at all, and is durable when save() returns (ARRAY.md, rule 1);
//   * whatever a drive or a client was told lies in the store already (store, then activate);
//   * a VID is live (volumes) or retired (its last epoch is kept), never both.
// Values and interfaces alone: no files here. One caller at a time.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::daemon {

using SsdUuid = std::array<std::uint8_t, 16>;

struct Records {
    std::uint64_t term = 0;       ///< of the last daemon that started; 0: an empty store
    nvme::Epoch epoch_floor = 0;  ///< every new volume is born above it
    placement::ArrayMap map{};    ///< version 0: none yet
    nvme::MapVersion told =
        0;  ///< the newest version that every drive of it has activated: clients may have it
    std::map<nvme::ClientId, std::string>
        clients;  ///< name empty: known by its id alone (rebuilt from drives)
    std::map<nvme::VolumeId, nvme::VolumeRecord> volumes;
    std::set<nvme::VolumeId> creating;  ///< of volumes: never seen in force, so nobody was told of them
    std::map<nvme::VolumeId, nvme::Epoch> retired;  ///< purged VIDs and the last epoch of their life
    /// The newest term that each SSD, by its UUID, is known to have stored: one that has seen less is older
    /// than what it held.
    std::map<SsdUuid, std::uint64_t> ssd_terms;
};

/// One transaction.
struct Change {
    std::optional<std::uint64_t> term;
    std::optional<nvme::Epoch> epoch_floor;
    std::optional<placement::ArrayMap> map;
    std::optional<nvme::MapVersion> told;
    std::vector<std::pair<nvme::ClientId, std::string>> put_clients;
    std::vector<nvme::VolumeRecord> put_volumes;  ///< makes the VID live
    std::vector<nvme::VolumeId> begin_creations;  ///< of put_volumes
    std::vector<nvme::VolumeId> end_creations;    ///< in force everywhere: from here on clients are told
    std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> retire_volumes;
    std::vector<std::pair<SsdUuid, std::uint64_t>> ssd_terms;  ///< after the SSD has stored it, never before
};

/// What `records` become by `change`: every store means the same by it.
void apply(Records& records, const Change& change);

class RecordStore {
  public:
    virtual ~RecordStore() = default;
    /// Everything saved so far; kCorrupt when it cannot be trusted.
    virtual Result<Records> load() = 0;
    /// Whether they are there when this process has ended.
    [[nodiscard]] virtual bool lasting() const { return true; }
    /// Durable when it returns; on an error the change may or may not have been kept, but never in part.
    virtual Result<void> save(const Change& change) = 0;
};

/// Forgets when it is destroyed; an array that uses it is rebuilt from its drives at every start.
class MemoryRecordStore final : public RecordStore {
  public:
    Result<Records> load() override { return records_; }
    [[nodiscard]] bool lasting() const override { return false; }
    Result<void> save(const Change& change) override {
        apply(records_, change);
        return {};
    }

  private:
    Records records_;
};

/// Whether a record from a store or a drive can be believed: lengths, terminators, ranges. The reason if not.
[[nodiscard]] Result<void> check_record(const nvme::VolumeRecord& record);
/// Whether a map can be believed.
[[nodiscard]] Result<void> check_map(const placement::ArrayMap& map);
/// Names of volumes and clients: 1 .. 63 of [A-Za-z0-9._-], not beginning with a dot or a dash.
[[nodiscard]] Result<void> check_name(const char* what, const std::string& name);

}  // namespace gnstor::daemon
