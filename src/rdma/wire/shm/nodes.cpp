// nodes.cpp: see nodes.hpp. What is shared, registered and created, and at which nodes.
#include "rdma/wire/shm/nodes.hpp"

#include "rdma/nic/queue_pair.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/time.hpp>

#include <fcntl.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

namespace gnstor::rdma::shm {

using simt::Scope;

namespace {

/// Another node may be about to write completions at positions that it took: how long reset() waits for
/// that.
constexpr std::uint64_t kSettleNs = 1'000'000'000;

/// Released now, or released before.
bool gone_from(const Result<void>& done) {
    return done.ok() || done.error().code == Errc::kNotFound;
}

/// Releases something at all nodes. If one refuses, restores it at the nodes that have released it, as
/// all must know what one keeps.
template <class NodesThere, class Take, class Restore>
Result<void> take_from_all(const NodesThere& there, const Take& take, const Restore& restore) {
    std::vector<NodeConnection*> done;
    for (const auto* const node : there) {
        const auto taken = take(*node->client);
        if (gone_from(taken)) {
            done.push_back(node->client.get());
            continue;
        }
        for (NodeConnection* const other : done)
            // If that fails: link() repeats it in the node's next process.
            if (const auto restored = restore(*other); !restored.ok())
                log_error(
                    "rdma: the memory that is still shared with other nodes cannot be shared with {} again: "
                    "{}; if that node is running, restart it",
                    other->address(), restored.error().message);
        return taken;
    }
    return {};
}

}  // namespace

Nodes::Nodes(std::vector<ShmNode> nodes) {
    for (ShmNode& node : nodes) {
        nodes_.push_back(std::make_unique<Node>());
        nodes_.back()->what = std::move(node);
    }
}

Result<std::unique_ptr<Nodes>> Nodes::open(std::vector<ShmNode> nodes) {
    std::unique_ptr<Nodes> made(new Nodes(std::move(nodes)));
    made->wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (made->wake_.get() < 0)
        return error(Errc::kNoSpace,
                     "cannot create an event descriptor: no file descriptor is left; raise the limit of open "
                     "files (ulimit -n)");
    for (const auto& node : made->nodes_) {
        GN_TRY(made->link(*node));
        made->address_ += (made->address_.empty() ? "" : ", ") + node->client->address();
    }
    made->watcher_ = std::thread([nodes = made.get()] { nodes->watch(); });
    return made;
}

Nodes::~Nodes() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    if (!watcher_.joinable()) return;
    wake();
    watcher_.join();
}

/// While `calls_` is held, their `client` does not change.
std::vector<Nodes::Node*> Nodes::those_there() {
    const std::lock_guard lock(mutex_);
    std::vector<Node*> there;
    for (const auto& node : nodes_)
        if (node->there) there.push_back(node.get());
    return there;
}

// ---- memory

Result<void> Nodes::share_with_all(std::byte* base, const Block& block) {
    std::vector<NodeConnection*> done;
    for (const Node* const node : those_there()) {
        NodeConnection& client = *node->client;
        const auto shared = client.share(base, block.bytes, block.file.get(), block.offset);
        if (shared.ok()) done.push_back(&client);
        if (shared.ok() || client.gone()) continue;  // link() shares it with the node's next process
        for (NodeConnection* const other : done) (void)other->unshare(base);
        return shared;
    }
    return {};
}

Result<void> Nodes::share_memory(void* base, std::size_t bytes, int file, std::size_t offset) {
    const std::lock_guard call(calls_);
    Block block{bytes, offset, Descriptor(file < 0 ? -1 : ::fcntl(file, F_DUPFD_CLOEXEC, 0))};
    if (file >= 0 && block.file.get() < 0)
        return error(Errc::kNoSpace,
                     "cannot share {} bytes with the nodes: no file descriptor is left; raise the limit of "
                     "open files (ulimit -n)",
                     bytes);
    auto* const at = static_cast<std::byte*>(base);
    GN_TRY(share_with_all(at, block));
    blocks_.insert_or_assign(at, std::move(block));
    return {};
}

