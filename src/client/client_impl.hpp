// client_impl.hpp: what a Client owns; shared by client.cpp and volume.cpp.
//
// Destroyed from the last member to the first: the proxy before the sessions it keeps alive, channels before
// the sessions whose queues they use, memory that lanes see last.
#pragma once

#include <gnstor/client/client.hpp>

#include "client/map_memory.hpp"
#include "client/opening_floor.hpp"
#include "client/proxy.hpp"
#include "client/ssd_session.hpp"
#include "gnor/channel.hpp"

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace gnstor::client {

/// A channel's pool as the proxy keeps it growing.
struct PoolGrowth {
    gnor::Channel* channel;
    std::chrono::steady_clock::time_point next_try{};  ///< not before: the last one failed
    bool complained = false;
};

struct Client::Impl {
    Impl(ControlPlane& control_plane, rdma::SoftNic& own_nic, ClientOptions client_options)
        : control(control_plane), nic(own_nic), options(std::move(client_options)) {}

    ControlPlane& control;
    rdma::SoftNic& nic;
    const ClientOptions options;
    ClientIdentity identity;
    nvmf::HostId host_id{};
    std::mutex maps;             ///< one refresh at a time: guards the two that follow and `views`
    MapMemory lane_map;          ///< for kernels
    MapMemory host_map;          ///< for this process's own lanes
    std::list<ArrayView> views;  ///< all that were ever current, as array() hands out references
    std::atomic<const ArrayView*> view{nullptr};
    simt::DeviceMemory channel_refs;
    std::vector<std::unique_ptr<SsdSession>> sessions;  ///< in order of slot; none where an SSD is missing
    /// Of volumes that are gone, where writes have not ended, or in doubt: whoever reaps one of a token, a
    /// callback or a batch still notes it there.
    std::vector<std::unique_ptr<OpeningFloor>> left_floors;
    std::vector<std::unique_ptr<gnor::Channel>> channels;
    std::mutex host_lanes;                        ///< one transfer of Volume::read or write at a time
    std::unique_ptr<gnor::Channel> host_channel;  ///< CPU lanes: Volume::read and write
    std::uint64_t associations_anew = 0;  ///< a bit a slot whose queue pairs are still those of a lost one
    std::atomic<std::uint64_t> lost{0};   ///< a bit a slot that the last keep-alive, or open(), did not reach
    Proxy proxy;                          ///< keep-alives to SSDs
    std::chrono::steady_clock::time_point next_map_look;  ///< the thread of `renewals` alone, as what follows
    std::chrono::milliseconds map_pause{0};
    Proxy renewals;  ///< of leases and maps, on a thread of their own: a daemon that hangs must not cost the
                     ///< associations
    std::vector<Proxy::ChoreId> chores;
    std::vector<PoolGrowth> growths;  ///< the thread of `pools` alone
    Proxy pools;   ///< of channels, that lanes wait for, and looks at floors, which a ring of sequences waits
                   ///< for: behind no daemon and no SSD that hangs
    Proxy floors;  ///< of openings, that SSDs are told: one that hangs costs others no keep-alive

    Result<void> open();
    /// With all SSDs that answer, of which there has to be one. Others count as lost.
    Result<void> open_sessions();
    /// An SSD that is not there now counts as lost. The error: it is, or it was the last one.
    Result<void> do_without(const SsdSession& session, const Error& why);
    Result<void> open_channels();
    Result<std::unique_ptr<gnor::Channel>> open_channel(std::uint16_t queue_id, rdma::RingUse use,
                                                        simt::LanesKind lanes, Sharing sharing);
    /// Resets the queue pair that a channel has for an SSD, and connects it anew.
    Result<void> reset_queue(gnor::Channel& channel, SsdSession& session, std::uint16_t queue_id);
    /// Of commands under way, by any of the living SSDs.
    [[nodiscard]] bool answers_may_come();
    /// What a reclaim() could not bring back, and why. One SSD keeps none of the others away.
    struct Reclaimed {
        std::uint64_t slots = 0;
        Result<void> first;
        void failed(std::uint64_t which, const Error& why) {
            slots |= which;
            if (first.ok()) first = why;
        }
    };
    void reclaim(gnor::Channel& channel, std::uint16_t queue_id, Reclaimed& reclaimed);
    /// Frees what a host transfer that timed out left in quarantine, as far as the SSDs let it. Under
    /// host_lanes.
    void settle_host_channel();
    void keep_alive_by_proxy();
    void keep_alive(SsdSession& session);
    /// All that were not lost, at once: each takes its time to see the end, and the living wait for no other.
    void keep_others_alive();
    [[nodiscard]] bool is_lost(const SsdSession& session) const;
    /// Whether this is news: no SSD at the same address was lost before. A line a peer, however many SSDs it
    /// has and however long it is away.
    [[nodiscard]] bool note_lost(const SsdSession& session);
    /// Says which peers have no lost SSD any more.
    void note_back(std::uint64_t slots);
    [[nodiscard]] std::uint64_t slots_at(const std::string& nic_address) const;
    /// Fetches the array's map; whether it is newer than the one that lanes have.
    Result<bool> refresh_map();
    void follow_maps_by_proxy();
    void look_for_refused_map();
    void grow_pools_by_proxy();
    void grow_pools();
    [[nodiscard]] std::uint16_t host_queue_id() const {
        return static_cast<std::uint16_t>(options.channels + 1);
    }
};

}  // namespace gnstor::client
