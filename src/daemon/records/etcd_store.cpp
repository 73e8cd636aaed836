#include "daemon/records/etcd_store.hpp"

#include "daemon/records/record_entries.hpp"

namespace gnstor::daemon {
namespace {

/// For one change, at all servers of etcd together. The Manager waits for it, and renews grants afterwards: a fraction of
/// T_grant (docs/array.md, rule 3).
constexpr std::chrono::milliseconds kDeadline{3'000};
/// More for a large one, as of records that are rebuilt: etcd reads about 5 MB of JSON a second.
std::chrono::milliseconds deadline_of(const std::string& request) {
    return kDeadline + std::chrono::milliseconds(request.size() / 1'000);
}
constexpr unsigned kKeysOfPage = 1'000;

}  // namespace

/// What became of a transaction.
struct EtcdRecordStore::Sent {
    EtcdFate fate;
    Error trouble;
    Outcome outcome = Outcome::kOvertaken;  ///< if it was answered
    std::int64_t revision = 0;              ///< of PREFIX/change now
};

EtcdRecordStore::EtcdRecordStore(std::unique_ptr<EtcdPort> port, std::string prefix,
                                 std::shared_ptr<Leadership> leadership)
    : port_(std::move(port)), prefix_(std::move(prefix)), leadership_(std::move(leadership)) {}

Result<void> EtcdRecordStore::check_leads() const {
    return leadership_->check();
}

Error EtcdRecordStore::superseded() {
    leadership_->end();
    return error(Errc::kState,
                 "another gnstord has taken over the records in etcd at {} under {}, or the key {} was "
                 "deleted; nothing "
                 "was stored",
                 port_->where(), prefix_, leader_key(prefix_));
}

Error EtcdRecordStore::unknown(const std::string& why) const {
    return error(Errc::kIo,
                 "it is not known whether etcd at {} stored the change ({}); gnstord finds out when etcd "
                 "answers again",
                 port_->where(), why);
}

Error EtcdRecordStore::damaged(const Error& what) const {
    return error(what.code,
                 "the records in etcd at {} under {}/records are damaged: {}; restore a snapshot of etcd, or "
                 "delete them "
                 "('etcdctl del --prefix {}/records/'), and gnstord rebuilds them from the SSDs",
                 port_->where(), prefix_, what.message, prefix_);
}

/// Etcd's words for a request above --max-request-bytes tell nothing about what to do.
Error EtcdRecordStore::refused(const Error& by_etcd, std::size_t entries) const {
    const bool large = by_etcd.message.find("too large") != std::string::npos ||
                       by_etcd.message.find("larger than max") != std::string::npos;
    if (!large) return by_etcd;
    return error(Errc::kNoSpace,
                 "a change of {} entries is larger than a request that etcd at {} takes (1.5 MiB by "
                 "default): start etcd "
                 "with a larger --max-request-bytes",
                 entries, port_->where());
}

/// Sends changes of entries under a new number of PREFIX/change. `after_last`: only if nothing was changed since the last
/// change that is known.
EtcdRecordStore::Sent EtcdRecordStore::send(EtcdTxn txn, bool after_last) {
    const std::string change_key = prefix_ + "/change";
    const std::string number = fmt::format("{}.{}", leadership_->revision(), ++sent_);
    txn.when.push_back({leader_key(prefix_), true, leadership_->revision()});
    if (after_last) txn.when.push_back({change_key, false, change_revision_});
    txn.changes.push_back({change_key, number});
    txn.otherwise = {leader_key(prefix_), change_key};
    const std::string request = etcd_txn(txn);
    const EtcdAnswer answer = port_->call(kEtcdTxnPath, request, deadline_of(request));
    Sent sent{answer.fate, answer.trouble};
    if (answer.fate == EtcdFate::kRefused && answer.maybe_twice) sent.fate = EtcdFate::kUnknown;
    if (answer.fate != EtcdFate::kAnswered) return sent;
    const Result<EtcdTxnAnswer> read = read_etcd_txn(answer.body);
    if (!read.ok() || (!read->succeeded && read->otherwise.size() != 2))
        return {EtcdFate::kUnknown,
                read.ok() ? error(Errc::kCorrupt, "its answer is not whole") : read.error()};
    if (read->succeeded) {
        sent.outcome = Outcome::kStored;
        sent.revision = read->revision;
        return sent;
    }
    const std::optional<EtcdKeyValue>& leader = read->otherwise[0];
    const std::optional<EtcdKeyValue>& there = read->otherwise[1];
    sent.revision = there ? there->mod_revision : 0;
    if (there && there->value == number)
        sent.outcome = Outcome::kStored;  // by an earlier attempt, whose answer was lost
    else if (!leader || leader->create_revision != leadership_->revision())
        sent.outcome = Outcome::kSuperseded;
    return sent;
}

Result<void> EtcdRecordStore::save(const Change& change) {
    EtcdTxn txn;
    for (auto& [key, value] : entries_of(change))
        txn.changes.push_back({prefix_ + "/records/" + key, std::move(value)});
    GN_TRY(change_entries(std::move(txn)));
    apply(*records_, change);
    return {};
}

Result<void> EtcdRecordStore::erase() {
    const std::string folder = prefix_ + "/records/";
    EtcdTxn txn;
    txn.changes.push_back({folder, std::nullopt, 0, etcd_end_of(folder)});
    GN_TRY(change_entries(std::move(txn)));
    records_ = Records{};
    return {};
}

Result<void> EtcdRecordStore::change_entries(EtcdTxn txn) {
    GN_TRY(leadership_->check());
    if (!records_)
        return error(Errc::kIo, "the outcome of an earlier change is not known yet; ask again later");
    const std::size_t entries = txn.changes.size();
    Sent sent = send(std::move(txn), true);
    switch (sent.fate) {
        case EtcdFate::kNotSent:
            return std::move(sent.trouble);
        case EtcdFate::kRefused:
            return refused(sent.trouble, entries);
        case EtcdFate::kUnknown:
            records_.reset();
            return unknown(sent.trouble.message);
        case EtcdFate::kAnswered:
            break;
    }
    if (sent.outcome == Outcome::kSuperseded) return superseded();
    // No request of this store can be under way: settle() ends those in doubt.
    if (sent.outcome == Outcome::kOvertaken) return overwritten();
    change_revision_ = sent.revision;
    return {};
}

/// Etcd holds other records than this daemon knows: only a start merges them with those of the SSDs.
Error EtcdRecordStore::overwritten() {
    leadership_->end();
    records_.reset();
    return error(
        Errc::kState,
        "the records in etcd at {} under {} are not those that this gnstord wrote last: a snapshot was "
        "restored, or somebody changed keys; nothing was stored, and the gnstord that leads next compares "
        "them with the SSDs",
        port_->where(), prefix_);
}

Result<Records> EtcdRecordStore::load() {
    if (!records_) {
        GN_TRY(leadership_->check());
        GN_TRY(settle());
        GN_TRY(read_all());
    }
    return *records_;
}

/// From here on no earlier transaction of this daemon, or of another one, is carried out any more.
Result<void> EtcdRecordStore::settle() {
    Sent sent = send({}, false);
    if (sent.fate != EtcdFate::kAnswered) return std::move(sent.trouble);
    if (sent.outcome == Outcome::kSuperseded) return superseded();
    if (sent.outcome == Outcome::kOvertaken)
        return error(Errc::kInternal, "etcd at {} refused a transaction whose comparison holds",
                     port_->where());
    if (sent.revision <= change_revision_) return overwritten();
    change_revision_ = sent.revision;
    return {};
}

void EtcdRecordStore::end_lead() {
    leadership_->end();
}

Result<void> EtcdRecordStore::read_all() {
    const std::string folder = prefix_ + "/records/";
    RecordEntries entries;
    std::string from = folder;
    for (bool more = true; more;) {
        const std::string range = etcd_range(from, etcd_end_of(folder), change_revision_, kKeysOfPage);
        EtcdAnswer answer = port_->call(kEtcdRangePath, range, kDeadline);
        if (answer.fate != EtcdFate::kAnswered) return std::move(answer.trouble);
        GN_ASSIGN(const EtcdRangeAnswer page, read_etcd_range(answer.body));
        for (const EtcdKeyValue& kv : page.found) {
            if (kv.key < from) return error(Errc::kCorrupt, "etcd at {} lists keys twice", port_->where());
            entries[kv.key.substr(folder.size())] = kv.value;
            from = kv.key + '\0';
        }
        more = page.more && !page.found.empty();
    }
    Result<Records> records = records_of(entries);
    if (!records.ok()) return damaged(records.error());
    records_ = std::move(records).value();
    return {};
}

}  // namespace gnstor::daemon