Result<void> Nodes::unshare_memory(void* base) {
    const std::lock_guard call(calls_);
    auto* const at = static_cast<std::byte*>(base);
    const auto block = blocks_.find(at);
    if (block == blocks_.end())
        return error(Errc::kNotFound, "cannot end the sharing of memory at {}: no shared memory begins there",
                     base);
    if (in_use(at, block->second.bytes))
        return error(Errc::kBusy,
                     "cannot end the sharing of memory at {}: regions, completion queues or queue pairs "
                     "still use it; remove them first",
                     base);
    const Block& b = block->second;
    GN_TRY(take_from_all(
        those_there(), [&](NodeConnection& client) { return client.unshare(base); },
        [&](NodeConnection& client) { return client.share(base, b.bytes, b.file.get(), b.offset); }));
    blocks_.erase(block);
    return {};
}

bool Nodes::is_shared(const void* at, std::size_t bytes) const {
    const auto* const from = static_cast<const std::byte*>(at);
    return bytes != 0 && std::ranges::any_of(blocks_, [&](const auto& one) {
               const auto& [base, block] = one;
               return from >= base && static_cast<std::size_t>(from - base) < block.bytes &&
                      bytes <= block.bytes - static_cast<std::size_t>(from - base);
           });
}

bool Nodes::in_use(const std::byte* base, std::size_t bytes) const {
    const auto inside = [&](const void* at) {
        return at >= static_cast<const void*>(base) && at < static_cast<const void*>(base + bytes);
    };
    return std::ranges::any_of(regions_, [&](const auto& one) { return inside(one.second.base); }) ||
           std::ranges::any_of(rings_, [&](const auto& one) { return inside(one.second.config.ring); }) ||
           std::ranges::any_of(pairs_, [&](const auto& one) { return inside(one.second.config.send_ring); });
}

Result<MemoryKeys> Nodes::register_memory(void* base, std::size_t bytes, std::uint32_t access) {
    const std::lock_guard call(calls_);
    if (!is_shared(base, bytes))
        return error(
            Errc::kInvalidArgument,
            "cannot register {} bytes at {}: they do not lie in memory that was shared with the nodes", bytes,
            base);
    const auto key = keys_.take();
    if (!key)
        return error(Errc::kNoSpace, "cannot register memory: all {} regions are in use; deregister some",
                     MemoryTable::kRegions);
    std::vector<NodeConnection*> done;
    for (const Node* const node : those_there()) {
        NodeConnection& client = *node->client;
        const auto made = client.register_memory_as(*key, base, bytes, access);
        if (made.ok()) done.push_back(&client);
        if (made.ok() || client.gone()) continue;
        for (NodeConnection* const other : done) (void)other->deregister_memory({*key, *key});
        keys_.give(*key);
        return made;
    }
    regions_[*key] = {base, bytes, access};
    return MemoryKeys{*key, *key};
}

Result<void> Nodes::deregister_memory(MemoryKeys keys) {
    const std::lock_guard call(calls_);
    const auto region = regions_.find(keys.lkey);
    if (region == regions_.end())
        return error(Errc::kNotFound, "cannot deregister key {:#x}: no region has it", keys.lkey);
    const Region& r = region->second;
    GN_TRY(take_from_all(
        those_there(), [&](NodeConnection& client) { return client.deregister_memory(keys); },
        [&](NodeConnection& client) {
            return client.register_memory_as(keys.lkey, r.base, r.bytes, r.access);
        }));
    regions_.erase(region);
    keys_.give(keys.lkey);
    return {};
}

// ---- rings

