// nodes_watch.cpp: connections to nodes that start and end, and the handling of queue pairs whose node
// has ended.
#include "rdma/wire/shm/nodes.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/rdma/completion_words.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>

namespace gnstor::rdma::shm {
namespace {

constexpr int kOwedMs = 20;  // until another attempt to write a flushed receive that found no room

/// Reports only that the send queue is in error: which entries the node has executed is unknown.
void flush_sends(CompletionQueue& queue, const mlx5::Cqe64* entry, QpNumber qp) {
    const std::uint32_t last = acquire_last_words(entry).counter_own;
    CompletionFields fields;
    fields.qpn = qp;
    // Keeps the counter of the last completion; -1 stands for "none yet".
    fields.wqe_counter =
        mlx5::cqe_opcode(last) == mlx5::kCqeInvalid ? std::uint16_t{0xFFFF} : mlx5::cqe_wqe_counter(last);
    fields.opcode = mlx5::kCqeRequestError;
    fields.syndrome = mlx5::kFlushed;
    (void)queue.write(fields);
}

CompletionFields flushed_receive() {
    CompletionFields fields;
    fields.opcode = mlx5::kCqeResponseError;
    fields.syndrome = mlx5::kFlushed;
    return fields;
}

}  // namespace

Result<void> Nodes::link(Node& node) {
    GN_ASSIGN(const ShmNode::Place place, node.what.find());
    GN_ASSIGN(std::shared_ptr<NodeConnection> client,
              NodeConnection::connect(place.socket.string(), place.server));
    for (const auto& [base, block] : blocks_)
        GN_TRY(client->share(base, block.bytes, block.file.get(), block.offset));
    for (const auto& [key, region] : regions_)
        GN_TRY(client->register_memory_as(key, region.base, region.bytes, region.access));
    {
        const std::lock_guard lock(mutex_);
        node.client = std::move(client);
        node.rings.clear();
        node.there = true;
    }
    wake();
    return {};
}

// A node that is gone but has not hung up may still touch our memory.
bool Nodes::buried_if_ended(Node& node) {
    if (!node.client->gone() || !node.client->ended()) return false;
    bury(node, node.client);
    return true;
}

bool Nodes::is_lost(const Pair& pair) {
    const std::lock_guard lock(mutex_);
    return pair.lost;
}

Result<void> Nodes::ensure(Node& node) {
    // The watcher may not have run since the node ended; calls must not go to the socket of the node's
    // earlier process.
    if (is_there(node) && node.client->hung_up()) bury(node, node.client);
    (void)buried_if_ended(node);
    if (is_there(node)) return {};
    return link(node);
}

bool Nodes::is_there(const Node& node) {
    const std::lock_guard lock(mutex_);
    return node.there;
}

void Nodes::wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
}

void Nodes::watch() {
    for (;;) {
        std::vector<pollfd> polled{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
        std::vector<std::pair<Node*, std::shared_ptr<NodeConnection>>> watched;
        bool flush_pending = false;
        {
            const std::lock_guard lock(mutex_);
            if (stopping_) return;
            for (const auto& node : nodes_)
                if (node->there) watched.emplace_back(node.get(), node->client);
            flush_pending =
                std::ranges::any_of(pairs_, [](const auto& one) { return one.second.flush_pending; });
        }
        // events = 0: requesters read their replies; poll only for hang-up.
        for (const auto& [node, client] : watched)
            polled.push_back({.fd = client->socket(), .events = 0, .revents = 0});
        (void)::poll(polled.data(), polled.size(), flush_pending ? kOwedMs : -1);
        std::uint64_t told = 0;
        if (polled[0].revents != 0) (void)!::read(wake_.get(), &told, sizeof told);
        for (std::size_t i = 0; i < watched.size(); ++i)
            if (polled[i + 1].revents != 0) bury(*watched[i].first, watched[i].second);
        if (flush_pending) write_pending_flushes();
    }
}

void Nodes::bury(Node& node, const std::shared_ptr<NodeConnection>& client) {
    {
        const std::lock_guard lock(mutex_);
        if (!node.there || node.client != client) return;  // another thread handled it
        node.there = false;
        std::size_t lost = 0;
        for (auto& [number, pair] : pairs_) {
            if (pair.at != &node || pair.lost) continue;
            pair.lost = true;
            pair.flush_pending = pair.config.receive_ring != nullptr;
            ++lost;
            Ring& sends = rings_.at(pair.config.send_cq);
            flush_sends(*sends.mine, sends.config.ring, number);
        }
        const auto is_lost = [this](QpNumber number) {
            const auto pair = pairs_.find(number);
            return pair != pairs_.end() && pair->second.lost;
        };
        for (auto& [cq, ring] : rings_) {
            if (ring.config.tickets == nullptr) continue;
            for (const QpNumber number : ring.mine->complete_for(is_lost, flushed_receive()))
                pairs_.at(number).flush_pending = false;
        }
        // The meaning for users is reported elsewhere (client/upkeep.cpp).
        log_info("rdma: the node at {} has ended: {} queue pairs are in error", client->address(), lost);
    }
    write_pending_flushes();
    wake();  // so that the watcher retries those that found no room
}

/// A flushed receive takes the room of a receive that the node did not use: there is none until lanes
/// have polled a completion of this queue pair.
void Nodes::write_pending_flushes() {
    const std::lock_guard lock(mutex_);
    for (auto& [number, pair] : pairs_) {
        if (!pair.flush_pending) continue;
        CompletionQueue& queue = *rings_.at(pair.config.receive_cq).mine;
        const CompletionQueue::Waiting waiting = queue.waiting_of(number);
        if (waiting.errors != 0)
            pair.flush_pending = false;  // the node itself reported an error before it ended
        if (waiting.errors != 0 || waiting.completions >= pair.config.receive_entries) continue;
        CompletionFields fields = flushed_receive();
        fields.qpn = number;
        pair.flush_pending = false;
        if (!queue.write(fields))
            log_error(
                "rdma: queue pair {:#x}: its completion queue is smaller than its receive queues, or was "
                "overwritten",
                number);
    }
}

}  // namespace gnstor::rdma::shm
