// wire_pair.cpp: see wire_pair.hpp.
#include "wire_pair.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

namespace gnstor::bench::wire_bench {

using namespace rdma;

namespace {
constexpr char kService[] = "4420";

/// Accepts with the one queue pair there is.
class Door final : public Listener {
  public:
    explicit Door(QpNumber qp) : qp_(qp) {}
    ConnectReply on_connect(const ConnectRequest&) override {
        ConnectReply reply;
        reply.accept = true;
        reply.qp = qp_;
        return reply;
    }

  private:
    QpNumber qp_;
};
}  // namespace

Result<std::unique_ptr<End>> End::create(SoftNic& nic, std::uint32_t entries_log2, std::size_t bytes) {
    std::unique_ptr<End> end(new End(nic));
    const std::uint32_t entries = 1u << entries_log2;
    end->bytes_ = bytes;
    const std::size_t ring_bytes = entries * sizeof(mlx5::SendEntry);
    const std::size_t queues = (bytes + 63) / 64 * 64;
    GN_ASSIGN(end->block_, NicMemory::map(nic, queues + ring_bytes + 3 * 64));
    std::byte* const at = end->block_.data() + queues;
    auto* const ring = reinterpret_cast<mlx5::SendEntry*>(at);
    auto* const completion = reinterpret_cast<mlx5::Cqe64*>(at + ring_bytes);
    auto* const bell = reinterpret_cast<std::uint64_t*>(at + ring_bytes + 64);
    auto* const record = reinterpret_cast<std::uint32_t*>(at + ring_bytes + 128);
    end->ready_ = std::make_unique<std::uint32_t[]>(entries);
    end->state_ = std::make_unique<SendQueueState>();
    GN_ASSIGN(end->keys_,
              nic.register_memory(end->block_.data(), bytes, kLocalWrite | kRemoteRead | kRemoteWrite));
    GN_ASSIGN(end->cq_, nic.create_completion_queue({completion, 1, nullptr, true}));
    QueuePairConfig config{};
    config.send_ring = ring;
    config.send_entries = entries;
    config.doorbell_record = record;
    config.bell = bell;
    config.send_cq = end->cq_;
    GN_ASSIGN(end->qp_, nic.create_queue_pair(config));
    end->send_ = {ring,         record,  bell, completion, end->state_.get(), end->ready_.get(),
                  entries_log2, end->qp_};
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

mlx5::RemoteAddressSegment End::remote(std::size_t at) const {
    return mlx5::make_remote(reinterpret_cast<std::uint64_t>(block_.data() + at), keys_.rkey);
}

Result<std::unique_ptr<Pair>> Pair::open(const std::string& wire, std::span<const std::string> addresses,
                                         std::uint16_t port, std::uint32_t mtu, std::uint32_t entries_log2,
                                         std::size_t bytes) {
    std::unique_ptr<Pair> pair(new Pair());
    for (int i = 0; i < 2; ++i) {
        GN_ASSIGN(pair->reactors_[i], Reactor::start(i == 0 ? "gn-here" : "gn-there"));
        if (wire == "udp") {
            GN_ASSIGN(pair->udp_[i], UdpWire::open({.address = addresses[i], .port = port, .mtu = mtu},
                                                   *pair->reactors_[i]));
            GN_ASSIGN(pair->nics_[i], SoftNic::open(*pair->udp_[i], NicOptions{}));
        } else if (wire == "loop" || i == 1) {
            Reactor* const reactor = pair->reactors_[i].get();
            GN_ASSIGN(pair->nics_[i],
                      SoftNic::open(pair->loop_, i == 0 ? "here" : "there", NicOptions{}, {&reactor, 1}));
        }
    }
    if (wire == "shm") GN_TRY(pair->become_client());
    for (int i = 0; i < 2; ++i) {
        GN_ASSIGN(pair->ends_[i], End::create(*pair->nics_[i], entries_log2, bytes));
    }
    Door door(pair->there().qp());
    GN_TRY(pair->nics_[1]->listen(kService, door));
    const auto connected =
        pair->nics_[0]->connect(pair->here().qp(), pair->nics_[1]->address(), kService, {}, 5000);
    pair->nics_[1]->unlisten(kService);
    if (!connected.ok()) return connected.error();
    return pair;
}

/// The other end's node serves, and this end connects to it.
Result<void> Pair::become_client() {
    Reactor* const reactor = reactors_[1].get();
    const auto path =
        std::filesystem::temp_directory_path() / fmt::format("gnstor-bench-{}.sock", ::getpid());
    GN_ASSIGN(server_, ShmServer::start(loop_, {&reactor, 1}, {.path = path, .node = "there"}));
    GN_ASSIGN(shm_, ShmWire::open(path));
    GN_ASSIGN(nics_[0], SoftNic::open(*shm_));
    return {};
}

Pair::~Pair() = default;

double Pair::engine_seconds() const {
    return static_cast<double>(reactors_[0]->cpu_time_ns() + reactors_[1]->cpu_time_ns()) * 1e-9;
}

std::uint64_t Pair::retransmissions() const {
    if (udp_[0] == nullptr) return 0;
    return udp_[0]->counters().retransmissions + udp_[1]->counters().retransmissions;
}

std::uint64_t Pair::overruns() const {
    if (udp_[0] == nullptr) return 0;
    return udp_[0]->counters().receive_overruns + udp_[1]->counters().receive_overruns;
}

}  // namespace gnstor::bench::wire_bench