Result<CqNumber> Nodes::create_completion_queue(const CompletionQueueConfig& config) {
    const std::lock_guard call(calls_);
    GN_TRY(check(config));
    if (!is_shared(config.ring, config.entries * sizeof(mlx5::Cqe64)) ||
        (config.consumer_record != nullptr && !is_shared(config.consumer_record, sizeof(std::uint32_t))))
        return error(Errc::kInvalidArgument,
                     "cannot create a completion queue of {} entries at {}: its ring does not lie in memory "
                     "that was shared with the nodes",
                     config.entries, static_cast<const void*>(config.ring));
    Ring ring{config, nullptr, 0};
    if (!config.collapsed) {
        if (!tickets_.has_room(config.entries)) {
            GN_ASSIGN(auto memory, simt::PinnedMemory::map(TicketMemory::chunk_bytes(config.entries),
                                                           simt::LanesKind::kCpu, {.shareable = true}));
            Block block{memory.size(), 0, Descriptor(::fcntl(memory.file(), F_DUPFD_CLOEXEC, 0))};
            GN_TRY(share_with_all(memory.data(), block));
            blocks_.insert_or_assign(memory.data(), std::move(block));
            tickets_.add(std::move(memory));
        }
        ring.config.tickets = tickets_.take(config.entries);
        tickets::prepare(ring.config.tickets, config.entries);
        prepare_ring(config);
    }
    ring.mine = std::make_unique<CompletionQueue>(ring.config);
    const std::lock_guard lock(mutex_);
    rings_.emplace(++last_ring_, std::move(ring));
    return last_ring_;
}

Result<void> Nodes::destroy_completion_queue(CqNumber cq) {
    const std::lock_guard call(calls_);
    const auto ring = rings_.find(cq);
    if (ring == rings_.end())
        return error(Errc::kNotFound,
                     "cannot destroy completion queue {}: no completion queue has this number", cq);
    if (ring->second.users != 0)
        return error(Errc::kBusy,
                     "cannot destroy completion queue {}: destroy the queue pairs that use it first", cq);
    for (Node* const node : those_there()) {
        const auto there = node->rings.find(cq);
        if (there == node->rings.end()) continue;
        if (const auto done = node->client->destroy_ring(there->second); !gone_from(done)) return done;
        node->rings.erase(there);
    }
    if (ring->second.config.tickets != nullptr) tickets_.give(ring->second.config.tickets);
    const std::lock_guard lock(mutex_);
    rings_.erase(ring);
    return {};
}

Result<CqNumber> Nodes::ring_at(Node& node, CqNumber cq) {
    const auto known = node.rings.find(cq);
    if (known != node.rings.end()) return known->second;
    GN_ASSIGN(const CqNumber there, node.client->create_ring(rings_.at(cq).config));
    node.rings[cq] = there;
    return there;
}

// ---- queue pairs

Result<QpNumber> Nodes::create_queue_pair(const QueuePairConfig& config) {
    const std::lock_guard call(calls_);
    GN_TRY(check(config));
    const bool receives = config.receive_ring != nullptr;
    const auto send = rings_.find(config.send_cq), receive = rings_.find(config.receive_cq);
    if (send == rings_.end() || (receives && receive == rings_.end()))
        return error(Errc::kNotFound, "cannot create a queue pair: completion queue {} or {} does not exist",
                     config.send_cq, config.receive_cq);
    if (!send->second.config.collapsed || (receives && receive->second.config.collapsed))
        return error(Errc::kUnsupported,
                     "cannot create a queue pair for one of several nodes: its send completion queue must be "
                     "collapsed, and its receive completion queue must be a ring");
    if (send->second.users != 0)
        return error(
            Errc::kBusy,
            "cannot create a queue pair: its collapsed completion queue belongs to another queue pair");
    if (!is_shared(config.send_ring, config.send_entries * sizeof(mlx5::SendEntry)) ||
        (receives && !is_shared(config.receive_ring, config.receive_entries * sizeof(mlx5::DataSegment))) ||
        !is_shared(config.doorbell_record, 2 * sizeof(std::uint32_t)) ||
        !is_shared(config.bell, sizeof(std::uint64_t)))
        return error(Errc::kInvalidArgument,
                     "cannot create a queue pair: its rings, doorbell record and doorbell must lie in memory "
                     "that was shared with the nodes");
    const auto number = numbers_.take();
    if (!number)
        return error(
            Errc::kNoSpace,
            "cannot create a queue pair: all queue pair numbers are in use; destroy some queue pairs");
    simt::store_relaxed<Scope::kSystem>(config.bell, 0u);
    Pair* pair = nullptr;
    {
        const std::lock_guard lock(mutex_);
        pair = &pairs_[*number];
        pair->config = config;
        pair->config.number = *number;
        ++send->second.users;
        if (receives) ++receive->second.users;
    }
    // With a single node, create the queue pair now, so that a refusal is reported here.
    Node& only = *nodes_.front();
    if (nodes_.size() > 1 || !is_there(only)) return *number;
    const auto made = make(*pair, only);
    if (made.ok() || only.client->gone()) return *number;
    forget(*number, *pair);
    return made.error();
}

