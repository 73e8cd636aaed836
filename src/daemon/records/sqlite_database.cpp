#include "daemon/records/sqlite_database.hpp"

#include <fmt/core.h>
#include <gnstor/base/crc32c.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gnstor::daemon {
namespace {

/// The SQLite URI that opens a file as immutable; '%', '?' and '#' of the path must be escaped.
std::string immutable_uri(const std::filesystem::path& file) {
    std::string uri = "file:";
    for (const char c : file.string()) {
        if (c == '%' || c == '?' || c == '#')
            uri += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        else
            uri += c;
    }
    return uri + "?immutable=1";
}

/// Implements gn_crc() for SQL.
void crc_of_row(sqlite3_context* context, int count, sqlite3_value** values) {
    std::uint32_t crc = 0;
    for (int i = 0; i < count; ++i) {
        const int type = sqlite3_value_type(values[i]);
        const std::int64_t number = type == SQLITE_INTEGER ? sqlite3_value_int64(values[i]) : 0;
        const void* bytes = type == SQLITE_INTEGER ? &number : sqlite3_value_blob(values[i]);
        const std::int64_t size = type == SQLITE_INTEGER ? std::int64_t{sizeof number}
                                                         : std::int64_t{sqlite3_value_bytes(values[i])};
        const std::int64_t head[2] = {type, size};
        crc = crc32c(head, sizeof head, crc);
        if (size != 0) crc = crc32c(bytes, static_cast<std::size_t>(size), crc);
    }
    sqlite3_result_int64(context, crc);
}

}  // namespace

SqliteDatabase::~SqliteDatabase() {
    close();
}

void SqliteDatabase::set_checkpoint_at_close(bool on) {
    sqlite3_db_config(db_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

void SqliteDatabase::close() {
    db_.reset();
    if (read_only_lock_ >= 0) ::close(read_only_lock_);
    read_only_lock_ = -1;
}

Error SqliteDatabase::damaged(const std::string& what) const {
    return error(Errc::kCorrupt,
                 "the record store {} is damaged or is not a record store ({}); move it away, and gnstord "
                 "rebuilds it from the SSDs, or start gnstord with --quarantine-store",
                 file_.string(), what);
}

Error SqliteDatabase::failed(const char* what) const {
    const int code = db_ == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(db_.get()) & 0xFF;
    const char* text = db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_.get());
    // SQLITE_ERROR: our statements are correct, so the file has other tables than its header says.
    const bool wrong_header = code == SQLITE_READONLY && !read_only_;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR || wrong_header)
        return damaged(fmt::format("{}: {}", what, text));
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return error(Errc::kBusy, "the record store {} is in use by another gnstord; stop that gnstord first",
                     file_.string());
    if (code == SQLITE_READONLY)
        return error(
            Errc::kPermission,
            "the record store {} lies on a read-only file system; mount it writable, and restart gnstord",
            file_.string());
    if (code == SQLITE_FULL)
        return error(Errc::kNoSpace, "the disk of the record store {} is full; free some disk space",
                     file_.string());
    return error(Errc::kIo, "the record store {} failed to {}: {}", file_.string(), what, text);
}

/// On a read-only file system, a write-ahead log left by a kill is read as usual, not ignored (as `immutable`
/// would): SQLite builds the log's index in this process's memory and writes no file. Without a log, as after
/// a clean close, SQLite would try to create one, so the file is opened as immutable, which it is there. A
/// rollback journal, left by a kill while the tables were created, cannot be rolled back: the store is
/// refused. SQLite's locks need a writable descriptor; flock() does not, and suffices as the file cannot
/// change.
Result<void> SqliteDatabase::open_file() {
    // SQLite would create the file with mode 0644, and a user who can read it can lock it.
    const int probe = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    read_only_ = probe < 0 && errno == EROFS;
    struct stat info {};
    if (probe >= 0 && ::fstat(probe, &info) == 0 && (info.st_mode & S_IRWXO) != 0)
        (void)::fchmod(probe, info.st_mode & ~static_cast<mode_t>(S_IRWXO));  // of an older gnstord
    if (probe >= 0) ::close(probe);
    if (read_only_) read_only_lock_ = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
    if (read_only_lock_ >= 0 && ::flock(read_only_lock_, LOCK_EX | LOCK_NB) != 0)
        return error(Errc::kBusy, "the record store {} is in use by another gnstord; stop that gnstord first",
                     file_.string());
    sqlite3* raw = nullptr;
    constexpr int kReading = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    std::error_code missing;
    const auto lacks = [&](const char* log) {
        return !std::filesystem::exists(file_.string() + log, missing) && !missing;
    };
    const bool closed = read_only_ && lacks("-wal") && lacks("-journal");
    const int code =
        closed ? sqlite3_open_v2(immutable_uri(file_).c_str(), &raw, kReading | SQLITE_OPEN_URI, nullptr)
        : read_only_
            ? sqlite3_open_v2(file_.c_str(), &raw, kReading, "unix-none")
            : sqlite3_open_v2(file_.c_str(), &raw,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    db_.reset(raw);
    if (code != SQLITE_OK) return failed("open");
    sqlite3_extended_result_codes(db_.get(), 1);
    return {};
}

Result<void> SqliteDatabase::open() {
    GN_TRY(open_file());
    // Exclusive: one gnstord per store, and no shared-memory file beside it.
    GN_TRY(run("PRAGMA locking_mode = EXCLUSIVE", "lock"));
    GN_TRY(run("PRAGMA trusted_schema = OFF", "configure"));
    set_checkpoint_at_close(false);
    if (sqlite3_create_function_v2(db_.get(), "gn_crc", -1,
                                   SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                                   crc_of_row, nullptr, nullptr, nullptr) != SQLITE_OK)
        return failed("configure");
    return {};
}

Result<void> SqliteDatabase::run(const std::string& sql, const char* what) {
    if (sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return failed(what);
}

Result<Statement> SqliteDatabase::prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &statement, nullptr) != SQLITE_OK)
        return failed("prepare a statement");
    return Statement(statement);
}

Result<std::int64_t> SqliteDatabase::number(const std::string& sql) {
    GN_ASSIGN(const Statement statement, prepare(sql));
    if (sqlite3_step(statement.get()) != SQLITE_ROW) return failed("read its header");
    return static_cast<std::int64_t>(sqlite3_column_int64(statement.get(), 0));
}

Result<void> SqliteDatabase::finish(const Statement& statement, const char* what) {
    if (sqlite3_step(statement.get()) != SQLITE_DONE) return failed(what);
    return {};
}

Result<void> SqliteDatabase::check_integrity() {
    GN_ASSIGN(const Statement check, prepare("PRAGMA integrity_check(1)"));
    if (sqlite3_step(check.get()) != SQLITE_ROW) return failed("check its integrity");
    const char* verdict = reinterpret_cast<const char*>(sqlite3_column_text(check.get(), 0));
    if (verdict == nullptr || std::strcmp(verdict, "ok") != 0)
        return damaged(verdict == nullptr ? "the integrity check gave no result" : verdict);
    return {};
}

}  // namespace gnstor::daemon
