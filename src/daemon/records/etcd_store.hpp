// etcd_store.hpp: the daemon's records in etcd, for a daemon that must survive its machine (docs/array.md, rule 1).
//
// Keys under PREFIX: leader (the daemon that leads, bound to its lease: standby/election.hpp), change (the number of the
// newest change) and records/... (record_entries.hpp).
// Invariants
//   * every write is one transaction which compares the create revision of PREFIX/leader with that of this daemon's
//     leadership, and the revision of PREFIX/change with that of the last change: a daemon that was superseded changes
//     nothing, and a request that is delayed in the network changes nothing after a later one;
//   * a transaction whose answer was lost is in doubt. Nothing is saved until load() has settled that: it writes
//     PREFIX/change, after which the transaction in doubt is stored, or never will be;
//   * without such doubt the records in memory are those of etcd: no other process may write them meanwhile. So load()
//     answers while etcd is away;
//   * while it is not known that this daemon leads, no request is sent.
// One thread at a time.
#pragma once

#include "daemon/records/etcd_messages.hpp"
#include "daemon/records/etcd_port.hpp"
#include "daemon/records/records.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gnstor::daemon {

/// One daemon's leadership of the array, from its election on. Any thread.
class Leadership {
  public:
    virtual ~Leadership() = default;
    /// Create revision of the leader key, which no other leadership has.
    [[nodiscard]] virtual std::int64_t revision() const = 0;
    /// As RecordStore::check_leads().
    [[nodiscard]] virtual Result<void> check() const = 0;
    /// The leader key is not this daemon's any more.
    virtual void end() = 0;
};

[[nodiscard]] inline std::string leader_key(const std::string& prefix) {
    return prefix + "/leader";
}

class EtcdRecordStore final : public RecordStore {
  public:
    /// `prefix`: as /gnstor/NAME, without a slash at its end.
    EtcdRecordStore(std::unique_ptr<EtcdPort> port, std::string prefix,
                    std::shared_ptr<Leadership> leadership);

    Result<Records> load() override;
    [[nodiscard]] bool exclusive() const override { return false; }
    [[nodiscard]] Result<void> check_leads() const override;
    void end_lead() override;
    Result<void> save(const Change& change) override;
    /// Deletes all records: they are elsewhere now.
    Result<void> erase();

  private:
    enum class Outcome { kStored, kSuperseded, kOvertaken };
    struct Sent;
    Result<void> settle();
    Result<void> read_all();
    Sent send(EtcdTxn txn, bool after_last);
    Result<void> change_entries(EtcdTxn txn);
    [[nodiscard]] Error refused(const Error& by_etcd, std::size_t entries) const;
    Error overwritten();
    [[nodiscard]] Error superseded();
    [[nodiscard]] Error unknown(const std::string& why) const;
    [[nodiscard]] Error damaged(const Error& what) const;

    const std::unique_ptr<EtcdPort> port_;
    const std::string prefix_;
    const std::shared_ptr<Leadership> leadership_;
    std::optional<Records> records_;    ///< nullopt: not read yet, or in doubt
    std::int64_t change_revision_ = 0;  ///< of PREFIX/change
    std::uint64_t sent_ = 0;            ///< transactions so far: none has the same number
};

}  // namespace gnstor::daemon