void Nodes::forget(QpNumber qp, const Pair& pair) {
    const std::lock_guard lock(mutex_);
    --rings_.at(pair.config.send_cq).users;
    if (pair.config.receive_ring != nullptr) --rings_.at(pair.config.receive_cq).users;
    pairs_.erase(qp);
    numbers_.give(qp);
}

Result<Nodes::Pair*> Nodes::find(QpNumber qp) {
    const auto pair = pairs_.find(qp);
    if (pair == pairs_.end()) return error(Errc::kNotFound, "there is no queue pair {:#x}", qp);
    return &pair->second;
}

Result<void> Nodes::settle(QpNumber qp, Pair& pair) {
    const simt::Deadline end = simt::Deadline::in_ns(kSettleNs);
    for (std::uint32_t backoff = 0;;) {
        {
            // Under one lock: afterwards the watcher writes nothing more for it.
            const std::lock_guard lock(mutex_);
            pair.settled =
                pair.config.receive_ring == nullptr || rings_.at(pair.config.receive_cq).mine->is_settled(qp);
            if (pair.settled) {
                if (pair.lost) pair.at = nullptr;
                pair.lost = pair.flush_pending = false;
                return {};
            }
        }
        if (end.passed())
            return error(
                Errc::kBusy,
                "queue pair {:#x} was reset, but another node has stopped between reserving an entry of the "
                "shared completion queue and writing it, and completions of this queue pair follow that "
                "entry; reset the queue pair again when that node continues or has ended",
                qp);
        simt::pause(backoff);
    }
    return {};
}

Result<void> Nodes::destroy_queue_pair(QpNumber qp, std::optional<std::uint32_t>) {
    const std::lock_guard call(calls_);
    GN_ASSIGN(Pair* const pair, find(qp));
    if (pair->at != nullptr && !is_lost(*pair)) {
        GN_TRY(pair->at->client->destroy_queue_pair(qp));
        // Before forget(): bury() needs the number to fill positions that the node took for it and did
        // not write.
        (void)buried_if_ended(*pair->at);
    }
    forget(qp, *pair);
    return {};
}

Result<void> Nodes::reset_queue_pair(QpNumber qp) {
    const std::lock_guard call(calls_);
    GN_ASSIGN(Pair* const pair, find(qp));
    if (pair->at != nullptr && !is_lost(*pair)) {
        const auto done = pair->at->client->reset(qp);
        if (!done.ok() && !buried_if_ended(*pair->at)) return done;
    }
    GN_TRY(settle(qp, *pair));
    simt::store_relaxed<Scope::kSystem>(pair->config.bell, 0u);
    simt::store_relaxed<Scope::kSystem>(pair->config.doorbell_record + mlx5::kReceiveRecord, 0u);
    simt::store_relaxed<Scope::kSystem>(pair->config.doorbell_record + mlx5::kSendRecord, 0u);
    rings_.at(pair->config.send_cq).mine->restart_collapsed();
    return {};
}

