// ssd_session.cpp: connecting to one SSD: the association, then queue pairs.
#include "client/ssd_session.hpp"

#include <span>

namespace gnstor::client {
namespace {
constexpr std::uint32_t kConnectTimeoutMs = 10'000;
}

Result<std::unique_ptr<SsdSession>> SsdSession::open(rdma::SoftNic& nic, const SsdAddress& ssd,
                                                     const ClientIdentity& identity,
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
    std::unique_ptr<SsdSession> session(new SsdSession(nic, ssd, std::move(options)));
    GN_TRY(session->reopen());
    return session;
}

Result<void> SsdSession::reopen() {
    host_.reset();
    GN_ASSIGN(host_, nvmf::HostController::connect(nic_, options_));
    if (host_->io_queues() < options_.io_queues)
        return error(Errc::kNoSpace,
                     "{} grants {} I/O queues of the {} that the client's channels need; open fewer channels",
                     ssd_.subsystem_nqn, host_->io_queues(), options_.io_queues);
    return {};
}

Result<void> SsdSession::connect_queue(gnor::Channel& channel, std::uint16_t queue_id) {
    const nvmf::IoQueueConnect queue = host_->io_queue(queue_id, channel.options().depth);
    GN_TRY(host_->connect_transport(channel.queue_pair(ssd_.slot), queue));
    const nvme::ConnectData data = queue.data();
    GN_ASSIGN(const nvme::Completion answer,
              channel.execute_from_host(ssd_.slot, queue.command(0), std::as_bytes(std::span(&data, 1)),
                                        kConnectTimeoutMs));
    return queue.check(answer);
}

}  // namespace gnstor::client
