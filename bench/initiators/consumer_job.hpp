// consumer_job.hpp: lanes that use what a CPU initiated. Device code, CPU and GPU lanes.
//
// A warp serves the mailboxes w, w + warps, ... : what arrived is compared, what is to be written is made, in
// the order of posting. It ends when all of its mailboxes were told to stop and are empty.
#pragma once

#include <gnstor/simt/group.hpp>

#include "bench/initiators/mailbox.hpp"

#if !GN_DEVICE_PASS
#include <ctime>
#endif

namespace gnstor::bench {

struct ConsumerJob {
    Mailbox* mailboxes;
    const Expected* expected;  ///< one a mailbox
    MailResult* results;       ///< likewise
    std::uint32_t count;
    std::uint32_t warps;
    std::uint64_t give_up_ns;  ///< without a word for so long, the initiator is gone
    std::uint64_t*
        ready_ns;            ///< kMailFlights a mailbox: since when the flight's next request is wanted; or 0
    std::uint32_t* samples;  ///< of latency, samples_a_box a mailbox
    std::uint32_t samples_a_box;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto first = static_cast<std::uint32_t>(lane.warp_rank());
        if (first >= count) return;
        const std::uint64_t cpu_begin = cpu_ns();
        std::uint32_t backoff = 0;
        std::uint64_t idle_since = simt::now_ns();
        for (;;) {
            bool worked = false, open = false;
            for (std::uint32_t i = first; i < count; i += warps) {
                const bool stop = is_stopped(group, mailboxes[i]);
                const std::uint32_t served = serve(group, i);
                worked = worked || served != 0;
                open = open || !stop || served != 0;
            }
            if (!open) break;
            const std::uint64_t now = simt::now_ns();
            if (worked) {
                idle_since = now;
                backoff = 0;
            } else {
                if (group.any(now - idle_since > give_up_ns)) break;
                simt::pause(backoff);
            }
        }
        if (group.is_leader()) results[first].cpu_ns = cpu_ns() - cpu_begin;
    }

  private:
    template <class Group>
    GN_HD static bool is_stopped(Group group, const Mailbox& box) {
        std::uint32_t stop = 0;
        // Acquire: what was posted before the stop is seen by serve().
        if (group.is_leader()) stop = simt::load_acquire<simt::Scope::kSystem>(&box.stop);
        return group.shfl(stop, group.leader()) != 0;
    }

    template <class Group>
    GN_HD std::uint32_t serve(Group group, std::uint32_t index) const {
        Mailbox& box = mailboxes[index];
        std::uint64_t posted = 0, taken = 0;
        if (group.is_leader()) {
            // Pairs with the CPU thread's release of `posted`: entries below it are whole, and so is their
            // data.
            posted = simt::load_acquire<simt::Scope::kSystem>(&box.posted);
            taken = simt::load_relaxed<simt::Scope::kSystem>(&box.taken);
        }
        group.sync();
        posted = group.shfl(posted, group.leader());
        taken = group.shfl(taken, group.leader());
        const auto due = static_cast<std::uint32_t>(posted - taken);
        const std::uint64_t seen_ns = due != 0 ? simt::now_ns() : 0;
        for (std::uint32_t i = 0; i < due; ++i) {
            const MailEntry e = box.entries[(taken + i) % Mailbox::kEntries];
            if (group.is_leader() && e.finishes != 0) note_latency(index, e.flight, seen_ns);
            run(group, index, e);
            group.sync();  // every member is done with the buffer
            if (!group.is_leader()) continue;
            if (e.errand != Errand::kDone) ready_ns[index * kMailFlights + e.flight] = simt::now_ns();
            // Release: pairs with the CPU thread's acquire of `taken`, after which buffer and entry are its
            // own.
            simt::store_release<simt::Scope::kSystem>(&box.taken, taken + i + 1);
        }
        return due;
    }

    /// Keeps a uniform sample of all requests of the mailbox.
    GN_HD void note_latency(std::uint32_t index, std::uint32_t flight, std::uint64_t seen_ns) const {
        const std::uint64_t since = ready_ns[index * kMailFlights + flight];
        if (since == 0) return;
        const std::uint64_t n = results[index].finished++;
        const std::uint64_t at = n < samples_a_box ? n : mix64(n * 0x9E3779B97F4A7C15ull + index) % (n + 1);
        if (at >= samples_a_box) return;
        const std::uint64_t ns = seen_ns > since ? seen_ns - since : 0;
        samples[std::uint64_t{index} * samples_a_box + at] =
            ns < 0xFFFFFFFFu ? static_cast<std::uint32_t>(ns) : 0xFFFFFFFFu;
    }

    template <class Group>
    GN_HD void run(Group group, std::uint32_t index, const MailEntry& e) const {
        const Expected& expected_here = expected[index];
        void* const buffer = reinterpret_cast<void*>(e.buffer);
        if (e.errand == Errand::kLook || e.errand == Errand::kDone) return;
        if (e.errand == Errand::kCheck) {
            const bool right = as_expected(group, expected_here, e.offset, e.bytes, buffer);
            if (!group.is_leader()) return;
            MailResult& r = results[index];
            ++r.checked;
            if (!right && r.wrong++ == 0) r.first_wrong_offset = e.offset;
            return;
        }
        const std::uint64_t seed = expected_here.seed + (e.errand == Errand::kFill1 ? 1 : 0);
        fill(group, Contents{seed, expected_here.volume}, e.offset, e.bytes, buffer);
    }

    GN_HD
    static std::uint64_t cpu_ns() {
#if GN_DEVICE_PASS
        return 0;
#else
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
#endif
    }
};

}  // namespace gnstor::bench
