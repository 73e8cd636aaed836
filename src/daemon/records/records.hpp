// records.hpp: the daemon's persistent state, and the interface of its store.
//
// Invariants
//   * a Change is applied as a whole or not at all, and is durable when save() returns (docs/array.md, rule
//     1);
//   * what a drive or a client is told was stored before (store, then activate);
//   * a VID is live (in `volumes`) or retired (its last epoch is kept), never both;
//   * a client stays in the records for ever, removed or not, and its generation only grows.
// Values and interfaces only: no files here. One caller at a time.
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

/// A client. Its keys and its token follow from its id and `generation` (docs/array.md, rule 19).
struct ClientRecord {
    std::string name;  ///< empty: only its id is known (rebuilt from drives)
    std::uint32_t generation = 1;
    bool removed = false;  ///< it may do nothing until it is added again
    friend bool operator==(const ClientRecord&, const ClientRecord&) = default;
};

struct Records {
    std::uint64_t term = 0;       ///< of the last daemon that started; 0: an empty store
    nvme::Epoch epoch_floor = 0;  ///< every new volume's birth epoch is above it
    placement::ArrayMap map{};    ///< version 0: none yet
    nvme::MapVersion told = 0;    ///< newest version that all its drives have activated: clients may have it
    std::map<nvme::ClientId, ClientRecord> clients;
    std::map<nvme::VolumeId, nvme::VolumeRecord> volumes;
    std::set<nvme::VolumeId> creating;              ///< volumes never in force, so unknown to clients
    std::map<nvme::VolumeId, nvme::Epoch> retired;  ///< purged VIDs and the last epoch of their life
    /// The newest term that each SSD, by UUID, is known to have stored. An SSD that has seen a lower one has
    /// an older copy of its store.
    std::map<SsdUuid, std::uint64_t> ssd_terms;
};

/// One transaction.
struct Change {
    std::optional<std::uint64_t> term;
    std::optional<nvme::Epoch> epoch_floor;
    std::optional<placement::ArrayMap> map;
    std::optional<nvme::MapVersion> told;
    std::vector<std::pair<nvme::ClientId, ClientRecord>> put_clients;
    std::vector<nvme::VolumeRecord> put_volumes;  ///< makes the VID live
    std::vector<nvme::VolumeId> begin_creations;  ///< of put_volumes
    std::vector<nvme::VolumeId> end_creations;    ///< in force everywhere: clients may learn of them
    std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> retire_volumes;
    std::vector<std::pair<SsdUuid, std::uint64_t>> ssd_terms;  ///< set only after the SSD has stored the term
};

/// Applies `change` to `records`; all stores share this definition.
void apply(Records& records, const Change& change);

class RecordStore {
  public:
    virtual ~RecordStore() = default;
    /// Everything saved so far; kCorrupt if the store is damaged.
    virtual Result<Records> load() = 0;
    /// Whether the records outlive this process.
    [[nodiscard]] virtual bool lasting() const { return true; }
    /// Whether no other process can change the records while this one has them open.
    [[nodiscard]] virtual bool exclusive() const { return true; }
    /// Whether this daemon leads, so that SSDs may rely on its grants. kState: another one does, or may, from now on; for
    /// this store that is final. Any other error: it is not known now.
    [[nodiscard]] virtual Result<void> check_leads() const { return {}; }
    /// An SSD has taken a newer daemon's term: this one gives up what lets it lead, if the store has that.
    virtual void end_lead() {}
    /// Durable on return. After an error the change may or may not have been stored, but never partially; load() tells,
    /// and after it has, the change is not stored later. kState: as check_leads(); nothing was stored.
    virtual Result<void> save(const Change& change) = 0;
};

/// Keeps records in memory only; an array that uses it is rebuilt from its drives at every start.
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

/// One that makes empty records these.
[[nodiscard]] Change change_to(const Records& records);

/// Validates a record from a store or a drive: lengths, terminators, ranges. The error says what is wrong.
[[nodiscard]] Result<void> check_record(const nvme::VolumeRecord& record);
/// Validates a map.
[[nodiscard]] Result<void> check_map(const placement::ArrayMap& map);
/// Names of volumes and clients: 1 .. 63 of [A-Za-z0-9._-], not beginning with a dot or a dash.
[[nodiscard]] Result<void> check_name(const char* what, const std::string& name);

}  // namespace gnstor::daemon
