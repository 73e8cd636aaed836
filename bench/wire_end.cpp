// wire_end.cpp: see wire_end.hpp.
#include "wire_end.hpp"

#include <gnstor/base/hash.hpp>

#include <cstring>

namespace gnstor::bench::wire_bench {

using namespace rdma;

Result<std::unique_ptr<End>> End::create(Nic& nic, EndShape shape) {
    std::unique_ptr<End> end(new End(nic));
    const std::uint32_t entries = 1u << shape.entries_log2;
    end->bytes_ = shape.bytes;
    const std::size_t ring_bytes = entries * sizeof(mlx5::SendEntry);
    const std::size_t queues = (shape.bytes + 63) / 64 * 64;
    GN_ASSIGN(end->block_, NicMemory::map(nic, queues + ring_bytes + 3 * 64));
    std::byte* const at = end->block_.data() + queues;
    auto* const ring = reinterpret_cast<mlx5::SendEntry*>(at);
    auto* const completion = reinterpret_cast<mlx5::Cqe64*>(at + ring_bytes);
    auto* const bell = reinterpret_cast<std::uint64_t*>(at + ring_bytes + 64);
    auto* const record = reinterpret_cast<std::uint32_t*>(at + ring_bytes + 128);
    end->ready_ = std::make_unique<std::uint32_t[]>(entries);
    end->state_ = std::make_unique<SendQueueState>();
    GN_ASSIGN(end->keys_,
              nic.register_memory(end->block_.data(), shape.bytes, kLocalWrite | kRemoteRead | kRemoteWrite));
    GN_ASSIGN(end->cq_, nic.create_completion_queue({completion, 1, nullptr, true}));
    QueuePairConfig config{};
    config.send_ring = ring;
    config.send_entries = entries;
    config.doorbell_record = record;
    config.bell = bell;
    config.send_cq = end->cq_;
    GN_ASSIGN(end->qp_, nic.create_queue_pair(config));
    end->send_ = {ring,    record, bell, completion, end->state_.get(), end->ready_.get(), shape.entries_log2,
                  end->qp_};
    return end;
}

End::~End() {
    // In this order; what fails is said by the NIC's destructor, which must find nothing left.
    if (qp_ != 0) (void)nic_.destroy_queue_pair(qp_).ok();
    if (cq_ != 0) (void)nic_.destroy_completion_queue(cq_).ok();
    if (keys_.lkey != 0) (void)nic_.deregister_memory(keys_).ok();
}

mlx5::DataSegment End::local(std::size_t at, std::uint32_t bytes) const {
    return mlx5::make_data(reinterpret_cast<std::uint64_t>(block_.data() + at), bytes, keys_.lkey);
}

ConnectReply Door::on_connect(const ConnectRequest&) {
    ConnectReply reply;
    reply.accept = true;
    reply.qp = qp_;
    return reply;
}

void fill(std::span<std::byte> memory, std::uint64_t seed) {
    for (std::size_t at = 0; at + 8 <= memory.size(); at += 8) {
        const std::uint64_t word = mix64(seed ^ at);
        std::memcpy(memory.data() + at, &word, 8);
    }
}

std::uint64_t count_good(std::span<const std::byte> memory, std::uint64_t seed, std::uint32_t place_bytes) {
    std::uint64_t good = 0;
    for (std::size_t place = 0; place + place_bytes <= memory.size(); place += place_bytes) {
        std::size_t at = place;
        for (; at < place + place_bytes; at += 8) {
            const std::uint64_t wanted = mix64(seed ^ at);
            if (std::memcmp(memory.data() + at, &wanted, 8) != 0) break;
        }
        good += at == place + place_bytes;
    }
    return good;
}

}  // namespace gnstor::bench::wire_bench
