#include "daemon/standby/election.hpp"

#include "daemon/records/etcd_messages.hpp"

#include <gnstor/base/log.hpp>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace gnstor::daemon {
namespace {

using Ask = Campaign::Ask;

/// What the thread found.
struct Found {
    std::mutex mutex;  // guards what follows
    std::condition_variable wake;
    std::int64_t revision = 0;  ///< of this daemon's leadership; 0: none
    std::uint64_t acts_until_ms = 0;
    std::string leader;   ///< address of the daemon that leads, this one or another; empty: none
    std::string trouble;  ///< why etcd did not answer; empty: it did
    bool lost = false;    ///< the store found that the leader key is another one
    bool stopping = false;
};

class HeldLeadership final : public Leadership {
  public:
    HeldLeadership(std::shared_ptr<Found> found, std::int64_t revision, std::function<std::uint64_t()> now_ms)
        : found_(std::move(found)), revision_(revision), now_ms_(std::move(now_ms)) {}
    std::int64_t revision() const override { return revision_; }
    Result<void> check() const override {
        const std::scoped_lock lock(found_->mutex);
        if (found_->revision != revision_)
            return error(Errc::kState, "this gnstord does not lead the array any more{}",
                         found_->leader.empty() ? std::string() : "; the one at " + found_->leader + " does");
        if (now_ms_() < found_->acts_until_ms) return {};
        return error(Errc::kIo,
                     "etcd has not renewed the leader's lease ({}), so another gnstord may lead soon; "
                     "nothing is changed "
                     "until etcd answers",
                     found_->trouble.empty() ? "its answer is late" : found_->trouble);
    }
    void end() override {
        const std::scoped_lock lock(found_->mutex);
        if (found_->revision != revision_) return;
        found_->revision = 0;
        found_->lost = true;
        found_->wake.notify_all();
    }

  private:
    const std::shared_ptr<Found> found_;
    const std::int64_t revision_;
    const std::function<std::uint64_t()> now_ms_;
};

}  // namespace

struct Election::Impl {
    Impl(std::unique_ptr<EtcdPort> p, ElectionOptions o)
        : port(std::move(p)), options(std::move(o)), campaign(options.campaign) {}

    const std::unique_ptr<EtcdPort> port;
    const ElectionOptions options;
    const std::shared_ptr<Found> found = std::make_shared<Found>();
    Campaign campaign;        // the thread's alone
    std::string seen_leader;  // likewise
    std::thread thread;

    [[nodiscard]] std::uint64_t now() const { return options.now_ms(); }
    void run();
    void step();
    Result<void> ask(Ask what, std::uint64_t sent_ms);
    Result<std::string> call(const char* path, const std::string& body);
    Result<void> look();
    Result<bool> holds_key();
    Result<void> create();
    void publish(const std::string& trouble);
};

Result<std::string> Election::Impl::call(const char* path, const std::string& body) {
    // A keep-alive that takes longer than a third of the lease is asked again.
    EtcdAnswer answer = port->call(path, body, std::chrono::milliseconds(options.campaign.ttl_ms / 3));
    if (answer.fate != EtcdFate::kAnswered) return std::move(answer.trouble);
    return std::move(answer.body);
}

Result<void> Election::Impl::look() {
    const std::string key = leader_key(options.prefix);
    GN_ASSIGN(const std::string body, call(kEtcdRangePath, etcd_range(key, "", 0, 1)));
    GN_ASSIGN(const EtcdRangeAnswer range, read_etcd_range(body));
    seen_leader = range.found.empty() ? "" : range.found[0].value;
    campaign.looked(now(), !range.found.empty());
    return {};
}

Result<void> Election::Impl::create() {
    const std::string key = leader_key(options.prefix);
    EtcdTxn txn;
    txn.when.push_back({key, true, 0});
    txn.changes.push_back({key, options.address, campaign.lease()});
    txn.otherwise.push_back(key);
    GN_ASSIGN(const std::string body, call(kEtcdTxnPath, etcd_txn(txn)));
    GN_ASSIGN(const EtcdTxnAnswer answer, read_etcd_txn(body));
    std::int64_t revision = answer.succeeded ? answer.revision : 0;
    // Created by an earlier attempt, whose answer was lost.
    if (!answer.otherwise.empty() && answer.otherwise[0] && answer.otherwise[0]->lease == campaign.lease())
        revision = answer.otherwise[0]->create_revision;
    if (revision != 0) seen_leader = options.address;
    campaign.created(now(), revision);
    return {};
}

/// Whether the leader key is still the one that this daemon made, bound to its lease: somebody may have deleted or
/// written it, which ends no lease.
Result<bool> Election::Impl::holds_key() {
    GN_ASSIGN(const std::string body, call(kEtcdRangePath, etcd_range(leader_key(options.prefix), "", 0, 1)));
    GN_ASSIGN(const EtcdRangeAnswer range, read_etcd_range(body));
    seen_leader = range.found.empty() ? "" : range.found[0].value;
    return !range.found.empty() && range.found[0].create_revision == campaign.revision() &&
           range.found[0].lease == campaign.lease();
}

