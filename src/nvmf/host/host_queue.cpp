#include "nvmf/host/host_queue.hpp"

#include "nvmf/protocol/capsule.hpp"
#include "rdma/nic/nic_memory.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gnstor::nvmf {

namespace {

constexpr std::uint32_t kCapsuleStride = 4224;  // a capsule rounded up to 64 bytes, not page-aligned
static_assert(kCapsuleStride >= kCapsuleBytesMax && kCapsuleStride % 64 == 0);
constexpr std::uint32_t kResponseBytes = sizeof(nvme::Completion);
const simt::SelfGroup kLane{simt::Lane{}};

}  // namespace

/// The memory that the NIC accesses, in one block, and the state of poster and poller. Sized once; never
/// moved.
struct HostQueue::Memory {
    explicit Memory(std::uint32_t sends) : ready(sends) {}

    /// Lays the block out and maps it. Each part begins on a cache line of its own.
    Result<void> map(rdma::Nic& nic, std::uint32_t sends, std::uint32_t receives) {
        std::size_t end = 0;
        const auto place = [&end](std::size_t bytes) {
            const std::size_t at = end;
            end += (bytes + 63) / 64 * 64;
            return at;
        };
        const std::size_t words = place(4 * 64);  // bell, doorbell record, consumer record, send completion
        const std::size_t send_at = place(sends * sizeof(rdma::mlx5::SendEntry));
        const std::size_t receive_at = place(receives * sizeof(rdma::mlx5::DataSegment));
        const std::size_t cqes_at = place(receives * sizeof(rdma::mlx5::Cqe64));
        response_offset = std::size_t{sends} * kCapsuleStride;
        registered_bytes = response_offset + std::size_t{receives} * kResponseBytes;
        const std::size_t registered_at = place(registered_bytes);
        GN_ASSIGN(block, rdma::NicMemory::map(nic, end));
        std::byte* const at = block.data();
        bell = reinterpret_cast<std::uint64_t*>(at + words);
        doorbell_record = reinterpret_cast<std::uint32_t*>(at + words + 64);
        consumer_record = reinterpret_cast<std::uint32_t*>(at + words + 128);
        send_cqe = reinterpret_cast<rdma::mlx5::Cqe64*>(at + words + 192);
        send_ring = reinterpret_cast<rdma::mlx5::SendEntry*>(at + send_at);
        receive_ring = reinterpret_cast<rdma::mlx5::DataSegment*>(at + receive_at);
        receive_cqes = reinterpret_cast<rdma::mlx5::Cqe64*>(at + cqes_at);
        registered = at + registered_at;
        return {};
    }

    rdma::NicMemory block;
    std::uint64_t* bell = nullptr;
    std::uint32_t* doorbell_record = nullptr;  ///< two words
    std::uint32_t* consumer_record = nullptr;
    rdma::mlx5::Cqe64* send_cqe = nullptr;
    rdma::mlx5::SendEntry* send_ring = nullptr;
    rdma::mlx5::DataSegment* receive_ring = nullptr;
    rdma::mlx5::Cqe64* receive_cqes = nullptr;
    std::byte* registered = nullptr;  ///< capsules, then responses
    std::size_t registered_bytes = 0, response_offset = 0;

    std::vector<std::uint32_t> ready;
    rdma::SendQueueState send_state{};
    rdma::ReceiveQueueState receive_state{};
    rdma::CompletionQueueState completion_state{};
};

HostQueue::HostQueue(rdma::Nic& nic, std::uint32_t entries, rdma::RingUse use)
    : nic_(nic), entries_(entries), use_(use) {}

Result<std::unique_ptr<HostQueue>> HostQueue::create(rdma::Nic& nic, std::uint32_t entries,
                                                     rdma::RingUse use) {
    if (entries < 2 || entries > 16384)
        return error(Errc::kInvalidArgument, "a queue of {} commands is not possible; choose 2 to 16384",
                     entries);
    std::unique_ptr<HostQueue> queue(new HostQueue(nic, entries, use));
    GN_TRY(queue->open());
    return queue;
}

Result<void> HostQueue::open() {
    const std::uint32_t slots = std::bit_ceil(entries_);
    const auto log2 = static_cast<std::uint32_t>(std::countr_zero(slots));
    memory_ = std::make_unique<Memory>(slots);
    Memory& m = *memory_;
    GN_TRY(m.map(nic_, slots, slots));
    GN_ASSIGN(keys_, nic_.register_memory(m.registered, m.registered_bytes, rdma::kLocalWrite));
    registered_ = true;
    GN_ASSIGN(send_cq_,
              nic_.create_completion_queue(
                  {.ring = m.send_cqe, .entries = 1, .consumer_record = nullptr, .collapsed = true}));
    GN_ASSIGN(receive_cq_, nic_.create_completion_queue({.ring = m.receive_cqes,
                                                         .entries = slots,
                                                         .consumer_record = m.consumer_record,
                                                         .collapsed = false,
                                                         .use = use_}));
    GN_ASSIGN(qp_, nic_.create_queue_pair({.send_ring = m.send_ring,
                                           .send_entries = slots,
                                           .receive_ring = m.receive_ring,
                                           .receive_entries = slots,
                                           .doorbell_record = m.doorbell_record,
                                           .bell = m.bell,
                                           .send_cq = send_cq_,
                                           .receive_cq = receive_cq_,
                                           .scatter_to_cqe = false}));
    send_ = {.ring = m.send_ring,
             .doorbell_record = m.doorbell_record,
             .bell = m.bell,
             .completion = m.send_cqe,
             .state = &m.send_state,
             .ready = m.ready.data(),
             .entries_log2 = log2,
             .qpn = qp_};
    completions_ = {.ring = m.receive_cqes,
                    .consumer_record = m.consumer_record,
                    .state = &m.completion_state,
                    .entries_log2 = log2};
    receive_ = {.ring = m.receive_ring,
                .doorbell_record = m.doorbell_record,
                .buffers = m.registered + m.response_offset,
                .state = &m.receive_state,
                .buffer_bytes = kResponseBytes,
                .lkey = keys_.lkey,
                .entries_log2 = log2,
                .qpn = qp_};
    arrived_.reserve(slots);
    rdma::prepare_completions(completions_);
    rdma::post_all_receives(receive_);
    return {};
}

