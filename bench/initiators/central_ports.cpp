// central_ports.cpp: clients of a central array engine: a ring to its thread in place of queue pairs.
#include "bench/initiators/bed.hpp"
#include "bench/initiators/central_engine.hpp"
#include "bench/initiators/cpu_initiator.hpp"

namespace gnstor::bench {
namespace {

class CentralPorts final : public PortFactory {
  public:
    Result<void> open(Bed& bed, const InitiatorOptions& o, rdma::MemoryKeys buffers) {
        CentralOptions options;
        options.threads = o.array_threads;
        options.clients = o.clients;
        options.replicas = o.replicas;
        options.volume_bytes = o.volume_bytes;
        options.depth = o.depth;
        options.fua = o.fua;
        threads_ = o.array_threads;
        GN_ASSIGN(engine_,
                  CentralEngine::open(bed.array().control(), bed.array().host_nic(), options, buffers));
        return {};
    }
    Result<std::unique_ptr<Port>> make(std::uint32_t client) override { return engine_->connect(client); }
    [[nodiscard]] nvme::VolumeId volume(std::uint32_t client) const override {
        return engine_->volume(client);
    }
    [[nodiscard]] std::string describe() const override {
        return fmt::format(", through an array engine of {} threads", threads_);
    }
    Result<void> start() override {
        commands_before_ = engine_->commands();
        engine_->start();
        return {};
    }
    Result<void> stop() override {
        times_ = engine_->stop();
        commands_ = engine_->commands() - commands_before_;
        return {};
    }
    void add_to(Outcome& out) const override {
        out.commands += commands_;
        out.array_cpu_seconds = times_.cpu_seconds;
        if (times_.writes != 0)
            out.stage_us["log"] =
                static_cast<double>(times_.log_ns) / static_cast<double>(times_.writes) / 1e3;
        for (const Stage s : {Stage::kHandOver, Stage::kSubmit, Stage::kPoll, Stage::kLock, Stage::kTable,
                              Stage::kSpace, Stage::kLog, Stage::kIdle})
            if (times_.writes != 0 || (s != Stage::kSpace && s != Stage::kLog))
                out.work_seconds["array_" + stage_name(s)] = times_.work[index_of(s)];
    }

  private:
    std::unique_ptr<CentralEngine> engine_;
    std::uint32_t threads_ = 0;
    CentralTimes times_;
    std::uint64_t commands_before_ = 0, commands_ = 0;
};

}  // namespace

Result<std::unique_ptr<PortFactory>> make_central_ports(Bed& bed, const InitiatorOptions& options,
                                                        rdma::MemoryKeys buffers) {
    auto ports = std::make_unique<CentralPorts>();
    GN_TRY(ports->open(bed, options, buffers));
    return std::unique_ptr<PortFactory>(std::move(ports));
}

}  // namespace gnstor::bench
