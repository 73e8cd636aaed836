// upkeep.cpp: the work of a client's own threads: keep-alives to SSDs, newer maps, pool growth
// (client_impl.hpp says which thread does what).
#include <gnstor/base/log.hpp>

#include "client/client_impl.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>
#include <vector>

namespace gnstor::client {
namespace {

constexpr auto kMapLook = std::chrono::milliseconds(20);  // one load per channel
constexpr auto kPoolLook = std::chrono::milliseconds(5);  // likewise
constexpr auto kPoolPause = std::chrono::seconds(1);      // after an allocation failed
// Longest pause between requests that found no newer map.
constexpr auto kMapPauseMax = std::chrono::milliseconds(640);

}  // namespace

void Client::Impl::start_keep_alives() {
    if (options.keep_alive_ms == 0) return;
    const auto period = std::chrono::milliseconds(std::max(1u, options.keep_alive_ms / 3));
    for (const auto& session : sessions)
        tasks.push_back(keep_alives.add(period, [this, s = session.get()] {
            const bool known = is_lost(*s);
            keep_alive(*s);
            if (!known && is_lost(*s)) keep_others_alive();
        }));
}

bool Client::Impl::is_lost(const SsdSession& session) const {
    return (lost.load() & session.bit()) != 0;
}

std::uint64_t Client::Impl::slots_at(const std::string& nic_address) const {
    std::uint64_t slots = 0;
    for (const auto& session : sessions)
        if (session->nic_address() == nic_address) slots |= session->bit();
    return slots;
}

bool Client::Impl::note_lost(const SsdSession& session) {
    return (lost.fetch_or(session.bit()) & slots_at(session.nic_address())) == 0;
}

void Client::Impl::note_back(std::uint64_t slots) {
    const std::uint64_t before = lost.fetch_and(~slots), after = before & ~slots;
    for (std::uint64_t told = after; const auto& session : sessions) {
        const std::uint64_t here = slots_at(session->nic_address());
        if ((before & here) == 0 || (told & here) != 0) continue;
        told |= here;
        log_warn("client {} reaches {} at {} again", identity.name, session->name(), session->nic_address());
    }
}

// A dead node never answers the commands it has taken, and a queue pair that only waits for answers sends
// nothing that would reveal this. So the loss of the association disconnects its queue pairs, and lanes turn
// to other replicas.
void Client::Impl::keep_alive(SsdSession& session) {
    const auto kept = session.keep_alive();
    if (kept.ok()) {
        note_back(session.bit());
        return;
    }
    if (note_lost(session))
        log_warn(
            "client {} has lost its connection to {} at {}: {}; it works without this SSD until reclaim() "
            "reaches it again",
            identity.name, session.name(), session.nic_address(), kept.error().message);
    disconnect_queues(session);
}

void Client::Impl::disconnect_queues(SsdSession& session) {
    session.if_lost([&] {
        for (const auto& channel : channels) nic.disconnect(channel->queue_pair(session.slot()));
        nic.disconnect(host_channel->queue_pair(session.slot()));
    });
}

void Client::Impl::keep_others_alive() {
    // If no thread can be created, wait() runs them one after the other.
    std::vector<std::future<void>> asked;
    for (const auto& session : sessions)
        if (!is_lost(*session)) asked.push_back(std::async([this, s = session.get()] { keep_alive(*s); }));
    for (const auto& each : asked) each.wait();
}

void Client::Impl::follow_maps_periodically() {
    (void)renewals.add(kMapLook, [this] { look_for_newer_map(); });
}

bool Client::Impl::lost_an_ssd_of(const placement::ArrayMap& map) const {
    const std::uint64_t slots = lost.load();
    for (std::uint32_t s = 0; s < map.slot_count; ++s)
        if (((slots >> s) & 1u) != 0 && placement::is_written(map.slots[s].state)) return true;
    return false;
}

// Lanes send nothing to the chunks of a lost SSD that could be refused: so the daemon is asked whether the SSD is out.
void Client::Impl::look_for_lost_ssds(const placement::ArrayMap& map) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_lost_look || !lost_an_ssd_of(map)) return;
    next_lost_look = now + kMapPauseMax;
    (void)refresh_map().ok();  // without gnstord no slot is taken out; asked again
}

// Lanes whose map was refused wait for a newer one (gnor/detail/paths/retrying.hpp). If the daemon has none
// yet, it is asked again, at growing intervals, as long as lanes report a refusal.
void Client::Impl::look_for_newer_map() {
    const placement::ArrayMap& map = view.load(std::memory_order_acquire)->map;
    bool refused = host_channel->refused_map() == map.version;
    for (const auto& channel : channels) refused = refused || channel->refused_map() == map.version;
    if (!refused) return look_for_lost_ssds(map);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_map_look) return;
    host_channel->clear_refused_map();
    for (const auto& channel : channels) channel->clear_refused_map();
    const auto newer = refresh_map();
    if (!newer.ok())
        log_warn("client {} could not look for a newer array map: {}", identity.name, newer.error().message);
    const bool found = newer.ok() && *newer;
    map_pause = found ? std::chrono::milliseconds(0)
                      : std::min<std::chrono::milliseconds>(kMapPauseMax, map_pause * 2 + kMapLook);
    next_map_look = now + map_pause;
}

void Client::Impl::grow_pools_periodically() {
    for (const auto& channel : channels) growths.push_back({channel.get()});
    growths.push_back({host_channel.get()});
    if (options.pool_bytes_max == options.pool_bytes) return;
    (void)pools.add(kPoolLook, [this] { grow_pools(); });
}

// Lanes that found a pool empty have set a flag, and retry (gnor/detail/resources/pool.hpp). A failed
// allocation is not fatal: answered commands return their buffers.
void Client::Impl::grow_pools() {
    const auto now = std::chrono::steady_clock::now();
    for (PoolGrowth& growth : growths) {
        if (now < growth.next_try) continue;
        const auto grown = growth.channel->grow_pool_if_asked();
        if (grown.ok()) continue;
        growth.next_try = now + kPoolPause;
        if (std::exchange(growth.complained, true)) continue;
        log_warn("a channel of client {} keeps its pool of {} bytes, because the pool cannot grow: {}",
                 identity.name, growth.channel->pool_bytes(), grown.error().message);
    }
}

}  // namespace gnstor::client
