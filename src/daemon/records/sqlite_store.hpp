// sqlite_store.hpp: the daemon's records in an SQLite file (docs/array.md, rule 1).
//
// Invariants
//   * user_version holds the schema version, application_id "GNSt": files of other programs and of a newer
//     gnstord are refused;
//   * write-ahead log, synchronous = FULL: what save() acknowledged survives a kill and a power cut;
//   * the file is locked while it is open: a second gnstord on it is refused;
//   * each row has a checksum; a damaged file is refused, never repaired silently; with `quarantine` it is
//     renamed (name + ".damaged-<n>") and an empty one created, which the Manager then fills from the drives.
// One thread at a time.
#pragma once

#include "daemon/records/records.hpp"

#include <filesystem>
#include <memory>

namespace gnstor::daemon {

inline constexpr int kStoreSchema = 6;
/// Its usual name, beside the stores of the SSDs.
inline constexpr char kRecordsFile[] = "records.db";

struct SqliteStoreOptions {
    std::filesystem::path file;
    bool quarantine = false;
};

class SqliteRecordStore final : public RecordStore {
  public:
    /// Opens the file; creates it if absent.
    static Result<std::unique_ptr<SqliteRecordStore>> open(const SqliteStoreOptions& options);
    ~SqliteRecordStore() override;

    Result<Records> load() override;
    Result<void> save(const Change& change) override;
    /// New name of a damaged file; empty: none was quarantined.
    [[nodiscard]] const std::filesystem::path& quarantined() const;

  private:
    struct Impl;
    explicit SqliteRecordStore(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
