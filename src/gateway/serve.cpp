#include "gateway/serve.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

namespace gnstor::gateway {

std::string volume_subsystem_nqn(const std::string& volume) {
    return "nqn.2026-11.io.gnstor:volume:" + volume;
}

Result<std::unique_ptr<ServedVolume>> serve(rdma::SoftNic& nic, client::Client& client,
                                            const ServeOptions& options) {
    const std::string& volume = options.gateway.volume;
    std::unique_ptr<ServedVolume> served(new ServedVolume);
    served->nqn_ = options.nqn.empty() ? volume_subsystem_nqn(volume) : options.nqn;
    served->service_ = options.service.empty() ? "volume-" + volume : options.service;
    GN_ASSIGN(served->gateway_, Gateway::open(client, options.gateway));
    nvmf::SubsystemConfig subsystem;
    subsystem.device = served->gateway_.get();
    subsystem.nqn = served->nqn_;
    subsystem.service = served->service_;
    subsystem.drive_reactor = &served->gateway_->reactor();
    GN_ASSIGN(served->target_, nvmf::Target::open(nic, {&subsystem, 1}, options.target));
    log_info("volume {} is served to ordinary hosts as {}, {}{}", volume, served->nqn_,
             format_bytes(served->gateway_->volume().geometry.capacity_blocks * nvme::kBlockBytes),
             options.gateway.read_only ? ", read only" : "");
    return served;
}

ServedVolume::~ServedVolume() {
    // Whatever the SSDs hold back: hosts' connections drain at once.
    if (gateway_ != nullptr) gateway_->stop();
}

}  // namespace gnstor::gateway
