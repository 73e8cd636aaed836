#include "daemon/records/sqlite_store.hpp"

#include "daemon/records/sqlite_database.hpp"

#include <cstring>
#include <span>

namespace gnstor::daemon {
namespace {

constexpr std::int64_t kApplicationId = 0x474E5374;  // "GNSt"

constexpr const char* kSchema =
    "CREATE TABLE array(id INTEGER PRIMARY KEY CHECK(id = 1), term INTEGER NOT NULL, epoch_floor INTEGER NOT "
    "NULL, map BLOB, told INTEGER NOT NULL DEFAULT 0, crc INTEGER);"
    "INSERT INTO array VALUES(1, 0, 0, NULL, 0, NULL);"
    "CREATE TABLE clients(id INTEGER PRIMARY KEY, name TEXT NOT NULL, generation INTEGER NOT NULL DEFAULT 1, "
    "removed INTEGER NOT NULL DEFAULT 0, crc INTEGER);"
    "CREATE TABLE volumes(vid INTEGER PRIMARY KEY, name TEXT NOT NULL, epoch INTEGER NOT NULL, record BLOB "
    "NOT NULL, crc INTEGER);"
    "CREATE TABLE creating(vid INTEGER PRIMARY KEY, crc INTEGER);"
    "CREATE TABLE retired(vid INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, crc INTEGER);"
    "CREATE TABLE ssds(uuid BLOB PRIMARY KEY, term INTEGER NOT NULL, crc INTEGER);";

/// A table: the columns covered by a row's checksum, and the row's name in errors.
struct Table {
    const char* name;
    const char* columns;
    const char* row;
    /// SQL for a row's checksum. `values`: the columns, or as many parameters.
    [[nodiscard]] std::string crc(const char* values) const {
        return fmt::format("gn_crc('{}', {})", name, values);
    }
    [[nodiscard]] std::string put(const char* parameters) const {
        return fmt::format("INSERT OR REPLACE INTO {}({}, crc) VALUES({}, {})", name, columns, parameters,
                           crc(parameters));
    }
};
constexpr Table kArray{"array", "id, term, epoch_floor, map, told", "its array record"};
constexpr Table kClients{"clients", "id, name, generation, removed", "a client"};
constexpr Table kClientsBefore6{"clients", "id, name", "a client"};
constexpr Table kVolumes{"volumes", "vid, name, epoch, record", "a volume"};
constexpr Table kCreating{"creating", "vid", "a creation under way"};
constexpr Table kRetired{"retired", "vid, epoch", "a retired VID"};
constexpr Table kSsds{"ssds", "uuid, term", "the term of an SSD"};
constexpr const Table* kTables[] = {&kArray, &kClients, &kVolumes, &kCreating, &kRetired, &kSsds};
constexpr const Table* kTablesBefore6[] = {&kArray,    &kClientsBefore6, &kVolumes,
                                           &kCreating, &kRetired,        &kSsds};

/// Schema 5 added the checksums of rows, schema 6 the generations of clients.
constexpr std::int64_t kSchemaOfChecksums = 5, kSchemaOfGenerations = 6;
constexpr std::int64_t kOldestReadable = 4;  ///< where it cannot be renewed

}  // namespace

struct SqliteRecordStore::Impl {
    explicit Impl(const std::filesystem::path& file) : db(file) {}

    SqliteDatabase db;
    std::filesystem::path quarantined;
    /// Of the file. Older than kStoreSchema only on a read-only file system, where it cannot be renewed.
    std::int64_t schema = kStoreSchema;

