// wire_pair.cpp: see wire_pair.hpp.
#include "wire_pair.hpp"

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
    end->memory_ = std::make_unique<std::byte[]>(bytes);
    end->ring_ = std::make_unique<mlx5::SendEntry[]>(entries);
    end->completion_ = std::make_unique<mlx5::Cqe64[]>(1);
    end->words_ = std::make_unique<std::uint64_t[]>(2);
    end->ready_ = std::make_unique<std::uint32_t[]>(entries);
    end->state_ = std::make_unique<SendQueueState>();
    GN_ASSIGN(end->keys_,
              nic.register_memory(end->memory_.get(), bytes, kLocalWrite | kRemoteRead | kRemoteWrite));
    GN_ASSIGN(end->cq_, nic.create_completion_queue({end->completion_.get(), 1, nullptr, true}));
    auto* const record = reinterpret_cast<std::uint32_t*>(&end->words_[1]);
    QueuePairConfig config{};
    config.send_ring = end->ring_.get();
    config.send_entries = entries;
    config.doorbell_record = record;
    config.bell = &end->words_[0];
    config.send_cq = end->cq_;
    GN_ASSIGN(end->qp_, nic.create_queue_pair(config));
    end->send_ = {end->ring_.get(),  record,       &end->words_[0], end->completion_.get(), end->state_.get(),
                  end->ready_.get(), entries_log2, end->qp_};
    return end;
}

End::~End() {
    // In this order; what fails is said by the NIC's destructor, which must find nothing left.
    if (qp_ != 0) (void)nic_.destroy_queue_pair(qp_).ok();
    if (cq_ != 0) (void)nic_.destroy_completion_queue(cq_).ok();
    if (keys_.lkey != 0) (void)nic_.deregister_memory(keys_).ok();
}

mlx5::DataSegment End::local(std::size_t at, std::uint32_t bytes) const {
    return mlx5::make_data(reinterpret_cast<std::uint64_t>(memory_.get() + at), bytes, keys_.lkey);
}

mlx5::RemoteAddressSegment End::remote(std::size_t at) const {
    return mlx5::make_remote(reinterpret_cast<std::uint64_t>(memory_.get() + at), keys_.rkey);
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
        } else {
            Reactor* const reactor = pair->reactors_[i].get();
            GN_ASSIGN(pair->nics_[i],
                      SoftNic::open(pair->loop_, i == 0 ? "here" : "there", NicOptions{}, {&reactor, 1}));
        }
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
