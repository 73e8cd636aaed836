// polled_queues.cpp: queue pairs of one CPU thread: set-up, posting, polling.
#include "bench/initiators/polled_queues.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/uuid.hpp>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/simt/time.hpp>

#include <bit>
#include <cstring>

namespace gnstor::bench {
namespace {

namespace mlx5 = rdma::mlx5;

constexpr std::uint32_t kConnectTimeoutMs = 10'000;
constexpr std::uint32_t kInCapsuleBytes = 4096;
constexpr std::uint32_t kResponseBytes = sizeof(nvme::Completion);
constexpr std::uint16_t kConnectTag = 0xFFFF;

struct alignas(64) Line {
    std::byte bytes[64];
};

}  // namespace

// ---- HostClient

Result<std::unique_ptr<HostClient>> HostClient::open(client::ControlPlane& control, rdma::Nic& nic,
                                                     const std::string& client_name,
                                                     const client::CreateVolume& volume,
                                                     std::uint32_t queues_max, bool fua) {
    std::unique_ptr<HostClient> c(new HostClient(control, nic));
    c->fua_ = fua;
    GN_ASSIGN(c->identity_, control.register_client(client_name));
    GN_ASSIGN(c->view_, control.array());
    const Uuid uuid = Uuid::random();
    for (const client::SsdAddress& ssd : c->view_.ssds) {
        nvmf::HostOptions options;
        options.peer_address = ssd.nic_address;
        options.service = ssd.service;
        options.subsystem_nqn = ssd.subsystem_nqn;
        options.host_nqn = c->identity_.host_nqn;
        std::memcpy(options.host_id.data(), &uuid, options.host_id.size());
        options.keep_alive_ms = 0;  // a run is short, and nobody would send them
        options.io_queues = queues_max;
        GN_ASSIGN(std::unique_ptr<nvmf::HostController> host, nvmf::HostController::connect(nic, options));
        c->ssds_.push_back(std::move(host));
    }
    GN_TRY(control.create_volume(c->identity_.id, volume));
    GN_ASSIGN(c->opened_, control.open_volume(c->identity_.id, volume.name, client::OpenMode::kWrite));
    c->open_ = true;
    return c;
}

HostClient::~HostClient() {
    if (!open_) return;
    const nvme::VolumeRecord& r = opened_.record;
    if (auto done = control_.release_volume(identity_.id, r.geometry.volume, r.epoch, ~0ull); !done.ok())
        log_warn("volume {} could not be released: {}", r.name, done.error().message);
}

// ---- PolledQueues

/// One queue pair. Indices are counts since the start.
struct PolledQueues::Queue {
    std::uint32_t slot = 0;
    rdma::QpNumber qp = 0;
    mlx5::SendEntry* ring = nullptr;
    nvme::Command* capsules = nullptr;
    const mlx5::Cqe64* send_completion = nullptr;
    std::uint32_t* doorbell_record = nullptr;
    std::uint64_t* bell = nullptr;
    std::uint64_t posted = 0, rung = 0, completed = 0;
    std::uint32_t unanswered = 0;
};

/// What the NIC sees, and the pollers' words beside it. Sized once; nothing moves.
struct PolledQueues::Memory {
    Memory(std::uint32_t queues, std::uint32_t slots)
        : send_rings(std::size_t{queues} * slots),
          receive_rings(std::size_t{queues} * slots),
          completions(std::bit_ceil(queues * slots)),
          registered(std::size_t{queues} * slots + queues * slots * kResponseBytes / 64 + 16),
          lines(queues),
          send_completions(queues),
          receive_states(queues),
          receives(queues) {}
    struct alignas(64) Lines {
        alignas(64) std::uint32_t doorbell_record[2] = {};
        alignas(64) std::uint64_t bell = 0;
    };
    std::vector<mlx5::SendEntry> send_rings;
    std::vector<mlx5::DataSegment> receive_rings;
    std::vector<mlx5::Cqe64> completions;
    std::vector<Line> registered;  // capsules, responses, then 1024 bytes for Connect
    std::vector<Lines> lines;
    std::vector<mlx5::Cqe64> send_completions;
    std::vector<rdma::ReceiveQueueState> receive_states;
    std::vector<rdma::ReceiveQueueRef> receives;
    rdma::CompletionQueueState poll_state{};
    alignas(64) std::uint32_t consumer_record = 0;
    rdma::CompletionQueueRef completion_ref{};
    rdma::MemoryKeys keys{};
    bool is_registered = false;
    rdma::CqNumber receive_cq = 0;
    std::vector<rdma::CqNumber> send_cqs;

