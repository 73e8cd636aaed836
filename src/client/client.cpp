// client.cpp: a client's connections to every SSD, and its channels. The work of its own threads: upkeep.cpp.
#include <gnstor/base/log.hpp>
#include <gnstor/base/uuid.hpp>

#include "client/client_impl.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

namespace gnstor::client {
namespace {

constexpr std::uint32_t kGpuChannels = 32;  // docs/design.md, "A read, from end to end"
constexpr std::uint32_t kCpuChannels = 4;
constexpr std::uint32_t kChannelsMax = 127;  // plus the client's own one
constexpr std::uint64_t kPoolGrain = 256u << 10;
constexpr std::uint64_t kQuiesceNs = 10'000'000'000;
constexpr std::uint32_t kQuiesceLookMs = 100;        // how often to check whether answers can still come
constexpr std::uint64_t kLateAnswersNs = 1'000'000;  // wait for answers that have arrived already
constexpr std::uint64_t kPoolGrowth = 4;             // two doublings, unless pool_bytes_max says otherwise

Result<void> check(const ClientOptions& o) {
    if (o.channels == 0 || o.channels > kChannelsMax)
        return error(Errc::kInvalidArgument, "a client has 1 to {} channels, not {}", kChannelsMax,
                     o.channels);
    if (!std::has_single_bit(o.depth) || o.depth < 8 || o.depth > 256)
        return error(Errc::kInvalidArgument, "a channel's depth is a power of two from 8 to 256, not {}",
                     o.depth);
    if (o.pool_bytes == 0 || o.pool_bytes % kPoolGrain != 0)
        return error(Errc::kInvalidArgument, "a channel's pool is a multiple of {} bytes, not {}", kPoolGrain,
                     o.pool_bytes);
    if (o.pool_bytes_max != 0 && o.pool_bytes_max < o.pool_bytes)
        return error(Errc::kInvalidArgument,
                     "a channel's pool of {} bytes cannot grow to {} bytes, which is less; give the same "
                     "size for a pool that does not grow",
                     o.pool_bytes, o.pool_bytes_max);
    if (o.transfer_timeout_ms == 0)
        return error(Errc::kInvalidArgument, "a host transfer needs a timeout of at least 1 ms");
    return simt::check_lanes(o.lanes);
}

/// Reopens several sessions, with the keys that gnstord gives now: they may have been rotated. If one SSD of
/// a node timed out, the node's other SSDs fail at once with the same error.
class Reopening {
  public:
    explicit Reopening(ControlPlane& control, nvme::ClientId client) : control_(control), client_(client) {}
    Result<void> operator()(SsdSession& session) {
        const auto silent = silent_.find(session.nic_address());
        if (silent != silent_.end()) return silent->second;
        GN_TRY(give_keys(session));
        auto opened = session.reopen();
        if (!opened.ok() && opened.error().code == Errc::kTimedOut)
            silent_.emplace(session.nic_address(), opened.error());
        return opened;
    }

  private:
    /// Without gnstord the session keeps the keys that it has: they are good unless they were rotated.
    Result<void> give_keys(SsdSession& session) {
        if (!keys_) {
            Result<std::vector<SsdKeys>> now = control_.ssd_keys(client_);
            if (!now.ok() && now.error().code == Errc::kPermission) return std::move(now).error();
            keys_ = now.ok() ? std::move(now).value() : std::vector<SsdKeys>{};
        }
        for (const SsdKeys& keys : *keys_)
            if (keys.slot == session.slot()) return session.set_keys(keys);
        return {};
    }

