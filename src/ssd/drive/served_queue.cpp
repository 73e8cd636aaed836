#include "ssd/drive/served_queue.hpp"

namespace gnstor::ssd {

ServedQueue::ServedQueue(std::uint16_t id, std::uint32_t depth, nvme::ClientId client, Priority priority,
                         bool privileged)
    : queue(id, depth, client, priority, privileged), pending(depth) {
    free.reserve(depth);
    for (std::uint32_t i = depth; i > 0; --i) free.push_back(i - 1);
    held.reserve(kAsyncEventRequests);
}

}  // namespace gnstor::ssd
