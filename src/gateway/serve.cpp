#include "gateway/serve.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/base/units.hpp>

#include <utility>

namespace gnstor::gateway {

Result<std::unique_ptr<ServedVolumes>> serve(rdma::SoftNic& nic, std::span<const VolumeToServe> volumes,
                                             ServeOptions options) {
    if (volumes.empty())
        return error(Errc::kInvalidArgument, "no volume to serve was given; name at least one volume");
    std::unique_ptr<ServedVolumes> served(new ServedVolumes);
    std::vector<nvmf::SubsystemConfig> subsystems;
    for (const VolumeToServe& volume : volumes) {
        if (volume.client == nullptr)
            return error(Errc::kInvalidArgument,
                         "volume {} cannot be served without a client; give it a client",
                         volume.options.volume);
        GN_ASSIGN(std::unique_ptr<Gateway> opened, Gateway::open(*volume.client, volume.options));
        nvmf::SubsystemConfig subsystem;
        subsystem.device = opened.get();
        subsystem.nqn = volume.nqn.empty() ? nvmf::volume_subsystem_nqn(volume.options.volume) : volume.nqn;
        subsystem.drive_reactor = &opened->reactor();
        log_info("volume {} of {} is served to ordinary hosts as {}{}", volume.options.volume,
                 format_bytes(opened->volume().geometry.capacity_blocks * nvme::kBlockBytes), subsystem.nqn,
                 volume.options.read_only ? ", read only" : "");
        subsystems.push_back(std::move(subsystem));
        served->gateways_.push_back(std::move(opened));
    }
    if (options.target.ports.empty()) options.target.ports.push_back({options.port, ""});
    GN_ASSIGN(served->target_, nvmf::Target::open(nic, subsystems, std::move(options.target)));
    return served;
}

ServedVolumes::~ServedVolumes() {
    // Ends all commands now, so that the target can disconnect its hosts without waiting for SSDs.
    for (const auto& gateway : gateways_) gateway->stop();
}

}  // namespace gnstor::gateway
