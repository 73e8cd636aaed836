#include "embedded/node_array.hpp"

#include <gnstor/base/log.hpp>

#include "client/udp_host.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "embedded/known_ssds.hpp"
#include "nvmf/host/discover.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace gnstor::embedded {
namespace {

using Clock = std::chrono::steady_clock;

bool is_port(std::string_view text) {
    std::uint16_t port = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
    return !text.empty() && failed == std::errc() && end == text.data() + text.size() && port != 0;
}

}  // namespace

Result<NodeAddress> parse_node_address(const std::string& text) {
    NodeAddress out;
    const auto colon = text.rfind(':');
    const bool bracketed = !text.empty() && text.front() == '[';
    const bool one_colon = colon != std::string::npos && text.find(':') == colon;
    if (bracketed) {
        const auto end = text.find(']');
        if (end == std::string::npos || (end + 1 != text.size() && text[end + 1] != ':'))
            return error(Errc::kInvalidArgument, "'{}' is not ADDR or [ADDR]:PORT", text);
        out.address = text.substr(1, end - 1);
        if (end + 1 != text.size()) out.port = text.substr(end + 2);
    } else if (one_colon) {
        out.address = text.substr(0, colon);
        out.port = text.substr(colon + 1);
    } else {
        out.address = text;
    }
    if (out.address.empty() ||
        out.address.find_first_not_of("0123456789abcdefABCDEF.:") != std::string::npos || !is_port(out.port))
        return error(Errc::kInvalidArgument,
                     "'{}' is not an IP address, with or without a port, as 10.0.0.1, 10.0.0.1:4420 or "
                     "[fd00::1]:4420",
                     text);
    return out;
}

/// The daemon's state of one node.
struct NodeOfArray {
    std::atomic<bool> reachable{true};
    KnownNode known;               ///< guarded by Impl::mutex once the watcher runs, as the next
    std::set<std::string> gone{};  ///< NQNs of known SSDs that the node did not serve when it last answered
    std::map<std::string, std::string> not_taken{};  ///< SSDs found later that cannot be used, by NQN; why
};

// Members are destroyed from last to first: the watcher, the daemon, its ports, the NIC.
struct NodeArray::Impl {
    NodeArrayOptions options;
    std::vector<std::unique_ptr<NodeOfArray>> nodes;
    std::unique_ptr<client::UdpHost> host;
    std::mutex mutex;  // guards `stopping`, and what says so; taken after the daemon's
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;  ///< guarded by `mutex` once the watcher runs
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::condition_variable wake;
    bool stopping = false;
    std::thread watcher;

    ~Impl() {
        {
            const std::scoped_lock lock(mutex);
            stopping = true;
        }
        wake.notify_all();
        if (watcher.joinable()) watcher.join();
    }

    Result<std::vector<nvmf::DiscoveredSubsystem>> ask(const NodeAddress& where) {
        return nvmf::discover(host->nic(), where.address, where.port, options.timeout_ms);
    }
    Result<std::shared_ptr<const nvmf::auth::DhchapKey>> key_of(const NodeAddress& where) const {
        if (!options.node_key) return std::shared_ptr<const nvmf::auth::DhchapKey>();
        return options.node_key(where.address);
    }
    Result<KnownNode> find_ssds(const NodeAddress& where);
    Result<KnownNode> find_or_wait(const NodeAddress& where, Clock::time_point until);
    Result<void> find_nodes();
    Result<void> open_ports();
    Result<void> start_daemon(std::unique_ptr<daemon::RecordStore> records);
    void watch();
    void look_at(NodeOfArray& node);
    Result<daemon::SsdIdentity> identify(const nvmf::DiscoveredSubsystem& subsystem,
                                         const NodeAddress& where);
    std::unique_ptr<daemon::NvmfSsdPort> port_to(NodeOfArray& node, const daemon::SsdIdentity& ssd,
                                                 std::shared_ptr<const nvmf::auth::DhchapKey> key);
    void take_spare(NodeOfArray& node, const nvmf::DiscoveredSubsystem& subsystem);
    Result<void> write_known_file();
};