Result<void> Nodes::make(Pair& pair, Node& node) {
    QueuePairConfig config = pair.config;
    GN_ASSIGN(config.send_cq, ring_at(node, config.send_cq));
    if (config.receive_ring != nullptr) {
        GN_ASSIGN(config.receive_cq, ring_at(node, config.receive_cq));
    }
    {
        // Before the node creates it, so that bury() finds it if the node ends meanwhile.
        const std::lock_guard lock(mutex_);
        pair.at = &node;
    }
    const auto made = node.client->create_queue_pair(config);
    if (made.ok()) return {};
    const std::lock_guard lock(mutex_);
    // A node that did not answer may still create it; a node that ended has left it in error.
    if (!pair.lost && !node.client->gone()) pair.at = nullptr;
    return made.error();
}

Result<std::vector<std::byte>> Nodes::connect(QpNumber qp, const std::string& peer_address,
                                              const std::string& service,
                                              std::span<const std::byte> private_data,
                                              std::uint32_t timeout_ms) {
    const std::lock_guard call(calls_);
    GN_ASSIGN(Pair* const pair, find(qp));
    const auto node = std::ranges::find_if(
        nodes_, [&](const auto& n) { return n->what.address.empty() || n->what.address == peer_address; });
    if (node == nodes_.end())
        return error(Errc::kNotFound,
                     "cannot connect to {} {}: no node that shares this memory has that address",
                     peer_address, service);
    GN_TRY(ensure(**node));
    {
        const std::lock_guard lock(mutex_);
        if (!pair->settled)
            return error(Errc::kState,
                         "cannot connect queue pair {:#x}: its last reset did not succeed; reset it again",
                         qp);
    }
    if (pair->at != nullptr && pair->at != node->get() && !is_lost(*pair)) {
        GN_TRY(pair->at->client->destroy_queue_pair(qp));
        if (!buried_if_ended(*pair->at)) {
            const std::lock_guard lock(mutex_);
            pair->at = nullptr;
        }
    }
    if (is_lost(*pair))
        return error(Errc::kState, "cannot connect queue pair {:#x}: its node has ended; reset it first", qp);
    if (pair->at == nullptr) GN_TRY(make(*pair, **node));
    return (*node)->client->connect_queue_pair(qp, peer_address, service, private_data, timeout_ms);
}

void Nodes::disconnect(QpNumber qp) {
    const std::lock_guard call(calls_);
    const auto pair = find(qp);
    if (!pair.ok() || (*pair)->at == nullptr) return;
    {
        const std::lock_guard lock(mutex_);
        if ((*pair)->lost) return;
    }
    (*pair)->at->client->disconnect(qp);
}

QpState Nodes::state(QpNumber qp) const {
    std::shared_ptr<NodeConnection> client;
    {
        const std::lock_guard lock(mutex_);
        const auto pair = pairs_.find(qp);
        if (pair == pairs_.end() || pair->second.lost) return QpState::kError;
        if (pair->second.at == nullptr) return QpState::kReset;
        client = pair->second.at->client;
    }
    return client->state(qp);
}

NicCounters Nodes::counters() const {
    std::vector<std::shared_ptr<NodeConnection>> clients;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& node : nodes_)
            if (node->there) clients.push_back(node->client);
    }
    NicCounters sum{};
    for (const auto& client : clients) {
        const NicCounters one = client->counters();
        sum.sends += one.sends;
        sum.rdma_writes += one.rdma_writes;
        sum.rdma_reads += one.rdma_reads;
        sum.bells += one.bells;
        sum.completions += one.completions;
        sum.error_completions += one.error_completions;
        sum.rnr += one.rnr;
        sum.strict_violations += one.strict_violations;
    }
    return sum;
}

void Nodes::keep(std::shared_ptr<void> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
}

}  // namespace gnstor::rdma::shm