    [[nodiscard]] std::byte* base() { return registered.front().bytes; }
    [[nodiscard]] std::size_t bytes() const { return registered.size() * sizeof(Line); }
    [[nodiscard]] std::byte* connect_data() { return base() + bytes() - sizeof(nvme::ConnectData); }
};
static_assert(sizeof(nvme::ConnectData) == 16 * sizeof(Line), "kept behind the responses");

PolledQueues::PolledQueues(HostClient& client, std::uint32_t entries, rdma::MemoryKeys keys)
    : client_(client), entries_(entries), buffer_keys_(keys) {}

Result<std::unique_ptr<PolledQueues>> PolledQueues::open(HostClient& client, std::uint32_t entries,
                                                         rdma::MemoryKeys buffer_keys) {
    if (!std::has_single_bit(entries) || entries < 8 || entries > 1024)
        return error(Errc::kInvalidArgument,
                     "a polled queue takes a power of two from 8 to 1024 commands, not {}", entries);
    std::unique_ptr<PolledQueues> q(new PolledQueues(client, entries, buffer_keys));
    GN_TRY(q->create());
    for (std::uint32_t ssd = 0; ssd < q->queues_.size(); ++ssd) GN_TRY(q->connect(ssd));
    ++client.next_queue_;
    return q;
}

Result<void> PolledQueues::create() {
    rdma::Nic& nic = client_.nic_;
    const auto count = static_cast<std::uint32_t>(client_.ssds_.size());
    memory_ = std::make_unique<Memory>(count, entries_);
    Memory& m = *memory_;
    GN_ASSIGN(m.keys, nic.register_memory(m.base(), m.bytes(), rdma::kLocalWrite));
    m.is_registered = true;
    GN_ASSIGN(m.receive_cq,
              nic.create_completion_queue({.ring = m.completions.data(),
                                           .entries = static_cast<std::uint32_t>(m.completions.size()),
                                           .consumer_record = &m.consumer_record,
                                           .collapsed = false}));
    m.completion_ref = {.ring = m.completions.data(),
                        .consumer_record = &m.consumer_record,
                        .state = &m.poll_state,
                        .entries_log2 = static_cast<std::uint32_t>(std::countr_zero(m.completions.size()))};
    rdma::prepare_completions(m.completion_ref);
    std::byte* const responses = m.base() + std::size_t{count} * entries_ * sizeof(nvme::Command);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::size_t first = std::size_t{i} * entries_;
        GN_ASSIGN(const rdma::CqNumber send_cq, nic.create_completion_queue({.ring = &m.send_completions[i],
                                                                             .entries = 1,
                                                                             .consumer_record = nullptr,
                                                                             .collapsed = true}));
        m.send_cqs.push_back(send_cq);
        Queue q;
        q.slot = client_.view_.ssds[i].slot;
        q.ring = m.send_rings.data() + first;
        q.capsules = reinterpret_cast<nvme::Command*>(m.base()) + first;
        q.send_completion = &m.send_completions[i];
        q.doorbell_record = m.lines[i].doorbell_record;
        q.bell = &m.lines[i].bell;
        GN_ASSIGN(q.qp, nic.create_queue_pair({.send_ring = q.ring,
                                               .send_entries = entries_,
                                               .receive_ring = m.receive_rings.data() + first,
                                               .receive_entries = entries_,
                                               .doorbell_record = q.doorbell_record,
                                               .bell = q.bell,
                                               .send_cq = send_cq,
                                               .receive_cq = m.receive_cq,
                                               .scatter_to_cqe = true}));
        queues_.push_back(q);
        m.receives[i] = {.ring = m.receive_rings.data() + first,
                         .doorbell_record = q.doorbell_record,
                         .buffers = responses + first * kResponseBytes,
                         .state = &m.receive_states[i],
                         .buffer_bytes = kResponseBytes,
                         .lkey = m.keys.lkey,
                         .entries_log2 = static_cast<std::uint32_t>(std::countr_zero(entries_)),
                         .qpn = q.qp};
        rdma::post_all_receives(m.receives[i]);
    }
    pending_.resize(std::size_t{entries_} * count);
    for (std::size_t i = pending_.size(); i-- > 0;) free_.push_back(static_cast<std::uint16_t>(i));
    arrived_.reserve(pending_.size() + 8);
    return {};
}

