// election.hpp: takes part in the election of the array's leader, through etcd. Owns the thread that does so.
//
// The leader key, PREFIX/leader, holds the address at which the leader serves. The thread alone speaks with etcd; the
// other functions read, under a mutex, what it found: any thread.
#pragma once

#include "daemon/records/etcd_port.hpp"
#include "daemon/records/etcd_store.hpp"
#include "daemon/standby/campaign.hpp"

#include <functional>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct ElectionOptions {
    std::string prefix;   ///< of the keys, as EtcdRecordStore has it
    std::string address;  ///< at which this daemon serves
    std::function<void()>
        changed;  ///< called by the thread when this daemon begins or ceases to lead; may be empty
    CampaignOptions campaign{};
    /// A clock that includes suspended time and never goes back.
    std::function<std::uint64_t()> now_ms;
};

class Election {
  public:
    static std::unique_ptr<Election> start(std::unique_ptr<EtcdPort> port, ElectionOptions options);
    /// Revokes the lease, so that a standby begins at once. What acts under the leadership must have ended.
    ~Election();

    /// This daemon's leadership; null: it does not lead. After one has ended, check() of it says so for ever.
    [[nodiscard]] std::shared_ptr<Leadership> leadership() const;
    /// For who asks a standby: the address of the leader, or why there is none.
    [[nodiscard]] std::string who_leads() const;
    /// The address of another daemon that leads; empty: none is known.
    [[nodiscard]] std::string other_leader() const;

  private:
    struct Impl;
    explicit Election(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
