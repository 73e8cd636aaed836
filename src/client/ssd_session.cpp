// ssd_session.cpp: connecting to one SSD: the association, then queue pairs.
#include "client/ssd_session.hpp"

#include <span>

namespace gnstor::client {
namespace {

constexpr std::uint32_t kConnectTimeoutMs = 10'000;

nvmf::HostOptions options_for(const SsdAddress& ssd, const ClientIdentity& identity,
                              const nvmf::HostId& host_id, std::uint32_t keep_alive_ms,
                              std::uint32_t channels) {
    nvmf::HostOptions options;
    options.peer_address = ssd.nic_address;
    options.service = ssd.service;
    options.subsystem_nqn = ssd.subsystem_nqn;
    options.host_nqn = identity.host_nqn;
    options.host_id = host_id;
    options.keep_alive_ms = keep_alive_ms;
    options.io_queues = channels;
    return options;
}

}  // namespace

SsdSession::SsdSession(rdma::Nic& nic, const SsdAddress& ssd, const ClientIdentity& identity,
                       const nvmf::HostId& host_id, std::uint32_t keep_alive_ms, std::uint32_t channels)
    : nic_(nic), ssd_(ssd), options_(options_for(ssd, identity, host_id, keep_alive_ms, channels)) {}

Result<std::shared_ptr<nvmf::HostController>> SsdSession::host() const {
    const std::lock_guard lock(mutex_);
    if (host_ == nullptr)
        return error(Errc::kState, "there is no association with {}; reclaim() makes a new association",
                     ssd_.subsystem_nqn);
    return host_;
}

Result<void> SsdSession::keep_alive() {
    GN_ASSIGN(const auto host, this->host());
    return host->keep_alive();
}

bool SsdSession::alive() {
    const auto found = host();
    if (!found.ok()) return false;
    return (*found)->connected() && (*found)->property_get(nvme::Property::kCsts).ok();
}

Result<bool> SsdSession::volatile_write_cache() {
    GN_ASSIGN(const auto host, this->host());
    GN_ASSIGN(const nvme::IdentifyController identify, host->identify_controller());
    return (identify.vwc & 1u) != 0;
}

Result<SsdCounts> SsdSession::counts() {
    GN_ASSIGN(const auto host, this->host());
    GN_ASSIGN(const nvme::HealthLog health, host->health_log());
    GN_ASSIGN(const nvme::IdentifyNamespace space, host->identify_namespace());
    return SsdCounts{ssd_.slot, health.host_reads.low(), health.host_writes.low(), health.media_errors.low(),
                     space.nuse};
}

Result<nvme::Completion> SsdSession::tell_floor(nvme::VolumeId volume, nvme::Epoch epoch,
                                                std::uint64_t floor) {
    GN_ASSIGN(const auto host, this->host());
    return host->admin(nvme::encode_floor(volume, epoch, floor), {}, nvmf::Direction::kNone);
}

Result<void> SsdSession::set_keys(const SsdKeys& keys) {
    GN_ASSIGN(nvmf::HostAuthentication parsed,
              nvmf::parse_host_authentication(keys.host_key, keys.controller_key));
    // A node that shares memory is found by its socket, whose listener the operating system names.
    parsed.required = !nic_.wants_shared_memory();
    options_.authentication = std::make_shared<const nvmf::HostAuthentication>(std::move(parsed));
    return {};
}

Result<void> SsdSession::reopen() {
    {
        const std::lock_guard lock(mutex_);
        host_.reset();
    }
    GN_ASSIGN(std::shared_ptr<nvmf::HostController> fresh, nvmf::HostController::connect(nic_, options_));
    if (fresh->io_queues() < options_.io_queues)
        return error(Errc::kNoSpace,
                     "{} grants {} I/O queues of the {} that the client's channels need; open fewer channels",
                     ssd_.subsystem_nqn, fresh->io_queues(), options_.io_queues);
    const std::lock_guard lock(mutex_);
    host_ = std::move(fresh);
    return {};
}

Result<void> SsdSession::connect_queue(gnor::Channel& channel, std::uint16_t queue_id) {
    GN_ASSIGN(const auto host, this->host());
    const nvmf::IoQueueConnect queue = host->io_queue(queue_id, channel.options().depth);
    GN_TRY(host->connect_transport(channel.queue_pair(ssd_.slot), queue));
    const nvme::ConnectData data = queue.data();
    GN_ASSIGN(const nvme::Completion answer,
              channel.execute_from_host(ssd_.slot, queue.command(0), std::as_bytes(std::span(&data, 1)),
                                        kConnectTimeoutMs));
    GN_TRY(queue.check(answer));
    const nvmf::AuthCommands commands{
        .send =
            [&](const nvme::Command& command, std::span<const std::byte> message) {
                return channel.execute_from_host(ssd_.slot, command, message, kConnectTimeoutMs);
            },
        .receive =
            [&](const nvme::Command& command, std::span<std::byte> buffer) {
                return channel.execute_from_host(ssd_.slot, command, {}, kConnectTimeoutMs, buffer);
            }};
    return host->authenticate_queue(queue, answer, commands);
}

}  // namespace gnstor::client