Result<void> PolledQueues::connect(std::uint32_t ssd) {
    Queue& q = queues_[ssd];
    nvmf::HostController& host = *client_.ssds_[ssd];
    const nvmf::IoQueueConnect connect = host.io_queue(client_.next_queue_, entries_);
    GN_TRY(host.connect_transport(q.qp, connect));
    const nvme::ConnectData data = connect.data();
    std::memcpy(memory_->connect_data(), &data, sizeof data);
    send(q, connect.command(kConnectTag), memory_->connect_data(), sizeof data, memory_->keys.lkey);
    ring(q);
    const auto deadline = simt::Deadline::in_ns(std::uint64_t{kConnectTimeoutMs} * 1'000'000);
    for (std::uint32_t backoff = 0; arrived_.empty() && !broken_;) {
        if (deadline.passed())
            return error(Errc::kTimedOut, "the I/O queue to SSD {} was not connected within {} ms", ssd,
                         kConnectTimeoutMs);
        collect();
        simt::pause(backoff);
    }
    if (broken_)
        return error(Errc::kIo, "the queue pair to SSD {} failed while its I/O queue was being connected",
                     ssd);
    const nvme::Completion answer = arrived_.front();
    arrived_.clear();
    return connect.check(answer);
}

PolledQueues::~PolledQueues() {
    if (memory_ == nullptr) return;
    rdma::Nic& nic = client_.nic_;
    const auto report = [](const Result<void>& r) {
        if (!r.ok()) log_error("polled queues could not be closed: {}", r.error().message);
        return r.ok();
    };
    bool closed = true;
    for (const Queue& q : queues_) closed = report(nic.destroy_queue_pair(q.qp)) && closed;
    if (!closed) {
        nic.keep(std::move(memory_));  // rings and capsules: the peer's side still reads them
        return;
    }
    for (const rdma::CqNumber cq : memory_->send_cqs) report(nic.destroy_completion_queue(cq));
    if (memory_->receive_cq != 0) report(nic.destroy_completion_queue(memory_->receive_cq));
    if (memory_->is_registered && !report(nic.deregister_memory(memory_->keys))) nic.keep(std::move(memory_));
}

bool PolledQueues::has_room(Queue& q) {
    if (q.unanswered == entries_) return false;
    if (q.posted - q.completed < entries_) return true;
    // Entries up to it are no longer touched by the NIC.
    const std::uint32_t own = rdma::acquire_last_words(q.send_completion).counter_own;
    if (mlx5::cqe_opcode(own) == mlx5::kCqeInvalid) return false;
    if (mlx5::cqe_is_error(own)) broken_ = true;
    q.completed +=
        static_cast<std::uint16_t>(mlx5::cqe_wqe_counter(own) + 1u - static_cast<std::uint32_t>(q.completed));
    return !broken_ && q.posted - q.completed < entries_;
}

void PolledQueues::send(Queue& q, const nvme::Command& command, const std::byte* payload,
                        std::uint32_t payload_bytes, std::uint32_t payload_lkey) {
    const auto at = static_cast<std::uint32_t>(q.posted) & (entries_ - 1);
    q.capsules[at] = command;
    mlx5::SendEntry& entry = q.ring[at];
    entry.control = mlx5::make_control(static_cast<std::uint16_t>(q.posted), mlx5::kSend, q.qp,
                                       payload_bytes != 0 ? 3 : 2);
    entry.segment[0].data = mlx5::make_data(reinterpret_cast<std::uintptr_t>(&q.capsules[at]), sizeof command,
                                            memory_->keys.lkey);
    if (payload_bytes != 0)
        entry.segment[1].data =
            mlx5::make_data(reinterpret_cast<std::uintptr_t>(payload), payload_bytes, payload_lkey);
    ++q.posted;
    ++q.unanswered;
}

void PolledQueues::ring(Queue& q) {
    if (q.posted == q.rung) return;
    // Release: pairs with the NIC's acquire load of the record; it then reads whole entries.
    simt::store_release<simt::Scope::kSystem>(q.doorbell_record + mlx5::kSendRecord,
                                              be32(static_cast<std::uint32_t>(q.posted) & mlx5::kIndexMask));
    // After the record: the bell must never name an entry that the record does not cover.
    const mlx5::SendEntry& newest = q.ring[static_cast<std::uint32_t>(q.posted - 1) & (entries_ - 1)];
    simt::store_mmio64_release(q.bell, mlx5::bell_value(newest.control));
    q.rung = q.posted;
}