    Result<void> with_vid(const std::string& sql, nvme::VolumeId id, const char* what) {
        GN_ASSIGN(const Statement statement, db.prepare(sql));
        sqlite3_bind_int64(statement.get(), 1, id);
        return db.finish(statement, what);
    }
    Result<void> open();
    Result<void> open_and_read();
    Result<void> quarantine();
    Result<void> check_header();
    Result<void> check_or_make_schema();
    Result<void> renew();
    [[nodiscard]] std::span<const Table* const> tables() const {
        return schema < kSchemaOfGenerations ? std::span<const Table* const>(kTablesBefore6) : kTables;
    }
    Result<void> check_rows();
    Result<void> write(const Change& change);
    Result<void> put_array(const Change& change);
    Result<Records> read();
    Result<void> read_clients(Records& records);
};

Result<void> SqliteRecordStore::Impl::open() {
    GN_TRY(db.open());
    if (db.is_read_only()) {
        GN_TRY(check_header());
        return db.check_integrity();
    }
    GN_TRY(check_or_make_schema());
    GN_TRY(db.run("PRAGMA journal_mode = WAL", "enter write-ahead logging"));
    GN_TRY(db.run("PRAGMA synchronous = FULL", "configure"));
    return db.check_integrity();
}

Result<void> SqliteRecordStore::Impl::check_header() {
    GN_ASSIGN(const std::int64_t application, db.number("PRAGMA application_id"));
    GN_ASSIGN(schema, db.number("PRAGMA user_version"));
    const bool readable = schema >= kOldestReadable && schema <= kStoreSchema;
    if (application == kApplicationId && readable) return {};
    return error(Errc::kUnsupported,
                 "the record store {} cannot be used on a read-only file system: it is empty, another "
                 "program's, or has another schema ({}, this gnstord has {}); mount it writable",
                 db.file().string(), schema, kStoreSchema);
}

Result<void> SqliteRecordStore::Impl::check_or_make_schema() {
    GN_TRY(db.run("BEGIN IMMEDIATE", "lock"));
    GN_ASSIGN(const std::int64_t application, db.number("PRAGMA application_id"));
    GN_ASSIGN(schema, db.number("PRAGMA user_version"));
    GN_ASSIGN(const std::int64_t made, db.number("SELECT count(*) FROM sqlite_master"));
    if (application == 0 && schema == 0 && made == 0) {
        GN_TRY(db.run(kSchema, "make its tables"));
        GN_TRY(db.run(
            fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kStoreSchema),
            "make its header"));
        GN_TRY(
            db.run(fmt::format("UPDATE array SET crc = {}", kArray.crc(kArray.columns)), "make its tables"));
        schema = kStoreSchema;
    } else if (application != kApplicationId) {
        return error(
            Errc::kCorrupt,
            "{} is a database of another program, not a record store of gnstord; choose another file",
            db.file().string());
    } else if (schema > kStoreSchema) {
        return error(Errc::kUnsupported,
                     "the record store {} was written by a newer gnstord (schema {}, this one knows {}); use "
                     "that newer gnstord, or, if no newer gnstord was ever used here, move the file away: "
                     "gnstord then rebuilds it from the SSDs",
                     db.file().string(), schema, kStoreSchema);
    } else if (schema < 1) {
        return error(Errc::kCorrupt, "the record store {} has the impossible schema {}", db.file().string(),
                     schema);
    } else {
        // Writes nothing if the schema is current: the disk may be full.
        if (schema < kStoreSchema) {
            GN_TRY(db.check_integrity());  // refuse damaged pages before anything is changed
            // Refuse damaged rows too: afterwards they have checksums, or new ones.
            if (schema >= kSchemaOfChecksums) GN_TRY(check_rows());
            GN_TRY(renew());
            GN_ASSIGN([[maybe_unused]] const Records good, read());
        }
    }
    return db.run("COMMIT", "keep its tables");
}

