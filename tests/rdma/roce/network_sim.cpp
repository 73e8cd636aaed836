// network_sim.cpp: the event loop, the network, and what must hold at the end of a run.
#include "network_sim.hpp"

#include "rdma/roce/icrc.hpp"
#include "sim_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

namespace gnstor::rdma::roce::sim {
namespace {

constexpr std::uint64_t kEventsMax = 3'000'000;
/// What is due may wait for a driver that has no room now (pump()), several times in a row.
constexpr TimeNs kLateMostNs = 2'000'000;

/// How long a requester may go without progress before it has failed: all its timeouts, backed off; again for
/// each RNR NAK that it puts up with, and its pause; where those are limited by time, by that instead.
TimeNs silence_most(const RequesterOptions& options, std::uint8_t rnr_timer, std::uint64_t rnr_naks) {
    TimeNs most = 0;
    for (std::uint32_t i = 0; i <= options.retries; ++i)
        most += std::min(options.ack_timeout_ns << std::min(i, 7u),
                         std::max<TimeNs>(options.ack_timeout_ns << 5, 2'200'000'000)) +
                kLateMostNs;
    const TimeNs each = most + rnr_timer_ns(rnr_timer) + kLateMostNs;
    if (rnr_naks != 0 && options.rnr_retries == kRnrByTime) return most + kRnrPatienceNs + each;
    return most + std::min<std::uint64_t>(rnr_naks, options.rnr_retries) * each;
}

struct Datagram {
    TimeNs at;
    std::uint64_t order;
    std::uint32_t to;
    std::vector<std::byte> bytes;
    bool operator>(const Datagram& other) const {
        return at != other.at ? at > other.at : order > other.order;
    }
};

class Network {
  public:
    explicit Network(std::uint64_t seed)
        : profile_(profile_of(seed)),
          dice_(mix64(seed)),
          ends_{{seed * 2 + 1, profile_.mtu, profile_.operations, profile_.trespass, violation_},
                {seed * 2 + 2, profile_.mtu, profile_.operations, false, violation_}} {
        cut_from_ = dice_.below(20'000'000);
        cut_to_ =
            profile_.partition ? cut_from_ + dice_.below(dice_.below(2) == 0 ? 3'000'000'000 : 8'000'000) : 0;
        for (std::uint32_t i = 0; i < 2; ++i) {
            RequesterOptions requester;
            requester.peer_queue_pair = 0x100 + (1 - i);
            requester.mtu = profile_.mtu;
            requester.start_psn = profile_.start_psn[i];
            requester.depth = 16;
            requester.reads_max = 1 + static_cast<std::uint32_t>(seed % 4);
            requester.window_packets = 8 + static_cast<std::uint32_t>(seed % 40);
            if (!profile_.gentle) requester.rnr_retries = 1 + static_cast<std::uint32_t>(seed % 7);
            ResponderOptions responder;
            responder.peer_queue_pair = 0x100 + (1 - i);
            responder.mtu = profile_.mtu;
            responder.start_psn = profile_.start_psn[1 - i];
            responder.reads_max = requester.reads_max;
            ends_[i].connect(requester, responder, ends_[1 - i]);
            silences_[i] = {requester, responder.rnr_timer};
        }
    }

    Report run();

  private:
    void transmit(std::uint32_t from, const Packet& packet);
    void put_on_wire(std::uint32_t to, std::vector<std::byte> bytes, TimeNs delay);
    void deliver(const Datagram& datagram);
    void pump(std::uint32_t end);
    void conclude();
    void watch(std::uint32_t end, bool progress);
    [[nodiscard]] bool settled() {
        for (End& end : ends_) {
            if (!end.connection().failed() && !end.finished()) return false;
        }
        return true;
    }
    [[nodiscard]] NetworkHeaders headers(std::uint32_t to, std::size_t bytes) const {
        NetworkHeaders::Ipv4 ip;
        ip.source = {10, 0, 0, static_cast<std::uint8_t>(2 - to)};
        ip.destination = {10, 0, 0, static_cast<std::uint8_t>(1 + to)};
        return NetworkHeaders::make(ip, {0xC000, kUdpPort}, static_cast<std::uint32_t>(bytes));
    }

    /// A requester that has something to do, since its last step of progress.
    struct Silence {
        RequesterOptions options;
        std::uint8_t rnr_timer = 0;  ///< of the peer
        TimeNs since = 0;
        std::uint64_t rnr_naks = 0;  ///< until then
    };

    const Profile profile_;
    SplitMix64 dice_;
    Silence silences_[2];
    Violation violation_;
    End ends_[2];
    std::priority_queue<Datagram, std::vector<Datagram>, std::greater<>> wire_;
    TimeNs now_ = 0, act_at_ = 0, cut_from_ = 0, cut_to_ = 0;
    std::uint64_t order_ = 0;
    Report report_;
};

void Network::put_on_wire(std::uint32_t to, std::vector<std::byte> bytes, TimeNs delay) {
    wire_.push({now_ + delay, order_++, to, std::move(bytes)});
}

void Network::transmit(std::uint32_t from, const Packet& packet) {
    std::vector<std::byte> bytes(encoded_bytes(packet));
    const std::uint32_t to = 1 - from;
    if (!encode(packet, bytes)) return violation_.add("a packet could not be encoded");
    if (packet.payload.bytes > profile_.mtu) violation_.add("a packet beyond the MTU");
    seal(headers(to, bytes.size()), bytes);
    ++report_.packets;
    const auto chance = [&](std::uint32_t per_mille) { return dice_.below(1000) < per_mille; };
    const auto flight = [&] {
        return 5'000 + dice_.below(2'000) + (chance(profile_.late) ? dice_.below(300'000) : 0);
    };
    if (chance(profile_.twice)) {
        // Now and then the second one is very late: an old duplicate.
        put_on_wire(to, bytes, flight() + (chance(300) ? dice_.below(30'000'000) : 0));
    }
    if (chance(profile_.lose) || (now_ >= cut_from_ && now_ < cut_to_)) {
        ++report_.lost;
        return;
    }
    if (chance(profile_.change)) {
        ++report_.changed;
        if (chance(100)) {
            bytes.resize(dice_.below(bytes.size()));
        } else {
            for (std::uint64_t flips = 1 + dice_.below(3); flips > 0; --flips) {
                bytes[dice_.below(bytes.size())] ^= static_cast<std::byte>(1u << dice_.below(8));
            }
        }
    }
    put_on_wire(to, std::move(bytes), flight());
}

void Network::deliver(const Datagram& datagram) {
    for (const std::byte b : datagram.bytes)
        report_.digest = report_.digest * 31 + std::to_integer<unsigned>(b);
    report_.digest = mix64(report_.digest ^ datagram.at);
    if (!icrc_is_good(headers(datagram.to, datagram.bytes.size()), datagram.bytes)) return;
    Packet packet;
    if (decode(datagram.bytes, packet) != DecodeVerdict::kGood) return;
    if (packet.queue_pair != 0x100 + datagram.to) return;
    Connection& connection = ends_[datagram.to].connection();
    const std::uint32_t on_their_way = connection.requester().on_their_way();
    connection.on_packet(now_, packet);
    watch(datagram.to, connection.requester().on_their_way() < on_their_way);
    ends_[datagram.to].check_writes();
    pump(datagram.to);
}

void Network::pump(std::uint32_t end) {
    Connection& connection = ends_[end].connection();
    connection.on_time(now_);
    Packet packet;
    // A driver does not always have room for all: the rest goes out at another event.
    const std::uint64_t room = dice_.below(3) == 0 ? dice_.below(5) : kEventsMax;
    for (std::uint32_t sent = 0; sent < room && connection.next_packet(now_, packet); ++sent) {
        transmit(end, packet);
        if (sent > 10'000) return violation_.add("packets without end at one moment");
    }
    ends_[end].take_completions();
}

// It goes on, or fails, or has nothing to do; else its time is limited.
void Network::watch(std::uint32_t end, bool progress) {
    const Requester& requester = ends_[end].connection().requester();
    Silence& silence = silences_[end];
    const std::uint64_t rnr_naks = requester.counters().rnr_naks;
    if (progress || requester.failed() || requester.idle()) {
        silence.since = now_;
        silence.rnr_naks = rnr_naks;
        return;
    }
    const TimeNs most = silence_most(silence.options, silence.rnr_timer, rnr_naks - silence.rnr_naks);
    const TimeNs lasts = now_ - silence.since;
    report_.silence_most = std::max(report_.silence_most, lasts);
    if (lasts > most) {
        violation_.add(fmt::format(
            "a requester has made no progress for {} us and has not failed, which takes {} at most",
            lasts / 1000, most / 1000));
    }
}

Report Network::run() {
    for (std::uint64_t events = 0; violation_.text.empty() && !settled(); ++events) {
        TimeNs next = std::min(act_at_, wire_.empty() ? kNever : wire_.top().at);
        for (End& end : ends_) next = std::min(next, end.connection().next_deadline());
        now_ = std::max(now_, next);
        if (events > kEventsMax) violation_.add("neither done nor failed after very many events");
        if (now_ >= act_at_) {
            for (End& end : ends_) end.act();
            act_at_ = now_ + 10'000 + dice_.below(60'000);
        } else if (!wire_.empty() && now_ >= wire_.top().at) {
            const Datagram datagram = wire_.top();
            wire_.pop();
            deliver(datagram);
        }
        for (std::uint32_t i = 0; i < 2; ++i) {
            pump(i);
            watch(i, false);
        }
    }
    conclude();
    return report_;
}

void Network::conclude() {
    for (std::uint32_t i = 0; i < 2; ++i) {
        End& end = ends_[i];
        const Connection& connection = end.connection();
        end.check_untouched();
        report_.failed |= connection.failed();
        const RequesterCounters& out = connection.requester().counters();
        const ResponderCounters& in = connection.responder().counters();
        report_.retransmitted += out.retransmitted;
        report_.sequence_naks += out.sequence_naks;
        report_.rnr_naks += in.rnr_naks;
        report_.duplicates += in.duplicates;
        report_.reads_repeated += in.reads_repeated;
        report_.completions += end.completed();
        report_.messages += end.received_messages();
        report_.wrapped |= profile_.start_psn[i] + in.executed > 0xFFFFFF;
        if (connection.failed() && profile_.gentle && !profile_.trespass) {
            violation_.add(
                fmt::format("a connection failed (syndrome {:#x}) though at most 5 % was lost or changed",
                            static_cast<unsigned>(connection.failure())));
        }
    }
    if (profile_.trespass && ends_[0].finished() && !ends_[0].connection().failed()) {
        violation_.add("a trespass was not refused");
    }
    report_.violation = violation_.text;
}

}  // namespace

Profile profile_of(std::uint64_t seed) {
    SplitMix64 dice(mix64(seed ^ 0x5EED));
    Profile profile;
    profile.gentle = dice.below(3) == 0;
    const std::uint32_t most = profile.gentle ? 50 : 300;
    profile.lose = static_cast<std::uint32_t>(dice.below(most + 1));
    profile.twice = static_cast<std::uint32_t>(dice.below(most + 1));
    profile.late = static_cast<std::uint32_t>(dice.below(most + 1));
    profile.change = static_cast<std::uint32_t>(dice.below(most + 1));
    profile.partition = !profile.gentle && dice.below(4) == 0;
    profile.trespass = dice.below(4) == 0;
    profile.mtu = 1024u << dice.below(3);
    for (auto& psn : profile.start_psn) {
        psn = static_cast<std::uint32_t>(dice.below(2) == 0 ? 0xFFFFFF - dice.below(100)
                                                            : dice.below(0x1000000));
    }
    return profile;
}

Report run(std::uint64_t seed) {
    return Network(seed).run();
}

}  // namespace gnstor::rdma::roce::sim