HostQueue::~HostQueue() {
    const auto report = [](const Result<void>& r) {
        if (!r.ok()) log_error("a host queue could not be closed, its memory is kept: {}", r.error().message);
    };
    if (qp_ != 0) {
        if (const auto done = nic_.destroy_queue_pair(qp_); !done.ok()) {
            report(done);
            memory_->block.abandon();
            nic_.keep(std::move(memory_));  // the peer's NIC may still read rings and capsules
            return;
        }
    }
    if (receive_cq_ != 0) report(nic_.destroy_completion_queue(receive_cq_));
    if (send_cq_ != 0) report(nic_.destroy_completion_queue(send_cq_));
    if (!registered_) return;
    if (const auto done = nic_.deregister_memory(keys_); !done.ok()) {
        report(done);
        memory_->block.abandon();
        nic_.keep(std::move(memory_));
    }
}

Result<std::vector<std::byte>> HostQueue::connect(const std::string& peer_address, const std::string& service,
                                                  std::span<const std::byte> private_data,
                                                  std::uint32_t timeout_ms) {
    return nic_.connect(qp_, peer_address, service, private_data, timeout_ms);
}

void HostQueue::disconnect() {
    nic_.disconnect(qp_);
}

HostQueue::Posted HostQueue::post(const nvme::Command& command, std::span<const std::byte> data) {
    if (data.size() > kInCapsuleBytes) return Posted::kBroken;
    std::byte bytes[kCapsuleBytesMax];
    std::memcpy(bytes, &command, sizeof command);
    if (!data.empty()) std::memcpy(bytes + sizeof command, data.data(), data.size());
    return post_bytes(std::span(bytes).first(sizeof command + data.size()),
                      data.empty() ? 0 : sizeof command);
}

HostQueue::Posted HostQueue::post_bytes(std::span<const std::byte> bytes, std::uint32_t first_cut,
                                        std::uint32_t second_cut) {
    if (bytes.empty() || bytes.size() > kCapsuleStride) return Posted::kBroken;
    (void)send_.refresh_completed();
    rdma::SendTicket ticket = send_.try_reserve();
    if (!ticket.granted())
        return ticket.outcome == rdma::SendOutcome::kFull ? Posted::kFull : Posted::kBroken;
    std::byte* capsule = memory_->registered + std::size_t{send_.slot(ticket.index)} * kCapsuleStride;
    std::memcpy(capsule, bytes.data(), bytes.size());
    const auto size = static_cast<std::uint32_t>(bytes.size());
    const auto piece = [&](std::uint32_t from, std::uint32_t to) {
        return rdma::mlx5::make_data(reinterpret_cast<std::uintptr_t>(capsule) + from, to - from, keys_.lkey);
    };
    if (first_cut == 0 || first_cut >= size)
        send_.fill_send(ticket, piece(0, size));
    else if (second_cut <= first_cut || second_cut >= size)
        send_.fill_send(ticket, piece(0, first_cut), piece(first_cut, size));
    else
        send_.fill_send(ticket, piece(0, first_cut), piece(first_cut, second_cut), piece(second_cut, size));
    send_.publish(ticket);
    send_.ring_bell();
    return Posted::kYes;
}

bool HostQueue::poll(nvme::Completion& completion) {
    if (next_arrived_ == arrived_.size()) {
        arrived_.clear();
        next_arrived_ = 0;
        const rdma::ReceiveSet set{.queues = &receive_, .count = 1};
        (void)rdma::poll(kLane, completions_, set, [this](const rdma::Arrival& arrival) {
            if (arrival.is_error()) {
                receive_error_ = true;
                return;
            }
            if (arrival.bytes() < kResponseBytes) {
                if (!receive_error_)
                    log_error(
                        "queue pair {:#x}: a response has only {} bytes, which is too short; the connection "
                        "is treated as broken",
                        arrival.qpn, arrival.bytes());
                receive_error_ = true;
                return;
            }
            if (arrival.opcode == rdma::mlx5::kCqeSendInvalidate)
                last_invalidated_ = arrival.invalidated_rkey();
            std::uint32_t words[4];
            for (std::uint32_t i = 0; i < 3; ++i) words[i] = arrival.word(i);
            words[3] = arrival.dw3;
            nvme::Completion response;
            std::memcpy(&response, words, sizeof response);
            arrived_.push_back(response);
        });
    }
    if (next_arrived_ == arrived_.size()) return false;
    completion = arrived_[next_arrived_++];
    return true;
}

bool HostQueue::broken() const {
    return receive_error_ || send_.broken() || nic_.state(qp_) == rdma::QpState::kError;
}

}  // namespace gnstor::nvmf
