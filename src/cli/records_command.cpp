// records_command.cpp: gnstor records: copies or moves an array's records between an SQLite file and etcd, while no gnstord
// of the array runs.
#include "cli/cli.hpp"
#include "cli/etcd_options.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/records/etcd_store.hpp"
#include "daemon/records/record_entries.hpp"
#include "daemon/records/sqlite_store.hpp"
#include "daemon/standby/election.hpp"

#include <condition_variable>
#include <filesystem>
#include <mutex>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
    std::string from, to;
    EtcdOptions etcd;
};

constexpr std::string_view kSqlite = "sqlite:", kEtcd = "etcd:";
/// The lease of a gnstord that was killed has ended by then.
constexpr std::chrono::seconds kElection{10};
/// Volumes of one request to etcd; each has about half a KiB.
constexpr std::size_t kVolumesOfRequest = 1'000;

/// One end of the copy.
class Place {
  public:
    virtual ~Place() = default;
    virtual Result<daemon::Records> read() = 0;
    virtual Result<void> write(const daemon::Records& records) = 0;
    /// What was there is not used any more; says where it is.
    virtual Result<std::string> retire() = 0;
};

class SqlitePlace final : public Place {
  public:
    static Result<std::unique_ptr<Place>> open(const fs::path& file, bool must_exist) {
        std::error_code failed;
        if (must_exist && !fs::exists(file, failed))
            return error(Errc::kNotFound, "there is no record store {}", file.string());
        auto place = std::make_unique<SqlitePlace>(file);
        GN_ASSIGN(place->store_, daemon::SqliteRecordStore::open({file, false}));
        return std::unique_ptr<Place>(std::move(place));
    }
    explicit SqlitePlace(fs::path file) : file_(std::move(file)) {}
    Result<daemon::Records> read() override {
        if (store_) return store_->load();
        GN_ASSIGN(store_, daemon::SqliteRecordStore::open({file_, false}));
        return store_->load();
    }
    Result<void> write(const daemon::Records& records) override {
        GN_TRY(store_->save(daemon::change_to(records)));
        store_.reset();  // read() reads the file
        return {};
    }
    Result<std::string> retire() override {
        store_.reset();
        std::error_code failed;
        for (int n = 1; n < 1000; ++n) {
            const fs::path aside = file_.string() + fmt::format(".moved-{}", n);
            if (fs::exists(aside, failed)) continue;
            fs::rename(file_, aside, failed);
            if (failed) break;
            return aside.string();
        }
        return error(Errc::kIo,
                     "the records were copied, but {} cannot be renamed ({}); move it away yourself, or a "
                     "gnstord would "
                     "use it",
                     file_.string(), failed.message());
    }

  private:
    const fs::path file_;
    std::unique_ptr<daemon::SqliteRecordStore> store_;
};

class EtcdPlace final : public Place {
  public:
    static Result<std::unique_ptr<Place>> open(const EtcdOptions& options) {
        GN_ASSIGN(const daemon::EtcdServers servers, options.servers());
        std::unique_ptr<EtcdPlace> place(new EtcdPlace(servers, options.prefix));
        GN_TRY(place->lead());
        return std::unique_ptr<Place>(std::move(place));
    }
    Result<daemon::Records> read() override {
        store_ = std::make_unique<daemon::EtcdRecordStore>(daemon::connect_etcd(servers_), prefix_,
                                                           election_->leadership());
        return store_->load();
    }
    Result<void> write(const daemon::Records& records) override;
    Result<std::string> retire() override {
        GN_TRY(store_->erase());
        return std::string("deleted");
    }

  private:
    EtcdPlace(daemon::EtcdServers servers, std::string prefix)
        : servers_(std::move(servers)), prefix_(std::move(prefix)) {}
    Result<void> lead();
    const daemon::EtcdServers servers_;
    const std::string prefix_;
    std::mutex mutex_;  // of changed_
    std::condition_variable changed_;
    std::unique_ptr<daemon::Election> election_;
    std::unique_ptr<daemon::EtcdRecordStore> store_;
};

/// Only who leads writes; and while this command does, no gnstord begins.
Result<void> EtcdPlace::lead() {
    daemon::ElectionOptions options{.prefix = prefix_,
                                    .address = "gnstor records",
                                    .changed =
                                        [this] {
                                            const std::scoped_lock lock(mutex_);
                                            changed_.notify_all();
                                        },
                                    .now_ms = daemon::boottime_ms};
    const auto until = std::chrono::steady_clock::now() + kElection;
    std::unique_lock lock(mutex_);
    election_ = daemon::Election::start(daemon::connect_etcd(servers_), std::move(options));
    const auto leads = [this] { return election_->leadership() != nullptr; };
    if (changed_.wait_until(lock, until, leads)) return {};
    return error(Errc::kBusy,
                 "the records in etcd under {} cannot be locked: {}. Stop every gnstord of the array first",
                 prefix_, election_->who_leads());
}