Result<void> SqliteRecordStore::Impl::renew() {
    const char* what = "renew its tables";
    if (schema < 2)  // schema 2 added the creations under way
        GN_TRY(db.run("CREATE TABLE creating(vid INTEGER PRIMARY KEY)", what));
    if (schema < 3)  // schema 3 added the map version that was in force once
        GN_TRY(db.run("ALTER TABLE array ADD COLUMN told INTEGER NOT NULL DEFAULT 0", what));
    if (schema < 4)  // schema 4 added the terms that SSDs have stored
        GN_TRY(db.run("CREATE TABLE ssds(uuid BLOB PRIMARY KEY, term INTEGER NOT NULL)", what));
    for (const Table* table : kTablesBefore6)
        if (schema < kSchemaOfChecksums)
            GN_TRY(db.run(fmt::format("ALTER TABLE {0} ADD COLUMN crc INTEGER; UPDATE {0} SET crc = {1}",
                                      table->name, table->crc(table->columns)),
                          what));
    if (schema < kSchemaOfGenerations)
        GN_TRY(db.run(fmt::format("ALTER TABLE clients ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;"
                                  "ALTER TABLE clients ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;"
                                  "UPDATE clients SET crc = {}",
                                  kClients.crc(kClients.columns)),
                      what));
    schema = kStoreSchema;
    return db.run(fmt::format("PRAGMA user_version = {}", kStoreSchema), what);
}

Result<void> SqliteRecordStore::Impl::check_rows() {
    for (const Table* table : tables()) {
        GN_ASSIGN(const std::int64_t wrong,
                  db.number(fmt::format("SELECT count(*) FROM {} WHERE crc IS NOT {}", table->name,
                                        table->crc(table->columns))));
        if (wrong != 0) return db.damaged(fmt::format("the checksum of {} is wrong", table->row));
    }
    return {};
}

Result<void> SqliteRecordStore::Impl::read_clients(Records& records) {
    const char* const columns = schema < kSchemaOfGenerations ? "id, name, 1, 0" : kClients.columns;
    return db.each(fmt::format("SELECT {} FROM clients", columns), [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        const auto* name = reinterpret_cast<const char*>(sqlite3_column_text(row, 1));
        const std::int64_t generation = sqlite3_column_int64(row, 2);
        if (id < 1 || id > 0xFFFF || name == nullptr || generation < 1 || generation > 0xFFFFFFFF)
            return db.damaged("a client is out of range");
        records.clients[static_cast<nvme::ClientId>(id)] = {name, static_cast<std::uint32_t>(generation),
                                                            sqlite3_column_int64(row, 3) != 0};
        return {};
    });
}

Result<Records> SqliteRecordStore::Impl::read() {
    Records records;
    const auto damaged = [&](const std::string& what) { return db.damaged(what); };
    if (schema >= kSchemaOfChecksums) GN_TRY(check_rows());
    bool found = false;
    GN_TRY(db.each("SELECT term, epoch_floor, map, told FROM array", [&](sqlite3_stmt* row) -> Result<void> {
        found = true;
        records.term = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0));
        records.epoch_floor = static_cast<nvme::Epoch>(sqlite3_column_int64(row, 1));
        records.told = static_cast<nvme::MapVersion>(sqlite3_column_int64(row, 3));
        if (sqlite3_column_type(row, 2) == SQLITE_NULL) return {};
        if (sqlite3_column_bytes(row, 2) != static_cast<int>(sizeof(records.map)))
            return damaged("its map has a wrong size");
        std::memcpy(&records.map, sqlite3_column_blob(row, 2), sizeof(records.map));
        if (Result<void> good = check_map(records.map); !good.ok()) return damaged(good.error().message);
        return {};
    }));
    if (!found) return damaged("it has no array record");
    GN_TRY(read_clients(records));
    GN_TRY(db.each("SELECT vid, record FROM volumes", [&](sqlite3_stmt* row) -> Result<void> {
        nvme::VolumeRecord record{};
        if (sqlite3_column_bytes(row, 1) != static_cast<int>(sizeof(record)))
            return damaged("a volume has a wrong size");
        std::memcpy(&record, sqlite3_column_blob(row, 1), sizeof(record));
        if (Result<void> good = check_record(record); !good.ok()) return damaged(good.error().message);
        if (sqlite3_column_int64(row, 0) != record.geometry.volume)
            return damaged("a volume has another VID than its key");
        records.volumes[record.geometry.volume] = record;
        return {};
    }));
    GN_TRY(db.each("SELECT vid FROM creating", [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        if (id < 1 || id > 0xFFFF || !records.volumes.contains(static_cast<nvme::VolumeId>(id)))
            return damaged("the creation of a volume that does not exist is under way");
        records.creating.insert(static_cast<nvme::VolumeId>(id));
        return {};
    }));
    GN_TRY(db.each("SELECT vid, epoch FROM retired", [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        if (id < 1 || id > 0xFFFF) return damaged("a retired VID is out of range");
        records.retired[static_cast<nvme::VolumeId>(id)] =
            static_cast<nvme::Epoch>(sqlite3_column_int64(row, 1));
        return {};
    }));
    GN_TRY(db.each("SELECT uuid, term FROM ssds", [&](sqlite3_stmt* row) -> Result<void> {
        SsdUuid uuid;
        if (sqlite3_column_bytes(row, 0) != static_cast<int>(uuid.size()))
            return damaged("the UUID of an SSD has a wrong size");
        std::memcpy(uuid.data(), sqlite3_column_blob(row, 0), uuid.size());
        const auto term = static_cast<std::uint64_t>(sqlite3_column_int64(row, 1));
        if (term > records.term) return damaged("an SSD has a term that no gnstord had");
        records.ssd_terms[uuid] = term;
        return {};
    }));
    return records;
}

