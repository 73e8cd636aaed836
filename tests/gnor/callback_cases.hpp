// callback_cases.hpp: kernels whose requests end in functors, one source for CPU lanes, test warps and GPU
// warps.
#pragma once

#include "gnor/cases.hpp"

namespace gnstor::test {

/// Says where it ran: in which order of a lane's requests, and with what.
struct MarkHandler {
    std::uint64_t* marks;  ///< one a request; atomics
    Report* report;
    std::uint32_t at;
    std::uint32_t expected;  ///< status
    GN_HD
    void operator()(Status status) const {
        add(&marks[at], 1);
        add(&report->callbacks, 1);
        if (static_cast<std::uint32_t>(status) != expected) add(&report->failures, 1);
    }
};
static_assert(sizeof(MarkHandler) <= gnor::kHandlerBytes);

/// What a chain of requests goes on with; in lane memory, for it is too large for a handler.
template <class Channel>
struct Chain {
    VolumeRef volume;
    Channel channel;
    Report* report;
    std::byte* buffer;
    std::uint32_t block;
    std::uint32_t left;
    std::uint32_t failed;  // atomic: tries that found no room; the lane sends them again
    std::uint32_t ended;   // atomic
};

/// Sends the next request of its chain, by a try, from within the callback.
template <class Channel>
struct NextHandler {
    Chain<Channel>* chain;
    GN_HD
    void operator()(Status status) const;
};
/// Views that know a handler which holds such a view would name each other without end: the chain holds a
/// view that runs nothing and is told again what it knows.
template <Sharing kMode>
using BareChannel = BasicChannelRef<kMode, gnor::Callbacks<>>;
template <Sharing kMode>
using NextOf = NextHandler<BareChannel<kMode>>;

template <class Channel>
GN_HD void NextHandler<Channel>::operator()(Status status) const {
    add(&chain->report->callbacks, 1);
    if (!nvme::ok(status)) add(&chain->report->failures, 1);
    if (chain->left-- == 0) {
        // Releases the chain to the lane that waits for its end.
        simt::store_release<simt::Scope::kDevice>(&chain->ended, 1u);
        return;
    }
    const auto channel = chain->channel.template with<NextHandler<Channel>>();
    const Status sent =
        chain->volume.try_read_async(simt::Lane{}, channel, chain->block, 1, chain->buffer, *this);
    if (!nvme::ok(sent)) simt::store_release<simt::Scope::kDevice>(&chain->failed, 1u);
}

/// Lanes whose requests each start the next one in their callback, called directly.
template <Sharing kMode>
struct LanesOfChains {
    using Bare = BareChannel<kMode>;
    using Next = NextOf<kMode>;
    Common common;
    Chain<Bare>* chains;  ///< one a lane
    std::uint32_t length;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto me = simt::self(lane);
        const auto channel = common.channels.template shared<kMode>().mine(lane).template with<Next>();
        Chain<Bare>& chain = chains[lane.grid_rank()];
        chain.volume = common.volume;
        chain.channel = channel.template with<>();
        chain.report = common.report;
        chain.buffer = static_cast<std::byte*>(channel.alloc(me, 4096));
        chain.block = static_cast<std::uint32_t>(lane.grid_rank()) * 16;
        chain.left = length;
        chain.failed = chain.ended = 0;
        if (chain.buffer == nullptr) return common.expect(Status::kNoBuffer);
        common.expect(common.volume.read_async(lane, channel, chain.block, 1, chain.buffer, Next{&chain},
                                               common.deadline()));
        const Deadline deadline = common.deadline();
        std::uint32_t backoff = 0;
        // Acquires what the last callback of the chain left, whichever lane ran it.
        while (simt::load_acquire<simt::Scope::kDevice>(&chain.ended) == 0 && !deadline.passed()) {
            if (channel.poll(me) == 0) simt::pause(backoff);
            if (simt::load_acquire<simt::Scope::kDevice>(&chain.failed) == 0) continue;
            simt::store_relaxed<simt::Scope::kDevice>(&chain.failed, 0u);
            common.expect(common.volume.read_async(lane, channel, chain.block, 1, chain.buffer, Next{&chain},
                                                   common.deadline()));
        }
        common.expect(deadline.passed() ? Status::kTimedOut : Status::kSuccess);
        common.expect(channel.free(me, chain.buffer));
    }
};

/// Requests with a handler of their own each, sent and polled by lanes that know its type.
struct LanesOfHandlers {
    Common common;
    std::uint64_t* marks;  ///< `requests` a lane
    std::uint32_t requests;
    bool known;  ///< to the lanes' views

    template <class Channel>
    GN_HD void work(simt::Lane lane, Channel channel) const {
        const auto me = simt::self(lane);
        auto* const buffer = static_cast<std::byte*>(channel.alloc(me, 4096));
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        for (std::uint32_t i = 0; i < requests; ++i) {
            const MarkHandler handler{marks, common.report, rank * requests + i, 0};
            common.expect(
                common.volume.read_async(lane, channel, rank * 16, 1, buffer, handler, common.deadline()));
        }
        const Deadline deadline = common.deadline();
        std::uint32_t backoff = 0;
        for (std::uint32_t i = 0; i < requests; ++i)
            while (simt::load_acquire<simt::Scope::kDevice>(&marks[rank * requests + i]) == 0 &&
                   !deadline.passed())
                if (channel.poll(me) == 0) simt::pause(backoff);
        common.expect(channel.free(me, buffer));
    }
    GN_HD
    void operator()(simt::Lane lane) const {
        const ChannelRef channel = common.channels.mine(lane);
        if (known) return work(lane, channel.with<CountHandler, MarkHandler>());
        work(lane, channel);
    }
};

}  // namespace gnstor::test
