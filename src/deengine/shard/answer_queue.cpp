// answer_queue.cpp: answers that become ready, and are given, in the order of answer_queue.hpp.
#include "deengine/shard/answer_queue.hpp"

#include <algorithm>

namespace gnstor::deengine {
namespace {

using nvme::Status;

}  // namespace

AnswerQueue::AnswerQueue(CompletionSink& sink) : sink_(sink) {
    for_group_.reserve(kReserved);
    for_next_sync_.reserve(kReserved);
    for_sync_.reserve(kReserved);
    ready_.reserve(kReserved);
}

void AnswerQueue::release_group(std::uint32_t group) {
    const auto end = std::ranges::find_if(for_group_, [&](const Waiter& waiter) {
        return static_cast<std::int32_t>(waiter.group - group) > 0;
    });
    for (auto it = for_group_.begin(); it != end; ++it) ready_.push_back({it->tag, Status::kSuccess});
    for_group_.erase(for_group_.begin(), end);
}

void AnswerQueue::release_later(Status status) {
    for (const Waiter& waiter : for_group_) ready_.push_back({waiter.tag, status});
    for_group_.clear();
    make_ready(for_next_sync_, status);
}

void AnswerQueue::make_ready(std::vector<std::uint64_t>& tags, Status status) {
    for (const std::uint64_t tag : tags) ready_.push_back({tag, status});
    tags.clear();
}

/// The sink may submit commands, which may make more answers ready: these are given next time.
std::uint32_t AnswerQueue::give_ready() {
    if (ready_.empty()) return 0;
    std::vector<Ready> giving;
    giving.swap(ready_);
    for (const Ready& each : giving) give(each.tag, each.status);
    const auto count = static_cast<std::uint32_t>(giving.size());
    if (ready_.empty()) {
        giving.clear();
        ready_.swap(giving);  // keeps its memory
    }
    return count;
}

}  // namespace gnstor::deengine
