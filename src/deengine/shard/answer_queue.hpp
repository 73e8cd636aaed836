// answer_queue.hpp: answers of changes that wait for a sync, and those that are ready to be given.
//
// Invariants
//   * each tag that was added is answered once, by a later give_ready();
//   * answers that wait for groups are in order of these, and become ready in that order;
//   * an answer waits for the sync in flight only while one is in flight: the end of the sync releases it.
// Owned by one shard; one thread. Allocates only beyond kReserved waiting answers.
#pragma once

#include "deengine/engine_types.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::deengine {

class AnswerQueue {
  public:
    explicit AnswerQueue(CompletionSink& sink);

    void give(std::uint64_t tag, nvme::Status status) { sink_.on_complete(tag, status, 0); }

    /// Waits until this group survives power loss; groups never fall from call to call.
    void wait_for_group(std::uint64_t tag, std::uint32_t group) { for_group_.push_back({tag, group}); }
    /// Waits for the end of a sync, of any level, that begins later.
    void wait_for_next_sync(std::uint64_t tag) { for_next_sync_.push_back(tag); }
    /// Waits for the end of the sync in flight.
    void wait_for_sync(std::uint64_t tag) { for_sync_.push_back(tag); }
    [[nodiscard]] bool waits_for_group() const { return !for_group_.empty(); }
    [[nodiscard]] bool waits_for_next_sync() const { return !for_next_sync_.empty(); }

    /// A sync begins, while none is in flight.
    void note_sync() { for_sync_.swap(for_next_sync_); }
    /// All groups up to this one (modulo 2^32) survive power loss.
    void release_group(std::uint32_t group);
    void release_sync(nvme::Status status) { make_ready(for_sync_, status); }
    void release_next_sync(nvme::Status status) { make_ready(for_next_sync_, status); }
    /// All that do not wait for the sync in flight.
    void release_later(nvme::Status status);

    /// Gives the answers that are ready; returns how many.
    std::uint32_t give_ready();

  private:
    static constexpr std::size_t kReserved = 4096;
    struct Waiter {
        std::uint64_t tag;
        std::uint32_t group;
    };
    struct Ready {
        std::uint64_t tag;
        nvme::Status status;
    };
    void make_ready(std::vector<std::uint64_t>& tags, nvme::Status status);

    CompletionSink& sink_;
    std::vector<Waiter> for_group_;
    std::vector<std::uint64_t> for_next_sync_;
    std::vector<std::uint64_t> for_sync_;
    std::vector<Ready> ready_;
};

}  // namespace gnstor::deengine
