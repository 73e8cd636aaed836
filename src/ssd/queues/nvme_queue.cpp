#include "ssd/queues/nvme_queue.hpp"

#include <cstdlib>

namespace gnstor::ssd {

namespace {

// The upper half of DW3 (status) contains the phase bit: its release store publishes the whole entry.
std::atomic_ref<std::uint16_t> phase_word(nvme::Completion& entry) {
    return std::atomic_ref<std::uint16_t>(entry.status);
}

}  // namespace

// Ring indices run freely (32 bits, masked at use): tail - head is the number of entries in the ring.
// The completion ring cannot be overrun: the host keeps at most depth - 1 commands submitted and not reaped
// (next_entry), so there is always a free completion entry.
NvmeQueue::NvmeQueue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client, Priority priority,
                     bool privileged)
    : id_(id),
      depth_(depth),
      client_(client),
      priority_(priority),
      privileged_(privileged),
      sq_(depth),
      cq_(depth) {
    if (depth < 2 || depth > 65536 || (depth & (depth - 1)) != 0)
        std::abort();  // callers validate user input
}

nvme::Command* NvmeQueue::next_entry() {
    // Only the host writes the tail: relaxed. Outstanding means submitted and not reaped, which bounds both
    // rings.
    const std::uint32_t tail = sq_tail_.load(std::memory_order_relaxed);
    return tail - cq_head_ < depth_ - 1 ? &sq_[tail & (depth_ - 1)].command : nullptr;
}

bool NvmeQueue::submit(const nvme::Command& command) {
    nvme::Command* const entry = next_entry();
    if (entry == nullptr) return false;
    *entry = command;
    submit();
    return true;
}

void NvmeQueue::submit() {
    const std::uint32_t tail = sq_tail_.load(std::memory_order_relaxed);
    // Publishes the entry: pairs with the acquire load of the tail in fetch() and has_work(). An entry is
    // reused only after its command was completed and reaped, and the drive copied it before that (release of
    // the phase, acquire in reap()).
    sq_tail_.store(tail + 1, std::memory_order_release);
    // The drive read the next entry's line last: prefetch it for writing before the next command comes.
    __builtin_prefetch(&sq_[(tail + 1) & (depth_ - 1)], 1);
}

bool NvmeQueue::reap(nvme::Completion& completion) {
    nvme::Completion& entry = cq_[cq_head_ & (depth_ - 1)];
    const std::uint16_t expected = (cq_head_ & depth_) == 0 ? 1 : 0;  // the first pass writes phase 1
    // Pairs with the release store of the phase in complete().
    const std::uint16_t status = phase_word(entry).load(std::memory_order_acquire);
    if ((status & 1u) != expected) return false;
    completion.dw0 = entry.dw0;
    completion.dw1 = entry.dw1;
    completion.sq_head = entry.sq_head;
    completion.sq_id = entry.sq_id;
    completion.command_id = entry.command_id;
    completion.status = status;
    ++cq_head_;
    return true;
}

bool NvmeQueue::peek_completion(std::uint16_t& command_id) const {
    auto& entry = const_cast<nvme::Completion&>(cq_[cq_head_ & (depth_ - 1)]);
    const std::uint16_t expected = (cq_head_ & depth_) == 0 ? 1 : 0;
    // Pairs with the release store of the phase in complete().
    if ((phase_word(entry).load(std::memory_order_acquire) & 1u) != expected) return false;
    command_id = entry.command_id;
    return true;
}

bool NvmeQueue::has_work() const {
    // Pairs with the release store of the tail in submit().
    return sq_tail_.load(std::memory_order_acquire) != sq_head_.load(std::memory_order_relaxed);
}

bool NvmeQueue::fetch(nvme::Command& command) {
    const std::uint32_t head = sq_head_.load(std::memory_order_relaxed);  // only the drive writes it
    if (tail_seen_ == head) {
        // Pairs with the release store of the tail in submit().
        tail_seen_ = sq_tail_.load(std::memory_order_acquire);
        if (tail_seen_ == head) return false;
    }
    command = sq_[head & (depth_ - 1)].command;
    // Release after the copy of the entry. No acquire pairs with it: the host reuses an entry only after
    // reaping its completion (see submit()).
    sq_head_.store(head + 1, std::memory_order_release);
    return true;
}

void NvmeQueue::complete(const nvme::Completion& completion) {
    nvme::Completion& entry = cq_[cq_tail_ & (depth_ - 1)];
    const std::uint16_t phase = (cq_tail_ & depth_) == 0 ? 1 : 0;
    entry.dw0 = completion.dw0;
    entry.dw1 = completion.dw1;
    entry.sq_head = static_cast<std::uint16_t>(sq_head_.load(std::memory_order_relaxed) & (depth_ - 1));
    entry.sq_id = id_;
    entry.command_id = completion.command_id;
    ++cq_tail_;
    // Publishes entry and data: pairs with the acquire load of the phase in reap(). The completion entry is
    // free: the host reaped its last completion before it submitted the command completed here, and fetch()
    // acquired that submission.
    phase_word(entry).store(static_cast<std::uint16_t>((completion.status & 0xFFFEu) | phase),
                            std::memory_order_release);
}

}  // namespace gnstor::ssd
