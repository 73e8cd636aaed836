// served_array.cpp: gnstor/remote_array.hpp under a benchmark.
#include "bench/initiators/served_array.hpp"

#include <gnstor/remote_array.hpp>

namespace gnstor::bench {
namespace {

class Served final : public ServedArray {
  public:
    explicit Served(std::unique_ptr<RemoteArray> array) : array_(std::move(array)) {}
    client::Array& array() override { return *array_; }
    [[nodiscard]] std::vector<HardwareProcess> processes() const override {
        std::vector<HardwareProcess> all;
        for (const ServingProcess& process : array_->serving_processes())
            all.push_back({fmt::format("{}-{}", process.name, process.pid),
                           static_cast<double>(process.cpu_time_ns) / 1e9});
        return all;
    }
    [[nodiscard]] std::vector<EngineThread> nic_threads() const override {
        const auto nic = array_->nic_thread();
        if (!nic) return {};
        return {{nic->name, nic->cpu_time_ns, nic->busy_time_ns}};
    }

  private:
    const std::unique_ptr<RemoteArray> array_;
};

}  // namespace

Result<std::unique_ptr<ServedArray>> open_served_array(const ServedArrayOptions& options) {
    GN_ASSIGN(std::unique_ptr<RemoteArray> array,
              RemoteArray::open({.array = options.array,
                                 .token_file = options.token_file,
                                 .address = options.address,
                                 .tls_ca = options.tls_ca,
                                 .tls_fingerprint = options.tls_fingerprint}));
    return std::unique_ptr<ServedArray>(std::make_unique<Served>(std::move(array)));
}

}  // namespace gnstor::bench
