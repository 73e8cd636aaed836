// sqlite_database.hpp: one SQLite file; failures become errors that name the file.
//
// Adds a function gn_crc(table, value, ...) to SQL: the CRC-32C of a row, over the type, the length and the
// bytes of each value. SQLite itself has checksums only in its write-ahead log. One thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct CloseSqlite {
    void operator()(sqlite3* db) const { sqlite3_close(db); }
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, CloseSqlite>;

class SqliteDatabase {
  public:
    explicit SqliteDatabase(std::filesystem::path file) : file_(std::move(file)) {}
    ~SqliteDatabase();
    SqliteDatabase(const SqliteDatabase&) = delete;
    SqliteDatabase& operator=(const SqliteDatabase&) = delete;

    /// Opens the file exclusively: kBusy if another process has it open. Creates it if absent.
    Result<void> open();
    void close();
    /// Whether close() checkpoints the write-ahead log into the file. Initially off, so that a refused file
    /// stays unchanged.
    void set_checkpoint_at_close(bool on);
    [[nodiscard]] const std::filesystem::path& file() const { return file_; }
    [[nodiscard]] bool is_read_only() const { return read_only_; }

    Result<void> run(const std::string& sql, const char* what);
    Result<Statement> prepare(const std::string& sql);
    /// First column of the first row.
    Result<std::int64_t> number(const std::string& sql);
    Result<void> finish(const Statement& statement, const char* what);
    /// Calls row(statement) for each row, until one call returns an error.
    template <class Row>
    Result<void> each(const std::string& sql, Row row) {
        GN_ASSIGN(const Statement statement, prepare(sql));
        for (;;) {
            const int step = sqlite3_step(statement.get());
            if (step == SQLITE_DONE) return {};
            if (step != SQLITE_ROW) return failed("read");
            if (Result<void> good = row(statement.get()); !good.ok()) return good;
        }
    }
    /// Runs SQLite's own check of its pages.
    Result<void> check_integrity();
    /// kCorrupt, with what is damaged and what to do.
    [[nodiscard]] Error damaged(const std::string& what) const;

  private:
    Result<void> open_file();
    [[nodiscard]] Error failed(const char* what) const;

    const std::filesystem::path file_;
    std::unique_ptr<sqlite3, CloseSqlite> db_;
    int read_only_lock_ = -1;  ///< lock on a file that cannot be opened for writing
    bool read_only_ = false;
};

}  // namespace gnstor::daemon