Result<void> SqliteRecordStore::Impl::put_array(const Change& change) {
    if (change.term) {
        GN_ASSIGN(const Statement put, db.prepare("UPDATE array SET term = ?1"));
        sqlite3_bind_int64(put.get(), 1, static_cast<sqlite3_int64>(*change.term));
        GN_TRY(db.finish(put, "store the term"));
    }
    if (change.epoch_floor) {
        GN_ASSIGN(const Statement put, db.prepare("UPDATE array SET epoch_floor = ?1"));
        sqlite3_bind_int64(put.get(), 1, *change.epoch_floor);
        GN_TRY(db.finish(put, "store the epoch floor"));
    }
    if (change.map) {
        GN_ASSIGN(const Statement put, db.prepare("UPDATE array SET map = ?1"));
        sqlite3_bind_blob(put.get(), 1, &*change.map, sizeof(*change.map), SQLITE_STATIC);
        GN_TRY(db.finish(put, "store the map"));
    }
    if (change.told) {
        GN_ASSIGN(const Statement put, db.prepare("UPDATE array SET told = ?1"));
        sqlite3_bind_int64(put.get(), 1, *change.told);
        GN_TRY(db.finish(put, "store the version in force"));
    }
    if (change.term || change.epoch_floor || change.map || change.told)
        return db.run(fmt::format("UPDATE array SET crc = {}", kArray.crc(kArray.columns)),
                      "store a checksum");
    return {};
}

