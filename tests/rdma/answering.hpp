// answering.hpp: a host NIC with shared queues, and a target that answers each message. Test code.
#pragma once

#include "rdma/rig.hpp"

#include <gnstor/base/hash.hpp>

#include <functional>

namespace gnstor::rdma::test {

inline constexpr std::uint32_t kCapsuleBytes = 64;

/// Answers each message: checks the capsule, writes a stamp into the sender's window, sends 16 bytes with the
/// tag in DW3. Lets go of messages late and out of order.
struct AnsweringSink : MessageSink, Poller {
    SoftNic* nic = nullptr;
    std::uint32_t rkey = 0;
    std::uint64_t windows_base = 0;
    std::uint64_t messages = 0;
    std::uint64_t broken_capsules = 0;
    SplitMix64 dice{1};
    std::vector<InboundMessage> kept;

    void on_message(const InboundMessage& m) override {
        ++messages;
        std::uint32_t capsule[kCapsuleBytes / 4];
        auto* to = reinterpret_cast<std::byte*>(capsule);
        for (std::uint32_t i = 0; i < m.segment_count; ++i) {
            std::memcpy(to, m.segments[i].data, m.segments[i].bytes);
            to += m.segments[i].bytes;
        }
        for (std::uint32_t i = 2; i < kCapsuleBytes / 4; ++i)
            if (capsule[i] != capsule[0] * 31 + i) ++broken_capsules;
        const std::uint32_t lane = capsule[1];
        auto window = nic->open_window(m.qp, windows_base + lane * 64, 64, rkey, WindowUse::kWrite);
        if (window.ok()) {
            std::memcpy(window.value().data, &capsule[0], 4);
            nic->close_window(m.qp, window.value());
        }
        const std::uint32_t response[4] = {capsule[0], m.bytes, 0, lane};
        nic->send(m.qp, response, sizeof response);
        kept.push_back(m);
    }
    std::uint32_t poll() override {
        if (kept.empty() || dice.below(2) == 0) return static_cast<std::uint32_t>(kept.size());
        const std::size_t at = dice.below(kept.size());
        nic->release(kept[at].qp, kept[at].token);
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
        return 1;
    }
    void on_error(QpNumber qp) override {
        for (const InboundMessage& m : kept) nic->release(qp, m.token);
        kept.clear();
    }
};

struct NetOptions {
    std::uint32_t lanes = 1;
    std::uint32_t queue_pairs = 2;
    std::uint32_t send_log2 = 2;
    std::uint32_t receive_log2 = 3;
    std::uint32_t cq_log2 = 4;
    bool scatter = true;
    bool strict = true;
    std::uint64_t seed = 1;
};

/// Two NICs; `queue_pairs` plain ends on the host, each joined with an offload end; one shared receive
/// completion queue. A lane's answer comes as its window word (by RDMA WRITE), then as a message that a
/// polling lane files under `answers`.
class AnsweredNet {
  public:
    explicit AnsweredNet(NetOptions o) : options(o), windows(o.lanes * 16), answers(o.lanes * 16) {
        host_reactor = must(Reactor::start("host"));
        target_reactor = must(Reactor::start("target"));
        Reactor* const rh[] = {host_reactor.get()};
        Reactor* const rt[] = {target_reactor.get()};
        NicOptions nic;
        nic.strict = o.strict;
        nic.seed = o.seed;
        host = must(SoftNic::open(wire, "host", nic, rh));
        target = must(SoftNic::open(wire, "target", nic, rt));
        cq = std::make_unique<ReceiveCq>(*host, o.cq_log2);
        window_keys =
            must(host->register_memory(windows.data(), windows.size() * 4, kLocalWrite | kRemoteWrite));
        EndOptions end;
        end.send_log2 = o.send_log2;
        end.receive_log2 = o.receive_log2;
        end.scatter = o.scatter;
        for (std::uint32_t q = 0; q < o.queue_pairs; ++q) {
            ends.push_back(std::make_unique<End>(*host, *cq, end));
            receives.push_back(ends.back()->receive);
            AnsweringSink& sink = sinks.emplace_back();
            sink.nic = target.get();
            sink.rkey = window_keys.rkey;
            sink.windows_base = reinterpret_cast<std::uint64_t>(windows.data());
            sink.dice = SplitMix64(o.seed + q);
            sink.kept.reserve(1024);
            offloads.push_back(must(target->create_offload_queue_pair(sink)));
            target_reactor->add(sink);
            join(*host, ends.back()->qpn, *target, offloads.back());
        }
        set = {receives.data(), o.queue_pairs};
    }
    ~AnsweredNet() {
        close();
        ends.clear();
        must(host->deregister_memory(window_keys));
        cq.reset();
    }
    /// Ends the connections; the sinks' counts stand still afterwards.
    void close() {
        for (std::uint32_t q = 0; q < offloads.size(); ++q) {
            must(target->destroy_queue_pair(offloads[q]));
            target_reactor->remove(sinks[q]);
            messages += sinks[q].messages;
            wrong += sinks[q].broken_capsules;
        }
        offloads.clear();
    }
    /// Fills the capsule that belongs to the ticket's entry (free when the entry is), and the entry.
    void fill(std::uint32_t queue, SendTicket& ticket, std::uint32_t lane, std::uint32_t tag, bool in_parts) {
        End& end = *ends[queue];
        const std::size_t at = std::size_t{end.send.slot(ticket.index)} * kCapsuleBytes;
        auto* const capsule = reinterpret_cast<std::uint32_t*>(end.payload.data() + at);
        capsule[0] = tag;
        capsule[1] = lane;
        for (std::uint32_t i = 2; i < kCapsuleBytes / 4; ++i) capsule[i] = tag * 31 + i;
        if (in_parts)
            end.send.fill_send(ticket, end.data(at, 16), end.data(at + 16, 40), end.data(at + 56, 8));
        else
            end.send.fill_send(ticket, end.data(at, kCapsuleBytes));
    }
    /// One trip; files what arrived.
    template <class Group>
    void poll_once(Group group) {
        const PollResult result = poll(group, cq->ref, set, [this](const Arrival& got) {
            if (got.is_error() || got.queue >= options.queue_pairs || got.dw3 >= options.lanes ||
                got.word(1) != kCapsuleBytes || got.bytes() != 16 || got.is_inline() != options.scatter)
                ++wrong;
            else
                simt::store_release<simt::Scope::kDevice>(&answers[got.dw3 * 16], got.word(0));
        });
        if (group.is_leader()) arrived += result.arrived;
    }
    /// Whether `lane` has its answer; then its window was written before.
    bool answered(std::uint32_t lane, std::uint32_t tag) {
        if (simt::load_acquire<simt::Scope::kDevice>(&answers[lane * 16]) != tag) return false;
        if (windows[lane * 16] != tag) ++wrong;
        return true;
    }
    /// After close(): everything was right, and every queue wrapped often enough.
    void expect_right(std::uint64_t total, std::uint64_t send_laps_floor, std::uint64_t cq_laps_floor) {
        EXPECT_EQ(wrong.load(), 0u) << "GN_SEED=" << options.seed;
        EXPECT_EQ(messages, total);
        EXPECT_EQ(arrived.load(), total);
        EXPECT_EQ(host->counters().strict_violations + target->counters().strict_violations, 0u)
            << "GN_SEED=" << options.seed;
        std::uint64_t send_laps = ~0ull;
        for (const auto& end : ends)
            send_laps = std::min(send_laps, end->send_state->reserved / end->send.entries());
        const std::uint64_t cq_laps = total / cq->ref.entries();
        std::printf(
            "%u lanes: %llu messages, send queues wrapped at least %llu times, completions %llu times, %llu "
            "bells (scatter "
            "%d, strict %d, GN_SEED=%llu)\n",
            options.lanes, static_cast<unsigned long long>(total), static_cast<unsigned long long>(send_laps),
            static_cast<unsigned long long>(cq_laps), static_cast<unsigned long long>(host->counters().bells),
            options.scatter, options.strict, static_cast<unsigned long long>(options.seed));
        EXPECT_GE(send_laps, send_laps_floor) << "the floor of this test";
        EXPECT_GE(cq_laps, cq_laps_floor) << "the floor of this test";
    }

    NetOptions options;
    std::unique_ptr<Reactor> host_reactor, target_reactor;
    LoopWire wire;
    std::unique_ptr<SoftNic> host, target;
    std::unique_ptr<ReceiveCq> cq;
    MemoryKeys window_keys{};
    std::vector<std::uint32_t> windows;  ///< one word a lane, far apart
    std::vector<std::uint32_t> answers;  ///< the same: the tag last answered
    std::vector<std::unique_ptr<End>> ends;
    std::vector<ReceiveQueueRef> receives;
    ReceiveSet set{};
    std::deque<AnsweringSink> sinks;
    std::vector<QpNumber> offloads;
    std::atomic<std::uint64_t> wrong{0}, arrived{0};
    std::uint64_t messages = 0;
};

}  // namespace gnstor::rdma::test