Result<daemon::SsdIdentity> NodeArray::Impl::identify(const nvmf::DiscoveredSubsystem& subsystem,
                                                      const NodeAddress& where) {
    daemon::SsdIdentity ssd;
    ssd.nic_address = subsystem.address;
    ssd.service = subsystem.service;
    ssd.subsystem_nqn = subsystem.nqn;
    daemon::NvmfSsdPortOptions port;
    port.timeout_ms = options.timeout_ms;
    GN_ASSIGN(port.node_key, key_of(where));
    return daemon::NvmfSsdPort::identify(host->nic(), std::move(ssd), port);
}

Result<KnownNode> NodeArray::Impl::find_ssds(const NodeAddress& where) {
    GN_ASSIGN(const std::vector<nvmf::DiscoveredSubsystem> found, ask(where));
    KnownNode node;
    node.where = where;
    for (const nvmf::DiscoveredSubsystem& subsystem : found) {
        // Skips gateways, which are no SSDs of the array.
        if (!nvmf::is_ssd_subsystem(subsystem.nqn)) continue;
        GN_ASSIGN(daemon::SsdIdentity ssd, identify(subsystem, where));
        node.ssds.push_back(std::move(ssd));
    }
    if (node.ssds.empty())
        return error(Errc::kNotFound, "the node at {} serves no SSDs; is it a 'gnstor node'?", where.address);
    return node;
}

/// A node that refuses this gnstord's key will refuse it again.
bool is_final(const Error& e) {
    return e.code == Errc::kPermission || e.code == Errc::kInvalidArgument;
}

/// The error for a node that is not known from an earlier start.
Error not_asked(const NodeAddress& where, const Error& why) {
    const std::string what_to_do =
        why.code == Errc::kPermission
            ? fmt::format(
                  "the node answers, but this gnstord needs the key of that node: copy node.key from its "
                  "folder to this machine (mode 0600) and give --node-key {}=FILE",
                  where.address)
        : why.code == Errc::kInvalidArgument
            ? std::string("see the options of gnstord")
            : fmt::format("start it ('gnstor node --listen {}')", where.address);
    return error(why.code, "the node at {} port {} cannot be asked for its SSDs: {}; {}", where.address,
                 where.port, why.message, what_to_do);
}