Result<void> SqliteRecordStore::Impl::write(const Change& change) {
    GN_TRY(put_array(change));
    for (const auto& [id, client] : change.put_clients) {
        GN_ASSIGN(const Statement put, db.prepare(kClients.put("?1, ?2, ?3, ?4")));
        sqlite3_bind_int64(put.get(), 1, id);
        sqlite3_bind_text(put.get(), 2, client.name.c_str(), -1, SQLITE_STATIC);
        sqlite3_bind_int64(put.get(), 3, client.generation);
        sqlite3_bind_int64(put.get(), 4, client.removed ? 1 : 0);
        GN_TRY(db.finish(put, "store a client"));
    }
    for (const nvme::VolumeRecord& record : change.put_volumes) {
        GN_ASSIGN(const Statement put, db.prepare(kVolumes.put("?1, ?2, ?3, ?4")));
        sqlite3_bind_int64(put.get(), 1, record.geometry.volume);
        sqlite3_bind_text(put.get(), 2, record.name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(put.get(), 3, record.epoch);
        sqlite3_bind_blob(put.get(), 4, &record, sizeof(record), SQLITE_STATIC);
        GN_TRY(db.finish(put, "store a volume"));
        GN_TRY(with_vid("DELETE FROM retired WHERE vid = ?1", record.geometry.volume, "revive a VID"));
    }
    for (const nvme::VolumeId id : change.begin_creations)
        GN_TRY(with_vid(kCreating.put("?1"), id, "begin a creation"));
    for (const nvme::VolumeId id : change.end_creations)
        GN_TRY(with_vid("DELETE FROM creating WHERE vid = ?1", id, "end a creation"));
    for (const auto& [id, epoch] : change.retire_volumes) {
        GN_TRY(with_vid("DELETE FROM volumes WHERE vid = ?1", id, "delete a volume"));
        GN_TRY(with_vid("DELETE FROM creating WHERE vid = ?1", id, "end a creation"));
        GN_ASSIGN(const Statement put, db.prepare(kRetired.put("?1, ?2")));
        sqlite3_bind_int64(put.get(), 1, id);
        sqlite3_bind_int64(put.get(), 2, epoch);
        GN_TRY(db.finish(put, "retire a VID"));
    }
    for (const auto& [uuid, term] : change.ssd_terms) {
        GN_ASSIGN(const Statement put, db.prepare(kSsds.put("?1, ?2")));
        sqlite3_bind_blob(put.get(), 1, uuid.data(), static_cast<int>(uuid.size()), SQLITE_STATIC);
        sqlite3_bind_int64(put.get(), 2, static_cast<sqlite3_int64>(term));
        GN_TRY(db.finish(put, "store the term of an SSD"));
    }
    return {};
}

/// Reads all records at once, so that damage in them is found now.
Result<void> SqliteRecordStore::Impl::open_and_read() {
    GN_TRY(open());
    GN_ASSIGN([[maybe_unused]] const Records good, read());
    db.set_checkpoint_at_close(true);
    return {};
}

/// Renames the file and its write-ahead log.
Result<void> SqliteRecordStore::Impl::quarantine() {
    db.close();
    std::error_code failed;
    const std::string file = db.file().string();
    for (int n = 1; n < 1000 && quarantined.empty(); ++n) {
        const std::string aside = file + fmt::format(".damaged-{}", n);
        if (std::filesystem::exists(aside, failed)) continue;
        std::filesystem::rename(file, aside, failed);
        if (failed)
            return error(Errc::kIo, "the damaged record store {} cannot be moved to {}: {}", file, aside,
                         failed.message());
        std::filesystem::rename(file + "-wal", aside + "-wal", failed);  // fails if there is none
        quarantined = aside;
    }
    std::filesystem::remove(file + "-wal", failed);
    std::filesystem::remove(file + "-shm", failed);
    return {};
}

SqliteRecordStore::SqliteRecordStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteRecordStore::~SqliteRecordStore() = default;

Result<std::unique_ptr<SqliteRecordStore>> SqliteRecordStore::open(const SqliteStoreOptions& options) {
    auto impl = std::make_unique<Impl>(options.file);
    Result<void> opened = impl->open_and_read();
    if (!opened.ok() && opened.error().code == Errc::kCorrupt && options.quarantine) {
        GN_TRY(impl->quarantine());
        opened = impl->open_and_read();
    }
    if (!opened.ok()) return std::move(opened).error();
    return std::unique_ptr<SqliteRecordStore>(new SqliteRecordStore(std::move(impl)));
}

Result<Records> SqliteRecordStore::load() {
    return impl_->read();
}

Result<void> SqliteRecordStore::save(const Change& change) {
    if (impl_->db.is_read_only())
        return error(
            Errc::kPermission,
            "the record store {} lies on a read-only file system; mount it writable, and restart gnstord",
            impl_->db.file().string());
    GN_TRY(impl_->db.run("BEGIN IMMEDIATE", "begin a change"));
    Result<void> written = impl_->write(change);
    if (written.ok()) written = impl_->db.run("COMMIT", "commit a change");
    if (!written.ok())
        (void)impl_->db.run("ROLLBACK", "undo a change").ok();  // the first error is the one to tell
    return written;
}

const std::filesystem::path& SqliteRecordStore::quarantined() const {
    return impl_->quarantined;
}

}  // namespace gnstor::daemon