    ControlPlane& control_;
    const nvme::ClientId client_;
    std::optional<std::vector<SsdKeys>> keys_;  ///< asked for once
    std::map<std::string, Error> silent_;       ///< by address
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(ControlPlane& control, rdma::Nic& nic,
                                                const ClientOptions& options) {
    ClientOptions chosen = options;
    if (chosen.channels == 0)
        chosen.channels = chosen.lanes == simt::LanesKind::kGpu ? kGpuChannels : kCpuChannels;
    GN_TRY(check(chosen));
    if (chosen.pool_bytes_max == 0)
        chosen.pool_bytes_max =
            std::max(chosen.pool_bytes, std::min(chosen.pool_bytes * kPoolGrowth, gnor::kPoolBytesMost));
    auto impl = std::make_unique<Impl>(control, nic, chosen);
    GN_TRY(impl->open());
    return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Result<void> Client::Impl::open() {
    const Uuid uuid = Uuid::random();
    std::memcpy(host_id.data(), &uuid, host_id.size());
    GN_ASSIGN(identity, control.register_client(options.name));
    GN_ASSIGN(ArrayView now, control.array());
    views.push_back(std::move(now));
    view.store(&views.back(), std::memory_order_release);  // pairs with the acquire of array()
    const placement::ArrayMap& map = views.back().map;
    if (map.slot_count == 0 || views.back().ssds.empty())
        return error(Errc::kState,
                     "the array has no SSDs in its map; bring some up first ('gnstor ssd list' shows them)");
    GN_ASSIGN(lane_map, MapMemory::create(map, options.lanes));
    GN_ASSIGN(host_map, MapMemory::create(map, simt::LanesKind::kCpu));
    GN_TRY(open_sessions());
    GN_TRY(open_channels());
    start_keep_alives();
    follow_maps_periodically();
    grow_pools_periodically();
    return {};
}

Result<void> Client::Impl::open_sessions() {
    const ArrayView& now = views.back();
    for (std::uint32_t slot = 0; slot < now.map.slot_count; ++slot)
        if (now.map.slots[slot].state != placement::SlotState::kEmpty)
            sessions.push_back(std::make_unique<SsdSession>(nic, slot, identity, host_id,
                                                            options.keep_alive_ms, options.channels + 1));
    GN_TRY(fill_sessions(now));
    for (const auto& session : sessions)
        if (!session->ssd())
            lost.fetch_or(session->bit());  // gnstord has not found its SSD, and says so itself
    Reopening reopen(control, identity.id);
    for (const auto& session : sessions) {
        if (!session->ssd()) continue;
        if (const auto opened = reopen(*session); !opened.ok()) GN_TRY(do_without(*session, opened.error()));
    }
    return {};
}

Result<std::uint64_t> Client::Impl::fill_sessions(const ArrayView& now) {
    std::uint64_t others = 0;
    for (const SsdAddress& ssd : now.ssds) {
        const auto session =
            std::ranges::find_if(sessions, [&](const auto& s) { return s->slot() == ssd.slot; });
        if (session == sessions.end())
            return error(Errc::kUnsupported,
                         "gnstord lists an SSD in slot {}, which the array did not have when this client "
                         "connected; connect a new client",
                         ssd.slot);
        if ((*session)->fill(ssd)) others |= (*session)->bit();
    }
    return others;
}

Result<void> Client::Impl::do_without(const SsdSession& session, const Error& why) {
    // Errors of an unreachable SSD. One that refuses, or that does not prove itself, counts as unreachable,
    // too: an impostor at its address must not make the replicas unreachable. If all refuse this client, the call
    // fails below.
    if (why.code != Errc::kTimedOut && why.code != Errc::kIo && why.code != Errc::kNotFound &&
        why.code != Errc::kState && why.code != Errc::kPermission && why.code != Errc::kBusy)
        return why;
    if (note_lost(session))
        log_warn(
            "client {} works without {}, and without other SSDs of {} that it cannot reach, until reclaim() "
            "reaches them again: {}",
            identity.name, session.name(), session.nic_address(), why.message);
    if (std::ranges::all_of(sessions, [this](const auto& s) { return is_lost(*s); })) return why;
    return {};
}

Result<void> Client::Impl::open_channels() {
    std::vector<ChannelRef> refs;
    for (std::uint32_t i = 0; i < options.channels; ++i) {
        GN_ASSIGN(std::unique_ptr<gnor::Channel> channel,
                  open_channel(static_cast<std::uint16_t>(i + 1), rdma::RingUse::kLanes, options.lanes,
                               options.sharing));
        refs.push_back(channel->ref());
        channels.push_back(std::move(channel));
    }
    GN_ASSIGN(channel_refs, simt::DeviceMemory::allocate(refs.size() * sizeof(ChannelRef), options.lanes));
    GN_TRY(channel_refs.upload(0, refs.data(), refs.size() * sizeof(ChannelRef)));
    GN_ASSIGN(host_channel,
              open_channel(host_queue_id(), rdma::RingUse::kHost, simt::LanesKind::kCpu, Sharing::kGrid));
    return {};
}

Result<std::unique_ptr<gnor::Channel>> Client::Impl::open_channel(std::uint16_t queue_id, rdma::RingUse use,
                                                                  simt::LanesKind lanes, Sharing sharing) {
    gnor::ChannelOptions channel_options;
    channel_options.absent = ~0ull;  // cleared below for the SSDs that are connected
    // All slots of the map: a flush must not succeed if it skips a slot whose SSD is unknown to this client.
    channel_options.ssds = views.back().map.slot_count;
    for (const auto& session : sessions)
        if (!is_lost(*session)) channel_options.absent &= ~session->bit();
    channel_options.depth = options.depth;
    channel_options.pool_bytes = options.pool_bytes;
    channel_options.pool_bytes_max = options.pool_bytes_max;
    channel_options.lanes = lanes;
    channel_options.sharing = sharing;
    channel_options.use = use;
    channel_options.check_buffers = options.check_buffers;
    channel_options.scatter_to_cqe = options.scatter_to_cqe;
    GN_ASSIGN(std::unique_ptr<gnor::Channel> channel, gnor::Channel::create(nic, channel_options));
    for (const auto& session : sessions) {
        if (is_lost(*session)) continue;
        const auto connected = session->connect_queue(*channel, queue_id);
        if (connected.ok()) continue;
        GN_TRY(do_without(*session, connected.error()));
        GN_TRY(channel->give_up(session->slot()));
    }
    return channel;
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() {
    for (const PeriodicTasks::TaskId task : impl_->tasks) impl_->keep_alives.remove(task);
    const auto dropped = drop_callbacks();  // memory that they would write to may be freed
    if (!dropped.ok())
        log_warn("the callbacks of client {} could not be dropped: {}", impl_->identity.name,
                 dropped.error().message);
    else if (*dropped != 0)
        log_warn("client {} closes with {} callbacks that did not run", impl_->identity.name, *dropped);
    const auto deadline = simt::Deadline::in_ns(kQuiesceNs);
    auto quiet = quiesce(kQuiesceLookMs);
    while (!quiet.ok() && !deadline.passed() && impl_->answers_may_come()) quiet = quiesce(kQuiesceLookMs);
    if (!quiet.ok())
        log_warn("client {} closes with commands under way: {}", impl_->identity.name, quiet.error().message);
}

Result<nvme::VolumeRecord> Client::create(const CreateVolume& request) {
    return impl_->control.create_volume(impl_->identity.id, request);
}

ChannelSet Client::channels() const {
    if (auto here = impl_->channel_refs.check_this_gpu(); !here.ok()) {
        log_error("the channels of client {} cannot be used by kernels of this thread: {}",
                  impl_->identity.name, here.error().message);
        return ChannelSet{.lanes = impl_->options.lanes, .without = nvme::Status::kWrongLanes};
    }
    return ChannelSet{impl_->channel_refs.lane_as<ChannelRef>(),
                      static_cast<std::uint32_t>(impl_->channels.size()), impl_->options.lanes};
}
gnor::Channel& Client::channel(std::uint32_t index) {
    return *impl_->channels.at(index);
}
std::uint32_t Client::channel_count() const {
    return static_cast<std::uint32_t>(impl_->channels.size());
}

Result<void> Client::register_buffer(void* base, std::size_t bytes) {
    for (std::size_t done = 0; done < impl_->channels.size(); ++done) {
        auto registered = impl_->channels[done]->register_buffer(base, bytes);
        if (registered.ok()) continue;
        // All channels or none: undoes the registrations made so far.
        while (done-- > 0)
            if (auto undone = impl_->channels[done]->unregister_buffer(base); !undone.ok())
                log_error("a buffer stays registered with channel {}: {}", done, undone.error().message);
        if (impl_->nic.wants_shared_memory() && registered.error().code == Errc::kInvalidArgument)
            return error(Errc::kInvalidArgument,
                         "{}; on the shm wire registered buffers come from Client::map_buffer()",
                         registered.error().message);
        return registered;
    }
    return {};
}

Result<void> Client::unregister_buffer(void* base) {
    Result<void> unknown, failed;
    bool any = false;
    for (const auto& channel : impl_->channels) {
        auto done = channel->unregister_buffer(base);
        any = any || done.ok();
        if (done.ok()) continue;
        // kNotFound alone is no error if another channel had it: an earlier call that failed unregistered it
        // there.
        auto& first = done.error().code == Errc::kNotFound ? unknown : failed;
        if (first.ok()) first = std::move(done);
    }
    return !failed.ok() || any ? failed : unknown;
}

Result<std::uint32_t> Client::drop_tokens() {
    std::uint32_t dropped = 0;
    for (const auto& channel : impl_->channels) {
        GN_ASSIGN(const std::uint32_t commands, channel->drop_tokens());
        dropped += commands;
    }
    return dropped;
}

Result<std::uint32_t> Client::drop_callbacks() {
    std::uint32_t dropped = 0;
    for (const auto& channel : impl_->channels) {
        GN_ASSIGN(const std::uint32_t requests, channel->drop_callbacks());
        dropped += requests;
    }
    return dropped;
}

Result<std::uint32_t> Client::free_left_buffers() {
    std::uint32_t in_use = 0;
    for (const auto& channel : impl_->channels) {
        GN_ASSIGN(const gnor::Channel::LeftBuffers left, channel->free_left_buffers());
        in_use += left.in_use;
    }
    return in_use;
}

Result<void> Client::quiesce(std::uint32_t timeout_ms) {
    const auto deadline = simt::Deadline::in_ns(std::uint64_t{timeout_ms} * 1'000'000);
    for (const auto& channel : impl_->channels) GN_TRY(channel->quiesce(deadline));
    const std::lock_guard no_transfer(impl_->host_lanes);
    return impl_->host_channel->quiesce(deadline);
}

// A queue pair in error delivers no more answers.
bool Client::Impl::answers_may_come() {
    const auto may = [this](gnor::Channel& channel) {
        const auto usage = channel.usage();
        if (!usage.ok()) return false;
        for (const auto& session : sessions) {
            const std::uint32_t slot = session->slot();
            if (((usage->queues_pending >> slot) & 1u) != 0 &&
                nic.state(channel.queue_pair(slot)) == rdma::QpState::kReadyToSend)
                return true;
        }
        return false;
    };
    const std::lock_guard no_transfer(host_lanes);
    return may(*host_channel) ||
           std::any_of(channels.begin(), channels.end(), [&](const auto& channel) { return may(*channel); });
}

Result<void> Client::Impl::reset_queue(gnor::Channel& channel, SsdSession& session, std::uint16_t queue_id) {
    const std::uint32_t slot = session.slot();
    auto done = channel.reclaim(slot);
    if (done.ok()) done = session.connect_queue(channel, queue_id);
    // Lanes skip this queue pair until the next attempt.
    if (!done.ok()) GN_TRY(channel.give_up(slot));
    return done;
}

void Client::Impl::reclaim(gnor::Channel& channel, std::uint16_t queue_id, Reclaimed& reclaimed) {
    for (const auto& session : sessions) {
        const auto usage = channel.usage();
        if (!usage.ok()) return reclaimed.failed(~0ull, usage.error());
        const std::uint64_t stuck = usage->queues_pending | usage->queues_broken | new_associations;
        if ((stuck & session->bit()) == 0 &&
            nic.state(channel.queue_pair(session->slot())) == rdma::QpState::kReadyToSend)
            continue;
        if (const auto done = reset_queue(channel, *session, queue_id); !done.ok())
            reclaimed.failed(session->bit(), done.error());
    }
}

void Client::Impl::settle_host_channel() {
    const auto counters = host_channel->counters();
    if (!counters.ok() || counters->quarantined == 0) return;
    if (host_channel->quiesce(simt::Deadline::in_ns(kLateAnswersNs)).ok()) return;
    for (const auto& session : sessions) {
        const std::uint32_t slot = session->slot();
        const auto usage = host_channel->usage();
        const bool waits = usage.ok() && ((usage->queues_pending >> slot) & 1u) != 0;
        // A queue pair in error is left to Client::reclaim(), as on the other channels.
        if (!waits || nic.state(host_channel->queue_pair(slot)) != rdma::QpState::kReadyToSend) continue;
        if (auto done = reset_queue(*host_channel, *session, host_queue_id()); !done.ok())
            log_warn(
                "the SSD of slot {} still owes completions of an earlier transfer, and client {} could not "
                "reset that queue: {}",
                slot, identity.name, done.error().message);
    }
}

Result<void> Client::reclaim() {
    if (std::ranges::any_of(impl_->sessions, [](const auto& session) { return !session->alive(); })) {
        // Another SSD may fill the slot. If gnstord does not answer, the addresses of before are tried.
        if (const auto map = impl_->refresh_map(); !map.ok())
            log_warn("client {} could not ask for the array map: {}", impl_->identity.name,
                     map.error().message);
    }
    Impl::Reclaimed reclaimed;
    Reopening reopen(impl_->control, impl_->identity.id);
    std::uint64_t reopened = 0;
    for (const auto& session : impl_->sessions) {
        if (session->alive()) continue;
        impl_->new_associations |= session->bit();
        const auto opened = reopen(*session);
        if (opened.ok())
            reopened |= session->bit();
        else
            reclaimed.failed(session->bit(), opened.error());
    }
    for (std::size_t i = 0; i < impl_->channels.size(); ++i)
        impl_->reclaim(*impl_->channels[i], static_cast<std::uint16_t>(i + 1), reclaimed);
    const std::lock_guard no_transfer(impl_->host_lanes);
    impl_->reclaim(*impl_->host_channel, impl_->host_queue_id(), reclaimed);
    impl_->new_associations &= reclaimed.slots;
    impl_->note_back(reopened);
    return reclaimed.first;
}

Result<void> Client::refresh_map() {
    GN_TRY(impl_->refresh_map());
    return {};
}

Result<bool> Client::Impl::refresh_map() {
    const std::lock_guard lock(maps);
    GN_ASSIGN(ArrayView now, control.array());
    if (now.map.version < views.back().map.version) return false;
    GN_ASSIGN(const std::uint64_t others, fill_sessions(now));
    for (const auto& session : sessions) {
        if ((others & session->bit()) == 0) continue;
        lost.fetch_or(session->bit());
        log_warn("{} fills slot {} now: client {} works without it until reclaim() connects to it",
                 session->name(), session->slot(), identity.name);
        disconnect_queues(*session);
    }
    if (now.map.version == views.back().map.version) return false;
    GN_TRY(lane_map.publish(now.map));
    GN_TRY(host_map.publish(now.map));
    views.push_back(std::move(now));
    view.store(&views.back(), std::memory_order_release);  // pairs with the acquire of array()
    return true;
}

Result<bool> Client::volatile_write_cache() {
    bool any = false;
    for (const auto& session : impl_->sessions) {
        // The cache of an SSD that is away is unknown: assume one, so that flushes are sent.
        if (impl_->is_lost(*session)) {
            any = true;
            continue;
        }
        GN_ASSIGN(const bool has, session->volatile_write_cache());
        any = any || has;
    }
    return any;
}

Result<std::vector<SsdCounts>> Client::ssd_counts() {
    std::vector<SsdCounts> all;
    for (const auto& session : impl_->sessions) {
        if (!session->ssd()) continue;
        GN_ASSIGN(const SsdCounts counts, session->counts());
        all.push_back(counts);
    }
    return all;
}

const ClientIdentity& Client::identity() const {
    return impl_->identity;
}
const ArrayView& Client::array() const {
    return *impl_->view.load(std::memory_order_acquire);  // pairs with the release of refresh_map
}
simt::LanesKind Client::lanes() const {
    return impl_->options.lanes;
}
ControlPlane& Client::control() {
    return impl_->control;
}

}  // namespace gnstor::client
