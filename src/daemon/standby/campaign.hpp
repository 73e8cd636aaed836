// campaign.hpp: how a daemon comes to lead, and how it notices that it does not any more. Pure: no clock, no requests.
//
// Invariants
//   * the leader key is created in a transaction if there is none, and bound to a lease: at most one daemon leads;
//   * a lease that was kept alive lasts for others at least until `ttl_ms` after the request was sent. This daemon acts a
//     tenth less, by its clock that counts suspended time: it stops before another one can begin;
//   * a leader whose etcd does not answer keeps asking. If the lease is still there when etcd answers, it goes on under
//     the same leadership; nobody else has had one.
// One caller at a time.
#pragma once

#include <cstdint>

namespace gnstor::daemon {

struct CampaignOptions {
    /// T_grant (10 s) is to pass on without an interruption of I/O: lease, one look and a start are less than that.
    std::uint64_t ttl_ms = 5'000;
    std::uint64_t look_ms = 250;   ///< how often a standby looks for the leader key
    std::uint64_t retry_ms = 500;  ///< after a request without an answer
};

class Campaign {
  public:
    enum class Ask {
        kLook,       ///< who leads
        kGrant,      ///< a lease
        kCreate,     ///< the leader key, with the lease
        kKeepAlive,  ///< the lease
        kRevoke,     ///< the lease, which is of no use
    };

    explicit Campaign(const CampaignOptions& options) : options_(options) {}

    /// The next request, and when.
    [[nodiscard]] Ask next() const { return next_; }
    [[nodiscard]] std::uint64_t due_ms() const { return due_ms_; }

    // What was answered. `sent_ms`: the clock before the request was sent; `now_ms`: after its answer.
    void looked(std::uint64_t now_ms, bool somebody_leads) {
        next_ = somebody_leads ? Ask::kLook : Ask::kGrant;
        due_ms_ = somebody_leads ? now_ms + options_.look_ms : now_ms;
    }
    void granted(std::uint64_t sent_ms, std::uint64_t now_ms, std::int64_t lease, std::uint64_t ttl_ms) {
        lease_ = lease;
        keep(sent_ms, ttl_ms);
        then(Ask::kCreate, now_ms);
    }
    /// `revision`: create revision of the leader key, if this daemon's lease holds it; else 0.
    void created(std::uint64_t now_ms, std::int64_t revision) {
        revision_ = revision;
        if (revision == 0)
            then(Ask::kRevoke, now_ms);
        else
            then(Ask::kKeepAlive, asked_ms_ + options_.ttl_ms / 3);
    }
    /// `ttl_ms` 0: the lease has ended.
    void kept(std::uint64_t sent_ms, std::uint64_t now_ms, std::uint64_t ttl_ms) {
        if (ttl_ms == 0) return end(now_ms);
        keep(sent_ms, ttl_ms);
        then(Ask::kKeepAlive, sent_ms + options_.ttl_ms / 3);
    }
    void revoked(std::uint64_t now_ms) {
        lease_ = 0;
        then(Ask::kLook, now_ms);
    }
    /// The request was not answered, or refused.
    void failed(std::uint64_t now_ms) {
        const bool in_vain = next_ == Ask::kRevoke || (next_ == Ask::kCreate && now_ms >= acts_until_ms_);
        if (in_vain) revoked(now_ms);  // it ends by itself
        due_ms_ = now_ms + options_.retry_ms;
    }
    /// The leader key was lost.
    void end(std::uint64_t now_ms) {
        revision_ = 0;
        acts_until_ms_ = 0;
        then(lease_ != 0 ? Ask::kRevoke : Ask::kLook, now_ms);
    }

    /// Create revision of this daemon's leader key; 0: it does not lead.
    [[nodiscard]] std::int64_t revision() const { return revision_; }
    [[nodiscard]] std::int64_t lease() const { return lease_; }
    /// Before this time it may act, if it leads.
    [[nodiscard]] std::uint64_t acts_until_ms() const { return acts_until_ms_; }

  private:
    void then(Ask ask, std::uint64_t due_ms) {
        next_ = ask;
        due_ms_ = due_ms;
    }
    void keep(std::uint64_t sent_ms, std::uint64_t ttl_ms) {
        asked_ms_ = sent_ms;
        acts_until_ms_ = sent_ms + ttl_ms - ttl_ms / 10;
    }

    const CampaignOptions options_;
    Ask next_ = Ask::kLook;
    std::uint64_t due_ms_ = 0;
    std::int64_t lease_ = 0, revision_ = 0;
    std::uint64_t asked_ms_ = 0;  ///< when the lease was last asked for, successfully
    std::uint64_t acts_until_ms_ = 0;
};

}  // namespace gnstor::daemon
