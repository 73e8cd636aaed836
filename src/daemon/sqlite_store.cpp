#include "daemon/sqlite_store.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gnstor::daemon {
namespace {

constexpr std::int64_t kApplicationId = 0x474E5374;  // "GNSt"

constexpr const char* kSchema =
    "CREATE TABLE array(id INTEGER PRIMARY KEY CHECK(id = 1), term INTEGER NOT NULL, epoch_floor INTEGER NOT "
    "NULL, map BLOB, told INTEGER NOT NULL DEFAULT 0);"
    "INSERT INTO array VALUES(1, 0, 0, NULL, 0);"
    "CREATE TABLE clients(id INTEGER PRIMARY KEY, name TEXT NOT NULL);"
    "CREATE TABLE volumes(vid INTEGER PRIMARY KEY, name TEXT NOT NULL, epoch INTEGER NOT NULL, record BLOB "
    "NOT NULL);"
    "CREATE TABLE creating(vid INTEGER PRIMARY KEY);"
    "CREATE TABLE retired(vid INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);"
    "CREATE TABLE ssds(uuid BLOB PRIMARY KEY, term INTEGER NOT NULL);";

struct Close {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

Error sqlite_error(sqlite3* db, const std::filesystem::path& file, const char* what) {
    const int code = db == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(db) & 0xFF;
    const char* text = db == nullptr ? "out of memory" : sqlite3_errmsg(db);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return error(
            Errc::kCorrupt,
            "the record store {} is damaged or not one ({}: {}); move it away and gnstord rebuilds it from "
            "the SSDs, or start with --quarantine-store",
            file.string(), what, text);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return error(Errc::kBusy, "the record store {} is in use by another gnstord; stop that one first",
                     file.string());
    if (code == SQLITE_READONLY)
        return error(Errc::kPermission,
                     "the record store {} lies on a read-only file system; mount it writable, and start "
                     "gnstord anew",
                     file.string());
    if (code == SQLITE_FULL)
        return error(Errc::kNoSpace, "the disk of the record store {} is full", file.string());
    return error(Errc::kIo, "the record store {} failed to {}: {}", file.string(), what, text);
}

}  // namespace

struct SqliteRecordStore::Impl {
    std::filesystem::path file;
    std::filesystem::path quarantined;
    Database db;
    int read_only_lock = -1;  ///< of the file, where it cannot be written to
    bool read_only = false;

