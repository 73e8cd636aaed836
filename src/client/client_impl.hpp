// client_impl.hpp: what a Client owns; shared by the .cpp files of Client and Volume.
//
// Members are destroyed from last to first: the periodic threads before the sessions they keep alive,
// channels before the sessions whose queues they use, and memory that lanes see last of all.
#pragma once

#include <gnstor/client/client.hpp>

#include "client/map_memory.hpp"
#include "client/opening_floor.hpp"
#include "client/periodic_tasks.hpp"
#include "client/ssd_session.hpp"
#include "gnor/channel.hpp"

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace gnstor::client {

/// A channel whose pool a periodic thread enlarges on demand.
struct PoolGrowth {
    gnor::Channel* channel;
    std::chrono::steady_clock::time_point next_try{};  ///< no attempt before: the last one failed
    bool complained = false;
};

struct Client::Impl {
    Impl(ControlPlane& control_plane, rdma::Nic& own_nic, ClientOptions client_options)
        : control(control_plane), nic(own_nic), options(std::move(client_options)) {}

    ControlPlane& control;
    rdma::Nic& nic;
    const ClientOptions options;
    ClientIdentity identity;
    nvmf::HostId host_id{};
    std::mutex maps;             ///< serializes refreshes: guards the two maps below and `views`
    MapMemory lane_map;          ///< for kernels
    MapMemory host_map;          ///< for the CPU lanes of this process
    std::list<ArrayView> views;  ///< every view that was ever current, because array() returns references
    std::atomic<const ArrayView*> view{nullptr};
    simt::DeviceMemory channel_refs;
    std::vector<std::unique_ptr<SsdSession>>
        sessions;  ///< one per slot of the map that is not empty, in order
    /// Floors of destroyed volumes whose writes have not all ended, or ended in doubt: lanes that reap a late
    /// completion (of a token, a callback or a batch) still record it there.
    std::vector<std::unique_ptr<OpeningFloor>> left_floors;
    std::vector<std::unique_ptr<gnor::Channel>> channels;
    std::mutex host_lanes;                        ///< one transfer of Volume::read or write at a time
    std::unique_ptr<gnor::Channel> host_channel;  ///< CPU lanes: Volume::read and write
    /// A bit per slot: association is new, queue pairs still belong to the lost one.
    std::uint64_t new_associations = 0;
    /// A bit per slot: the last keep-alive, or open(), did not reach the SSD.
    std::atomic<std::uint64_t> lost{0};
    PeriodicTasks keep_alives;  ///< sends keep-alives to SSDs
    /// Used only on the thread of `renewals`, as the next two.
    std::chrono::steady_clock::time_point next_map_look;
    std::chrono::steady_clock::time_point next_lost_look;
    std::chrono::milliseconds map_pause{0};
    /// Renews leases and maps, on its own thread: a daemon that hangs must not cost the associations.
    PeriodicTasks renewals;
    std::vector<PeriodicTasks::TaskId> tasks;
    std::vector<PoolGrowth> growths;  ///< used only on the thread of `pools`
    /// Grows pools that lanes wait for, and reads floors before the sequence ring overruns: never blocked by
    /// a daemon or an SSD that hangs.
    PeriodicTasks pools;
    PeriodicTasks
        floors;  ///< sends floors of openings to SSDs: one that hangs delays no keep-alive of others

    Result<void> open();
    /// Connects all SSDs that answer, at least one; the others count as lost.
    Result<void> open_sessions();
    /// Tells the sessions which SSD fills their slot; a bit per slot for which it is another one than before.
    Result<std::uint64_t> fill_sessions(const ArrayView& now);
    /// Disconnects the queue pairs of an SSD whose association is known to be lost.
    void disconnect_queues(SsdSession& session);
    /// Marks an unreachable SSD as lost. Fails if the SSD is reachable but refused, or if no SSD is left.
    Result<void> do_without(const SsdSession& session, const Error& why);
    Result<void> open_channels();
    Result<std::unique_ptr<gnor::Channel>> open_channel(std::uint16_t queue_id, rdma::RingUse use,
                                                        simt::LanesKind lanes, Sharing sharing);
    /// Resets the queue pair that a channel has for an SSD, and reconnects it.
    Result<void> reset_queue(gnor::Channel& channel, SsdSession& session, std::uint16_t queue_id);
    /// Whether commands in flight can still be answered: some queue pair that waits is not in error.
    [[nodiscard]] bool answers_may_come();
    /// Slots that a reclaim() could not repair, and the first error. One failing SSD does not stop the
    /// others' repair.
    struct Reclaimed {
        std::uint64_t slots = 0;
        Result<void> first;
        void failed(std::uint64_t which, const Error& why) {
            slots |= which;
            if (first.ok()) first = why;
        }
    };
    void reclaim(gnor::Channel& channel, std::uint16_t queue_id, Reclaimed& reclaimed);
    /// Frees what a timed-out host transfer left in quarantine, as far as the SSDs answer. Call with
    /// host_lanes held.
    void settle_host_channel();
    void start_keep_alives();
    void keep_alive(SsdSession& session);
    /// Checks all SSDs not yet lost, concurrently: detecting a dead one takes its timeout, which must not
    /// delay the others.
    void keep_others_alive();
    [[nodiscard]] bool is_lost(const SsdSession& session) const;
    /// Marks the SSD as lost. True: no other SSD at the same address was lost before, so log it (one line per
    /// peer, however many SSDs it has and however long it is away).
    [[nodiscard]] bool note_lost(const SsdSession& session);
    /// Clears `slots`, and logs each peer that has no lost SSD any more.
    void note_back(std::uint64_t slots);
    [[nodiscard]] std::uint64_t slots_at(const std::string& nic_address) const;
    /// Whether this client has lost the SSD of a slot that writes go to under this map.
    [[nodiscard]] bool lost_an_ssd_of(const placement::ArrayMap& map) const;
    /// Fetches the array's map; true if it is newer than the one that lanes have.
    Result<bool> refresh_map();
    void follow_maps_periodically();
    void look_for_newer_map();
    void look_for_lost_ssds(const placement::ArrayMap& map);
    void grow_pools_periodically();
    void grow_pools();
    [[nodiscard]] std::uint16_t host_queue_id() const {
        return static_cast<std::uint16_t>(options.channels + 1);
    }
};

}  // namespace gnstor::client