Result<void> Election::Impl::ask(Ask what, std::uint64_t sent_ms) {
    const auto ttl_s = static_cast<std::int64_t>((options.campaign.ttl_ms + 999) / 1000);
    switch (what) {
        case Ask::kLook:
            return look();
        case Ask::kCreate:
            return create();
        case Ask::kGrant: {
            GN_ASSIGN(const std::string body, call(kEtcdGrantPath, etcd_lease_grant(ttl_s)));
            GN_ASSIGN(const EtcdLease lease, read_etcd_lease(body));
            // A server may grant a longer one; a shorter time is counted here all the same.
            campaign.granted(sent_ms, now(), lease.id, options.campaign.ttl_ms);
            return {};
        }
        case Ask::kKeepAlive: {
            GN_ASSIGN(const std::string body, call(kEtcdKeepAlivePath, etcd_lease_of(campaign.lease())));
            GN_ASSIGN(const EtcdLease lease, read_etcd_keep_alive(body));
            GN_ASSIGN(const bool leads, holds_key());
            campaign.kept(sent_ms, now(), lease.ttl_s == 0 || !leads ? 0 : options.campaign.ttl_ms);
            return {};
        }
        case Ask::kRevoke: {
            GN_TRY(call(kEtcdRevokePath, etcd_lease_of(campaign.lease())));
            campaign.revoked(now());
            return {};
        }
    }
    return {};
}

void Election::Impl::step() {
    const std::uint64_t sent_ms = now();
    std::string trouble;
    if (const Result<void> asked = ask(campaign.next(), sent_ms); !asked.ok()) {
        // A lease that is not there any more cannot be revoked; that is no trouble.
        if (campaign.next() != Ask::kRevoke) trouble = asked.error().message;
        campaign.failed(now());
    }
    publish(trouble);
}

void Election::Impl::publish(const std::string& trouble) {
    bool changed = false;
    {
        const std::scoped_lock lock(found->mutex);
        if (!found->lost) {
            changed = found->revision != campaign.revision();
            found->revision = campaign.revision();
            found->acts_until_ms = campaign.acts_until_ms();
        }
        found->leader = seen_leader;
        if (trouble != found->trouble) {
            if (trouble.empty())
                log_warn("etcd at {} answers again", port->where());
            else
                log_error("{}", trouble);
        }
        found->trouble = trouble;
    }
    if (changed && options.changed) options.changed();
}

void Election::Impl::run() {
    for (;;) {
        bool lost = false;
        {
            std::unique_lock lock(found->mutex);
            const std::uint64_t due = campaign.due_ms(), before = now();
            // Not longer than a look: the clock of the wait does not count suspended time.
            const std::uint64_t wait = due > before ? std::min(due - before, options.campaign.look_ms) : 0;
            found->wake.wait_for(lock, std::chrono::milliseconds(wait),
                                 [&] { return found->stopping || found->lost; });
            if (found->stopping) return;
            lost = std::exchange(found->lost, false);
        }
        if (lost) {
            campaign.end(now());
            if (options.changed) options.changed();
        }
        if (now() >= campaign.due_ms()) step();
    }
}

Election::Election(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Election> Election::start(std::unique_ptr<EtcdPort> port, ElectionOptions options) {
    auto impl = std::make_unique<Impl>(std::move(port), std::move(options));
    impl->thread = std::thread([raw = impl.get()] { raw->run(); });
    return std::unique_ptr<Election>(new Election(std::move(impl)));
}

Election::~Election() {
    {
        const std::scoped_lock lock(impl_->found->mutex);
        impl_->found->stopping = true;
        impl_->found->revision = 0;
    }
    impl_->found->wake.notify_all();
    impl_->thread.join();
    if (impl_->campaign.lease() != 0)
        (void)impl_->call(kEtcdRevokePath, etcd_lease_of(impl_->campaign.lease()))
            .ok();  // else it ends by itself
}

std::shared_ptr<Leadership> Election::leadership() const {
    const std::scoped_lock lock(impl_->found->mutex);
    if (impl_->found->revision == 0) return nullptr;
    return std::make_shared<HeldLeadership>(impl_->found, impl_->found->revision, impl_->options.now_ms);
}

std::string Election::other_leader() const {
    const std::scoped_lock lock(impl_->found->mutex);
    return impl_->found->revision == 0 && impl_->found->leader != impl_->options.address
               ? impl_->found->leader
               : "";
}

std::string Election::who_leads() const {
    const std::scoped_lock lock(impl_->found->mutex);
    const Found& found = *impl_->found;
    if (!found.trouble.empty())
        return fmt::format("it is not known which gnstord leads the array: {}", found.trouble);
    if (found.leader.empty())
        return "no gnstord leads the array at the moment; one takes over within seconds";
    if (found.leader == impl_->options.address) return "it is about to lead the array";
    return fmt::format("the gnstord at {} leads the array; ask that one", found.leader);
}

}  // namespace gnstor::daemon