    Impl() = default;
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    ~Impl() {
        db.reset();
        if (read_only_lock >= 0) ::close(read_only_lock);
    }
    Result<void> run(const char* sql, const char* what) {
        if (sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
        return sqlite_error(db.get(), file, what);
    }
    Result<Statement> prepare(const char* sql) {
        sqlite3_stmt* statement = nullptr;
        if (sqlite3_prepare_v2(db.get(), sql, -1, &statement, nullptr) != SQLITE_OK)
            return sqlite_error(db.get(), file, "prepare a statement");
        return Statement(statement);
    }
    Result<std::int64_t> number(const char* sql) {
        GN_ASSIGN(const Statement statement, prepare(sql));
        if (sqlite3_step(statement.get()) != SQLITE_ROW)
            return sqlite_error(db.get(), file, "read its header");
        return static_cast<std::int64_t>(sqlite3_column_int64(statement.get(), 0));
    }
    Result<void> finish(const Statement& statement, const char* what) {
        if (sqlite3_step(statement.get()) != SQLITE_DONE) return sqlite_error(db.get(), file, what);
        return {};
    }
    Result<void> with_vid(const char* sql, nvme::VolumeId id, const char* what) {
        GN_ASSIGN(const Statement statement, prepare(sql));
        sqlite3_bind_int64(statement.get(), 1, id);
        return finish(statement, what);
    }

    Result<void> open();
    Result<void> open_file();
    Result<void> check_integrity();
    Result<void> check_header();
    Result<void> check_or_make_schema();
    Result<void> write(const Change& change);
    Result<void> put_array(const Change& change);
    Result<Records> read();
    template <class Row>
    Result<void> each(const char* sql, Row row);
};

/// On a read-only file system the write-ahead log that a kill left is read as always, never ignored
/// (`immutable` would): SQLite rebuilds its index of it in this process's memory and writes to neither file.
/// A rollback journal, left by a kill while the tables were made, cannot be rolled back: that is refused. The
/// locks of SQLite need a descriptor that may write; flock() does not, and the file cannot change anyway.
Result<void> SqliteRecordStore::Impl::open_file() {
    const int probe = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    read_only = probe < 0 && errno == EROFS;
    if (probe >= 0) ::close(probe);
    if (read_only) read_only_lock = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (read_only_lock >= 0 && ::flock(read_only_lock, LOCK_EX | LOCK_NB) != 0)
        return error(Errc::kBusy, "the record store {} is in use by another gnstord; stop that one first",
                     file.string());
    sqlite3* raw = nullptr;
    const int code =
        read_only
            ? sqlite3_open_v2(file.c_str(), &raw, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, "unix-none")
            : sqlite3_open_v2(file.c_str(), &raw,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    db.reset(raw);
    if (code != SQLITE_OK) return sqlite_error(db.get(), file, "open");
    sqlite3_extended_result_codes(db.get(), 1);
    return {};
}

Result<void> SqliteRecordStore::Impl::open() {
    GN_TRY(open_file());
    // Exclusive: one gnstord a store, and no shared-memory file beside it.
    GN_TRY(run("PRAGMA locking_mode = EXCLUSIVE", "lock"));
    GN_TRY(run("PRAGMA trusted_schema = OFF", "configure"));
    if (read_only) {
        GN_TRY(check_header());
        return check_integrity();
    }
    GN_TRY(check_or_make_schema());
    GN_TRY(run("PRAGMA journal_mode = WAL", "enter write-ahead logging"));
    GN_TRY(run("PRAGMA synchronous = FULL", "configure"));
    return check_integrity();
}

Result<void> SqliteRecordStore::Impl::check_header() {
    GN_ASSIGN(const std::int64_t application, number("PRAGMA application_id"));
    GN_ASSIGN(const std::int64_t schema, number("PRAGMA user_version"));
    if (application == kApplicationId && schema == kStoreSchema) return {};
    return error(Errc::kUnsupported,
                 "the record store {} cannot be used on a read-only file system: it is empty, another "
                 "program's, or has another schema ({}, this gnstord has {}); mount it writable",
                 file.string(), schema, kStoreSchema);
}

Result<void> SqliteRecordStore::Impl::check_integrity() {
    GN_ASSIGN(const Statement check, prepare("PRAGMA integrity_check(1)"));
    if (sqlite3_step(check.get()) != SQLITE_ROW) return sqlite_error(db.get(), file, "check its integrity");
    const char* verdict = reinterpret_cast<const char*>(sqlite3_column_text(check.get(), 0));
    if (verdict == nullptr || std::strcmp(verdict, "ok") != 0)
        return error(Errc::kCorrupt,
                     "the record store {} is damaged ({}); move it away and gnstord rebuilds it from the "
                     "SSDs, or start "
                     "with --quarantine-store",
                     file.string(), verdict == nullptr ? "no verdict" : verdict);
    return {};
}

Result<void> SqliteRecordStore::Impl::check_or_make_schema() {
    GN_TRY(run("BEGIN IMMEDIATE", "lock"));
    GN_ASSIGN(const std::int64_t application, number("PRAGMA application_id"));
    GN_ASSIGN(const std::int64_t schema, number("PRAGMA user_version"));
    GN_ASSIGN(const std::int64_t tables, number("SELECT count(*) FROM sqlite_master"));
    if (application == 0 && schema == 0 && tables == 0) {
        GN_TRY(run(kSchema, "make its tables"));
        GN_TRY(run(
            fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kStoreSchema)
                .c_str(),
            "make its header"));
    } else if (application != kApplicationId) {
        return error(
            Errc::kCorrupt,
            "{} is a database of another program, not a record store of gnstord; choose another file",
            file.string());
    } else if (schema > kStoreSchema) {
        return error(
            Errc::kUnsupported,
            "the record store {} was written by a newer gnstord (schema {}, this one knows {}); use that one",
            file.string(), schema, kStoreSchema);
    } else if (schema < 1) {
        return error(Errc::kCorrupt, "the record store {} has the impossible schema {}", file.string(),
                     schema);
    } else {
        if (schema < 2)  // schema 2 added the creations under way
            GN_TRY(run("CREATE TABLE creating(vid INTEGER PRIMARY KEY)", "renew its tables"));
        if (schema < 3)  // schema 3 added the map version that was in force once
            GN_TRY(run("ALTER TABLE array ADD COLUMN told INTEGER NOT NULL DEFAULT 0", "renew its tables"));
        if (schema < 4)  // schema 4 added the terms that SSDs have stored
            GN_TRY(
                run("CREATE TABLE ssds(uuid BLOB PRIMARY KEY, term INTEGER NOT NULL); PRAGMA "
                    "user_version = 4",
                    "renew its tables"));
    }
    return run("COMMIT", "keep its tables");
}

template <class Row>
Result<void> SqliteRecordStore::Impl::each(const char* sql, Row row) {
    GN_ASSIGN(const Statement statement, prepare(sql));
    for (;;) {
        const int step = sqlite3_step(statement.get());
        if (step == SQLITE_DONE) return {};
        if (step != SQLITE_ROW) return sqlite_error(db.get(), file, "read");
        if (Result<void> good = row(statement.get()); !good.ok()) return good;
    }
}

Result<Records> SqliteRecordStore::Impl::read() {
    Records records;
    const auto damaged = [&](const char* what) {
        return error(Errc::kCorrupt,
                     "the record store {} is damaged: {}; move it away and gnstord rebuilds it from the SSDs",
                     file.string(), what);
    };
    bool found = false;
    GN_TRY(each("SELECT term, epoch_floor, map, told FROM array", [&](sqlite3_stmt* row) -> Result<void> {
        found = true;
        records.term = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0));
        records.epoch_floor = static_cast<nvme::Epoch>(sqlite3_column_int64(row, 1));
        records.told = static_cast<nvme::MapVersion>(sqlite3_column_int64(row, 3));
        if (sqlite3_column_type(row, 2) == SQLITE_NULL) return {};
        if (sqlite3_column_bytes(row, 2) != static_cast<int>(sizeof(records.map)))
            return damaged("its map has a wrong size");
        std::memcpy(&records.map, sqlite3_column_blob(row, 2), sizeof(records.map));
        if (Result<void> good = check_map(records.map); !good.ok())
            return damaged(good.error().message.c_str());
        return {};
    }));
    if (!found) return damaged("it has no array record");
    GN_TRY(each("SELECT id, name FROM clients", [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        const auto* name = reinterpret_cast<const char*>(sqlite3_column_text(row, 1));
        if (id < 1 || id > 0xFFFF || name == nullptr) return damaged("a client is out of range");
        records.clients[static_cast<nvme::ClientId>(id)] = name;
        return {};
    }));
    GN_TRY(each("SELECT vid, record FROM volumes", [&](sqlite3_stmt* row) -> Result<void> {
        nvme::VolumeRecord record{};
        if (sqlite3_column_bytes(row, 1) != static_cast<int>(sizeof(record)))
            return damaged("a volume has a wrong size");
        std::memcpy(&record, sqlite3_column_blob(row, 1), sizeof(record));
        if (Result<void> good = check_record(record); !good.ok())
            return damaged(good.error().message.c_str());
        if (sqlite3_column_int64(row, 0) != record.geometry.volume)
            return damaged("a volume has another VID than its key");
        records.volumes[record.geometry.volume] = record;
        return {};
    }));
    GN_TRY(each("SELECT vid FROM creating", [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        if (id < 1 || id > 0xFFFF || !records.volumes.contains(static_cast<nvme::VolumeId>(id)))
            return damaged("a creation under way is of no volume");
        records.creating.insert(static_cast<nvme::VolumeId>(id));
        return {};
    }));
    GN_TRY(each("SELECT vid, epoch FROM retired", [&](sqlite3_stmt* row) -> Result<void> {
        const std::int64_t id = sqlite3_column_int64(row, 0);
        if (id < 1 || id > 0xFFFF) return damaged("a retired VID is out of range");
        records.retired[static_cast<nvme::VolumeId>(id)] =
            static_cast<nvme::Epoch>(sqlite3_column_int64(row, 1));
        return {};
    }));
    GN_TRY(each("SELECT uuid, term FROM ssds", [&](sqlite3_stmt* row) -> Result<void> {
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
        GN_ASSIGN(const Statement put, prepare("UPDATE array SET term = ?1"));
        sqlite3_bind_int64(put.get(), 1, static_cast<sqlite3_int64>(*change.term));
        GN_TRY(finish(put, "store the term"));
    }
    if (change.epoch_floor) {
        GN_ASSIGN(const Statement put, prepare("UPDATE array SET epoch_floor = ?1"));
        sqlite3_bind_int64(put.get(), 1, *change.epoch_floor);
        GN_TRY(finish(put, "store the epoch floor"));
    }
    if (change.map) {
        GN_ASSIGN(const Statement put, prepare("UPDATE array SET map = ?1"));
        sqlite3_bind_blob(put.get(), 1, &*change.map, sizeof(*change.map), SQLITE_STATIC);
        GN_TRY(finish(put, "store the map"));
    }
    if (change.told) {
        GN_ASSIGN(const Statement put, prepare("UPDATE array SET told = ?1"));
        sqlite3_bind_int64(put.get(), 1, *change.told);
        GN_TRY(finish(put, "store the version in force"));
    }
    return {};
}

Result<void> SqliteRecordStore::Impl::write(const Change& change) {
    GN_TRY(put_array(change));
    for (const auto& [id, name] : change.put_clients) {
        GN_ASSIGN(const Statement put, prepare("INSERT OR REPLACE INTO clients VALUES(?1, ?2)"));
        sqlite3_bind_int64(put.get(), 1, id);
        sqlite3_bind_text(put.get(), 2, name.c_str(), -1, SQLITE_STATIC);
        GN_TRY(finish(put, "store a client"));
    }
    for (const nvme::VolumeRecord& record : change.put_volumes) {
        GN_ASSIGN(const Statement put, prepare("INSERT OR REPLACE INTO volumes VALUES(?1, ?2, ?3, ?4)"));
        sqlite3_bind_int64(put.get(), 1, record.geometry.volume);
        sqlite3_bind_text(put.get(), 2, record.name, -1, SQLITE_STATIC);
        sqlite3_bind_int64(put.get(), 3, record.epoch);
        sqlite3_bind_blob(put.get(), 4, &record, sizeof(record), SQLITE_STATIC);
        GN_TRY(finish(put, "store a volume"));
        GN_TRY(with_vid("DELETE FROM retired WHERE vid = ?1", record.geometry.volume, "revive a VID"));
    }
    for (const nvme::VolumeId id : change.begin_creations)
        GN_TRY(with_vid("INSERT OR REPLACE INTO creating VALUES(?1)", id, "begin a creation"));
    for (const nvme::VolumeId id : change.end_creations)
        GN_TRY(with_vid("DELETE FROM creating WHERE vid = ?1", id, "end a creation"));
    for (const auto& [id, epoch] : change.retire_volumes) {
        GN_TRY(with_vid("DELETE FROM volumes WHERE vid = ?1", id, "delete a volume"));
        GN_TRY(with_vid("DELETE FROM creating WHERE vid = ?1", id, "end a creation"));
        GN_ASSIGN(const Statement put, prepare("INSERT OR REPLACE INTO retired VALUES(?1, ?2)"));
        sqlite3_bind_int64(put.get(), 1, id);
        sqlite3_bind_int64(put.get(), 2, epoch);
        GN_TRY(finish(put, "retire a VID"));
    }
    for (const auto& [uuid, term] : change.ssd_terms) {
        GN_ASSIGN(const Statement put, prepare("INSERT OR REPLACE INTO ssds VALUES(?1, ?2)"));
        sqlite3_bind_blob(put.get(), 1, uuid.data(), static_cast<int>(uuid.size()), SQLITE_STATIC);
        sqlite3_bind_int64(put.get(), 2, static_cast<sqlite3_int64>(term));
        GN_TRY(finish(put, "store the term of an SSD"));
    }
    return {};
}

SqliteRecordStore::SqliteRecordStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteRecordStore::~SqliteRecordStore() = default;

Result<std::unique_ptr<SqliteRecordStore>> SqliteRecordStore::open(const SqliteStoreOptions& options) {
    auto impl = std::make_unique<Impl>();
    impl->file = options.file;
    Result<void> opened = impl->open();
    if (opened.ok())
        opened = [&]() -> Result<void> {
            Result<Records> records = impl->read();  // damage inside the records is found now, not later
            if (!records.ok()) return std::move(records).error();
            return {};
        }();
    if (!opened.ok() && opened.error().code == Errc::kCorrupt && options.quarantine) {
        impl->db.reset();
        std::error_code failed;
        for (int n = 1; n < 1000 && impl->quarantined.empty(); ++n) {
            const std::filesystem::path aside = options.file.string() + fmt::format(".damaged-{}", n);
            if (std::filesystem::exists(aside, failed)) continue;
            std::filesystem::rename(options.file, aside, failed);
            if (failed)
                return error(Errc::kIo, "the damaged record store {} cannot be moved to {}: {}",
                             options.file.string(), aside.string(), failed.message());
            impl->quarantined = aside;
        }
        std::filesystem::remove(options.file.string() + "-wal", failed);
        std::filesystem::remove(options.file.string() + "-shm", failed);
        opened = impl->open();
    }
    if (!opened.ok()) return std::move(opened).error();
    return std::unique_ptr<SqliteRecordStore>(new SqliteRecordStore(std::move(impl)));
}

Result<Records> SqliteRecordStore::load() {
    return impl_->read();
}

Result<void> SqliteRecordStore::save(const Change& change) {
    if (impl_->read_only)
        return error(Errc::kPermission,
                     "the record store {} lies on a read-only file system; mount it writable, and start "
                     "gnstord anew",
                     impl_->file.string());
    GN_TRY(impl_->run("BEGIN IMMEDIATE", "begin a change"));
    Result<void> written = impl_->write(change);
    if (written.ok()) written = impl_->run("COMMIT", "commit a change");
    if (!written.ok())
        (void)impl_->run("ROLLBACK", "undo a change").ok();  // the first error is the one to tell
    return written;
}

const std::filesystem::path& SqliteRecordStore::quarantined() const {
    return impl_->quarantined;
}

}  // namespace gnstor::daemon