/// In several requests, as etcd limits their size. Without the term, which comes last, the records are refused.
Result<void> EtcdPlace::write(const daemon::Records& records) {
    daemon::Change whole = daemon::change_to(records);
    const std::vector<nvme::VolumeRecord> volumes = std::exchange(whole.put_volumes, {});
    for (std::size_t i = 0; i < volumes.size(); i += kVolumesOfRequest) {
        daemon::Change some;
        const auto end =
            volumes.begin() + static_cast<std::ptrdiff_t>(std::min(volumes.size(), i + kVolumesOfRequest));
        some.put_volumes.assign(volumes.begin() + static_cast<std::ptrdiff_t>(i), end);
        GN_TRY(store_->save(some));
    }
    return store_->save(whole);
}

Result<std::unique_ptr<Place>> open_place(const std::string& text, const Options& options, bool source) {
    if (text.starts_with(kSqlite) && text.size() > kSqlite.size())
        return SqlitePlace::open(text.substr(kSqlite.size()), source);
    if (text.starts_with(kEtcd)) {
        EtcdOptions etcd = options.etcd;
        etcd.urls = text.substr(kEtcd.size());
        return EtcdPlace::open(etcd);
    }
    return error(Errc::kInvalidArgument,
                 "'{}' is no place of records; write sqlite:PATH or etcd:URL[,URL...]", text);
}

bool are_equal(const daemon::Records& a, const daemon::Records& b) {
    return daemon::entries_of(daemon::change_to(a)) == daemon::entries_of(daemon::change_to(b));
}

bool is_empty(const daemon::Records& records) {
    return are_equal(records, {});
}

Result<int> transfer(const Context& c, const Options& options, bool move) {
    if (options.from.starts_with(kEtcd) && options.to.starts_with(kEtcd))
        return error(Errc::kInvalidArgument, "one of the places must be an SQLite file; copy in two steps");
    GN_ASSIGN(const std::unique_ptr<Place> from, open_place(options.from, options, true));
    GN_ASSIGN(const daemon::Records records, from->read());
    if (is_empty(records)) return error(Errc::kNotFound, "{} holds no records", options.from);
    GN_ASSIGN(const std::unique_ptr<Place> to, open_place(options.to, options, false));
    GN_ASSIGN(const daemon::Records before, to->read());
    // A move that was interrupted after its copy: only the first place is left to be set aside.
    const bool copied = move && are_equal(before, records);
    if (!is_empty(before) && !copied)
        return error(
            Errc::kExists,
            "{} holds records already (term {}, {} volumes), which would be lost; move them away first",
            options.to, before.term, before.volumes.size());
    if (!copied) {
        GN_TRY(to->write(records));
    }
    GN_ASSIGN(const daemon::Records there, to->read());
    if (!are_equal(there, records))
        return error(Errc::kCorrupt,
                     "what {} holds after the copy is not what was copied; nothing else was changed",
                     options.to);
    std::string retired;
    if (move) {
        GN_ASSIGN(retired, from->retire());
    }
    c.out.document({{"volumes", records.volumes.size()},
                    {"clients", records.clients.size()},
                    {"term", records.term},
                    {"moved", move}});
    c.out.text(fmt::format("{} {} volumes and {} clients (term {}) from {} to {}\n",
                           move ? "moved" : "copied", records.volumes.size(), records.clients.size(),
                           records.term, options.from, options.to));
    if (move)
        c.out.text(fmt::format("the records at {} are {}\n", options.from,
                               retired == "deleted" ? retired : "in " + retired + " now"));
    return kOk;
}

}  // namespace

void add_records_command(CLI::App& app, Context& context) {
    CLI::App* const records = app.add_subcommand("records",
                                                 "copy or move the records of an array between an SQLite "
                                                 "file and etcd, while its gnstords are stopped");
    records->require_subcommand(1);
    for (const bool move : {false, true}) {
        CLI::App* const command =
            move ? records->add_subcommand("move",
                                           "the same, and then set the records at the first place aside")
                 : records->add_subcommand("copy", "copy the records to a place that has none");
        auto options = std::make_shared<Options>();
        command->add_option("--from", options->from, "sqlite:PATH of records.db, or etcd:URL[,URL...]")
            ->required();
        command->add_option("--to", options->to, "likewise")->required();
        add_etcd_details(*command, options->etcd, nullptr);
        command->callback([&context, options, move] {
            context.action = [&context, options, move] {
                return finish(context, transfer(context, *options, move));
            };
        });
    }
}

}  // namespace gnstor::cli