Result<KnownNode> NodeArray::Impl::find_or_wait(const NodeAddress& where, Clock::time_point until) {
    for (;;) {
        Result<KnownNode> found = find_ssds(where);
        if (found.ok() || is_final(found.error()) || Clock::now() >= until) return found;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
}

Result<void> NodeArray::Impl::find_nodes() {
    std::vector<KnownNode> earlier;
    if (!options.known.empty()) {
        GN_ASSIGN(earlier, read_known(options.known));
    }
    const auto begin = Clock::now();
    const auto known_as = [&](const NodeAddress& where) {
        return std::find_if(earlier.begin(), earlier.end(),
                            [&](const KnownNode& n) { return n.where == where; });
    };
    // Asks all at once: a node that drops packets costs options.timeout_ms, several of them no more.
    std::vector<std::future<Result<KnownNode>>> answers;
    for (const NodeAddress& where : options.nodes) {
        const std::uint32_t wait_ms =
            known_as(where) == earlier.end() ? options.wait_ms : options.known_wait_ms;
        answers.push_back(std::async(std::launch::async, [this, where, begin, wait_ms] {
            return find_or_wait(where, begin + std::chrono::milliseconds(wait_ms));
        }));
    }
    for (std::size_t i = 0; i < options.nodes.size(); ++i) {
        const NodeAddress& where = options.nodes[i];
        auto node = std::make_unique<NodeOfArray>();
        const auto known = known_as(where);
        Result<KnownNode> found = answers[i].get();
        if (found.ok()) {
            node->known = std::move(found).value();
        } else {
            if (known == earlier.end()) return not_asked(where, found.error());
            log_warn("the node at {} does not answer ({}); gnstord waits for its {} SSDs", where.address,
                     found.error().message, known->ssds.size());
            node->known = *known;
            node->reachable.store(false, std::memory_order_relaxed);
        }
        nodes.push_back(std::move(node));
    }
    Result<void> written = write_known_file();
    if (written.ok() || earlier.empty()) return written;
    // Not fatal, for example on a full disk: the file of the earlier start is still readable, and needed only
    // while a node is down.
    log_warn("{}; the file keeps the SSDs that were found at an earlier start", written.error().message);
    return {};
}

Result<void> NodeArray::Impl::write_known_file() {
    if (options.known.empty()) return {};
    std::vector<KnownNode> now;
    for (const auto& node : nodes) now.push_back(node->known);
    return write_known(options.known, now);
}

std::unique_ptr<daemon::NvmfSsdPort> NodeArray::Impl::port_to(
    NodeOfArray& node, const daemon::SsdIdentity& ssd, std::shared_ptr<const nvmf::auth::DhchapKey> key) {
    daemon::NvmfSsdPortOptions port;
    port.timeout_ms = options.timeout_ms;
    port.node_key = std::move(key);
    // Relaxed: a flag that orders nothing else.
    port.reachable = [n = &node] { return n->reachable.load(std::memory_order_relaxed); };
    return daemon::NvmfSsdPort::later(host->nic(), static_cast<std::uint32_t>(ports.size()), ssd,
                                      std::move(port));
}

Result<void> NodeArray::Impl::open_ports() {
    for (const auto& node : nodes) {
        GN_ASSIGN(const std::shared_ptr<const nvmf::auth::DhchapKey> key, key_of(node->known.where));
        for (const daemon::SsdIdentity& ssd : node->known.ssds) ports.push_back(port_to(*node, ssd, key));
    }
    if (ports.size() > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "the nodes have {} SSDs in all; an array has at most {}",
                     ports.size(), placement::kMaxSlots);
    return {};
}

Result<void> NodeArray::Impl::start_daemon(std::unique_ptr<daemon::RecordStore> records) {
    daemon::InProcessOptions daemon_options;
    daemon_options.manager.lease_ms = options.lease_ms;
    daemon_options.manager.spare_after_ms = options.spare_after_ms;
    daemon_options.manager.scrub_every_ms = options.scrub_every_ms;
    daemon_options.manager.scrub_bytes_per_s = options.scrub_bytes_per_s;
    daemon_options.manager.grant_ms = options.grant_ms;
    daemon_options.ssd_readings = [this](const daemon::SsdInfo& ssd) {
        const std::scoped_lock lock(mutex);
        return daemon::readings_of(ports, ssd);
    };
    daemon_options.ssd_firmware = [this](const daemon::SsdInfo& ssd) {
        const std::scoped_lock lock(mutex);
        return daemon::firmware_of(ports, ssd);
    };
    std::vector<daemon::SsdPort*> drives;
    for (const auto& port : ports) drives.push_back(port.get());
    GN_ASSIGN(daemon, daemon::InProcessControlPlane::start(std::move(records), std::move(drives),
                                                           std::move(daemon_options)));
    return {};
}

void NodeArray::Impl::look_at(NodeOfArray& node) {
    const auto found = ask(node.known.where);
    const bool was = node.reachable.exchange(found.ok(), std::memory_order_relaxed);
    if (was && !found.ok())
        log_warn("the node at {} does not answer: {}", node.known.where.address, found.error().message);
    if (!was && found.ok()) log_warn("the node at {} answers again", node.known.where.address);
    if (!found.ok()) return;
    for (const nvmf::DiscoveredSubsystem& subsystem : *found) {
        const bool known = std::ranges::any_of(
            node.known.ssds, [&](const auto& ssd) { return ssd.subsystem_nqn == subsystem.nqn; });
        if (!known && nvmf::is_ssd_subsystem(subsystem.nqn)) take_spare(node, subsystem);
    }
    const std::scoped_lock lock(mutex);
    std::set<std::string> gone;
    for (const daemon::SsdIdentity& ssd : node.known.ssds)
        if (std::ranges::none_of(*found, [&](const auto& s) { return s.nqn == ssd.subsystem_nqn; }))
            gone.insert(ssd.subsystem_nqn);
    node.gone = std::move(gone);
    std::erase_if(node.not_taken, [&](const auto& ssd) {
        return std::ranges::none_of(*found,
                                    [&](const auto& subsystem) { return subsystem.nqn == ssd.first; });
    });
}

/// An SSD that the node did not have when gnstord started becomes a spare. Asked again at the next look if it
/// cannot be used.
void NodeArray::Impl::take_spare(NodeOfArray& node, const nvmf::DiscoveredSubsystem& subsystem) {
    const auto take = [&]() -> Result<void> {
        GN_ASSIGN(const daemon::SsdIdentity ssd, identify(subsystem, node.known.where));
        GN_ASSIGN(std::shared_ptr<const nvmf::auth::DhchapKey> key, key_of(node.known.where));
        std::unique_ptr<daemon::NvmfSsdPort> port = port_to(node, ssd, std::move(key));
        GN_TRY(daemon->add_spare(*port));
        const std::scoped_lock lock(mutex);
        ports.push_back(std::move(port));
        node.known.ssds.push_back(ssd);
        node.not_taken.erase(subsystem.nqn);
        return {};
    };
    if (const Result<void> taken = take(); !taken.ok()) {
        const std::scoped_lock lock(mutex);
        std::string& told = node.not_taken[subsystem.nqn];
        if (told != taken.error().message)
            log_warn("the node at {} has an SSD that cannot be used: {}", node.known.where.address,
                     taken.error().message);
        told = taken.error().message;
        return;
    }
    if (const Result<void> written = write_known_file(); !written.ok())
        log_warn("{}", written.error().message);
}

void NodeArray::Impl::watch() {
    std::unique_lock lock(mutex);
    while (!stopping) {
        wake.wait_for(lock, std::chrono::milliseconds(options.ask_ms), [this] { return stopping; });
        for (std::size_t i = 0; i < nodes.size() && !stopping; ++i) {
            lock.unlock();
            look_at(*nodes[i]);
            lock.lock();
        }
    }
}

NodeArray::NodeArray(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeArray::~NodeArray() = default;

Result<std::unique_ptr<NodeArray>> NodeArray::open(const NodeArrayOptions& options,
                                                   std::unique_ptr<daemon::RecordStore> records) {
    if (options.nodes.empty()) return error(Errc::kInvalidArgument, "an array needs at least one node");
    auto impl = std::make_unique<Impl>();
    impl->options = options;
    GN_ASSIGN(impl->host, client::UdpHost::open(options.address, options.nodes.front().address));
    GN_TRY(impl->find_nodes());
    GN_TRY(impl->open_ports());
    GN_TRY(impl->start_daemon(std::move(records)));
    impl->watcher = std::thread([raw = impl.get()] { raw->watch(); });
    return std::unique_ptr<NodeArray>(new NodeArray(std::move(impl)));
}

client::ControlPlane& NodeArray::control() {
    return *impl_->daemon;
}
const std::string& NodeArray::address() const {
    return impl_->host->address();
}

std::optional<daemon::ClientInfo> NodeArray::client_of(nvme::ClientId client) {
    return impl_->daemon->client_of(client);
}

daemon::EventPage NodeArray::events_since(std::uint64_t number) {
    return impl_->daemon->events_since(number);
}

daemon::ArrayInfo NodeArray::inspect() {
    daemon::ArrayInfo info = impl_->daemon->inspect();
    const std::scoped_lock lock(impl_->mutex);
    for (const auto& node : impl_->nodes) {
        const std::string& where = node->known.where.address;
        if (!node->reachable.load(std::memory_order_relaxed)) {
            info.warnings.push_back(
                fmt::format("the node at {} does not answer: its {} SSDs cannot be reached; start it again",
                            where, node->known.ssds.size()));
            for (daemon::SsdInfo& ssd : info.ssds) {
                if (ssd.nic_address != where || ssd.state == "stale") continue;
                ssd.trouble = fmt::format("its node {} does not answer", where);
                ssd.serves = false;
            }
        }
        for (daemon::SsdInfo& ssd : info.ssds) {
            if (!node->gone.contains(ssd.subsystem_nqn) || ssd.slot == daemon::kSpareSlot) continue;
            if (ssd.state != "out") ssd.state = "missing";
            ssd.trouble = fmt::format("its node {} runs, and does not serve it", where);
            ssd.serves = false;
            info.warnings.push_back(fmt::format(
                "the node at {} no longer serves SSD {}: see the node's log; bring back the SSD's store "
                "and restart the node, or replace the SSD ('gnstor ssd replace {}')",
                where, ssd.serial, ssd.slot));
        }
        for (const auto& [nqn, why] : node->not_taken)
            info.warnings.push_back(
                fmt::format("the node at {} has an SSD that cannot be used: {}", where, why));
    }
    return info;
}

}  // namespace gnstor::embedded