bool PolledQueues::post(const Request& request) {
    const nvme::VolumeRecord& volume = client_.opened_.record;
    placement::Replicas replicas{};
    if (request.slot != 0xFF) {
        replicas.count = 1;
        replicas.slot[0] = request.slot;
    } else {
        replicas =
            placement::place(client_.map(), volume.geometry, request.block >> volume.geometry.chunk_shift);
    }
    const std::uint32_t count = request.write ? replicas.count : 1;
    if (free_.empty() || broken_) return false;
    for (std::uint32_t r = 0; r < count; ++r)
        if (!has_room(queues_[replicas.slot[r]])) return false;
    nvme::IoFields fields;
    fields.volume = volume.geometry.volume;
    fields.client = client_.identity_.id;
    fields.block = request.block;
    fields.blocks = request.blocks;
    fields.epoch = volume.epoch;
    fields.map_version = client_.map().version;
    fields.first_sector = request.first_sector;
    fields.sectors = request.sectors;
    fields.fua = client_.fua_;
    if (request.write) fields.sequence = client_.sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    nvme::Command command =
        nvme::encode_io(request.write ? nvme::IoOpcode::kWrite : nvme::IoOpcode::kRead, fields);
    const std::uint32_t bytes = request.bytes();
    const std::uint32_t in_capsule = request.write && bytes <= kInCapsuleBytes ? bytes : 0;
    command.data = in_capsule != 0
                       ? nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, in_capsule)
                       : nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(request.buffer), bytes,
                                                    buffer_keys_.rkey);
    command.command_id = free_.back();
    free_.pop_back();
    Pending& pending = pending_[command.command_id];
    pending = Pending{request.tag, nvme::Status::kSuccess, static_cast<std::uint8_t>(count), {}};
    for (std::uint32_t r = 0; r < count; ++r) {
        pending.slot[r] = replicas.slot[r];
        Queue& q = queues_[replicas.slot[r]];
        send(q, command, request.buffer, in_capsule, request.lkey != 0 ? request.lkey : buffer_keys_.lkey);
    }
    sent_ += count;
    return true;
}

void PolledQueues::flush() {
    for (Queue& q : queues_) ring(q);
}

/// Takes what came: like rdma::poll of a single lane, less the lock that shared pollers need.
void PolledQueues::collect() {
    Memory& m = *memory_;
    const rdma::ReceiveSet set{.queues = m.receives.data(),
                               .count = static_cast<std::uint32_t>(m.receives.size())};
    auto visit = [this](const rdma::Arrival& arrival) {
        if (arrival.is_error() || arrival.queue == rdma::ReceiveSet::kUnknown || arrival.is_short()) {
            broken_ = true;
            return;
        }
        --queues_[arrival.queue].unanswered;
        std::uint32_t words[4];
        for (std::uint32_t i = 0; i < 3; ++i) words[i] = arrival.word(i);
        words[3] = arrival.dw3;
        nvme::Completion response;
        std::memcpy(&response, words, sizeof response);
        arrived_.push_back(response);
    };
    (void)rdma::detail::poll_single_lane(m.completion_ref, set, m.poll_state.consumer, visit);
}

std::uint32_t PolledQueues::poll(std::span<Answer> answers) {
    if (next_arrived_ == arrived_.size()) {
        arrived_.clear();
        next_arrived_ = 0;
        collect();
    }
    std::uint32_t given = 0;
    while (given < answers.size() && next_arrived_ < arrived_.size()) {
        const nvme::Completion& response = arrived_[next_arrived_++];
        if (response.command_id >= pending_.size() || pending_[response.command_id].left == 0) {
            broken_ = true;
            continue;
        }
        Pending& pending = pending_[response.command_id];
        if (!nvme::ok(response.result())) pending.worst = response.result();
        if (--pending.left != 0) continue;
        answers[given++] = Answer{pending.tag, pending.worst};
        free_.push_back(response.command_id);
    }
    // A broken queue pair answers nothing more: every request that waits is told so.
    for (std::size_t i = 0; broken_ && i < pending_.size() && given < answers.size(); ++i) {
        if (pending_[i].left == 0) continue;
        pending_[i].left = 0;
        answers[given++] = Answer{pending_[i].tag, nvme::Status::kQueueError};
    }
    return given;
}

}  // namespace gnstor::bench
