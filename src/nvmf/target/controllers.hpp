// controllers.hpp: the controllers of one subsystem: who is associated, with which queues, in which state.
// Pure logic.
//
// NVMe Base 2.0, 3.1.1 (dynamic controller model), 3.1.3 (properties), 3.5 (initialization), 3.9 (Keep
// Alive), 6.3 (Connect). Invariants:
//   * a controller lives from the Connect of its admin queue until that queue goes, or its keep-alive time
//   passes;
//   * each queue id of a controller has at most one connection;
//   * an I/O queue connects only to an enabled controller, with the host id and the names that created it:
//   the client id that
//     the host NQN bound at the admin Connect is the one that all its queues carry.
// Time is an argument. One owner at a time (Target holds its control mutex around every call); nothing here
// blocks.
#pragma once

#include "nvmf/protocol/connect.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "ssd/queues/nvme_queue.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct ControllerOptions {
    QueueLimits queues;
    std::uint32_t controllers_max = 4096;
    std::string admin_host_nqn{kAdminHostNqn};
};

enum class ControllerKind : std::uint8_t {
    kIo,
    kDiscovery,  ///< an admin queue alone
};

/// Keep-alive granularity (KAS): a controller's time is rounded up to a multiple of it.
inline constexpr std::uint32_t kKeepAliveGranularityMs = 100;
/// How long a discovery controller without a keep-alive time of its own may be silent (Base 2.0, 3.9): those
/// who only wanted the log page may vanish, and nothing else would end their connections.
inline constexpr std::uint32_t kDiscoveryIdleMs = 120'000;
/// Until CC.EN takes effect at most (CAP.TO), in units of 500 ms; here it is at once.
inline constexpr std::uint8_t kEnableTimeout500ms = 20;
/// Asynchronous event requests that a controller holds (AERL + 1).
inline constexpr std::uint32_t kAsyncEventsMax = 4;

/// What Connect gives a queue.
struct QueueBinding {
    std::uint16_t controller_id = 0;
    std::uint16_t queue_id = 0;
    nvme::ClientId client = 0;
    bool privileged = false;
    ssd::Priority priority = ssd::Priority::kMedium;
    bool sq_flow = true;  ///< false: its host does without the SQ head pointer, as it asked
};

struct ConnectOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t dw0 = 0;  ///< success: the controller id
    QueueBinding binding;
};

struct PropertyOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint64_t value = 0;
    bool close_io_queues = false;  ///< disabled or shut down: its I/O connections must go
    bool reset = false;            ///< disabled: what its device holds for it must go
    std::uint32_t shutdown = 0;    ///< not 0: it was told to shut down; for shutdown_ended()
};

struct FeatureOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t dw0 = 0;
    bool handled = false;  ///< false: the feature is the drive's
};

class Controllers {
  public:
    Controllers(std::string subsystem_nqn, ControllerOptions options,
                ControllerKind kind = ControllerKind::kIo);

    /// Connect of an admin queue (creates a controller) or of an I/O queue. `transport`: what the RDMA
    /// connection was made for.
    ConnectOutcome connect(const ConnectRequest& request, const TransportRequest& transport,
                           std::uint64_t now_ns);
    /// A queue's connection is gone. With queue 0 the controller goes; its other queues must be failed by the
    /// caller.
    void disconnect(std::uint16_t controller_id, std::uint16_t queue_id);

    PropertyOutcome property_get(std::uint16_t controller_id, const nvme::Command& command) const;
    PropertyOutcome property_set(std::uint16_t controller_id, const nvme::Command& command);

    /// What its device kept in volatile caches is stable now, or cannot be made so: then the shutdown is not
    /// complete, and never will be.
    void shutdown_ended(std::uint16_t controller_id, std::uint32_t shutdown, bool stable);

    nvme::Status keep_alive(std::uint16_t controller_id, std::uint64_t now_ns);
    /// A command came: a discovery controller without a keep-alive time lives on by any.
    void heard(std::uint16_t controller_id, std::uint64_t now_ns);
    /// Controllers whose keep-alive time has passed by `now_ns`; each is reported once and refuses everything
    /// from then on.
    std::vector<std::uint16_t> expire(std::uint64_t now_ns);

    FeatureOutcome set_feature(std::uint16_t controller_id, const nvme::Command& command,
                               std::uint64_t now_ns);
    FeatureOutcome get_feature(std::uint16_t controller_id, const nvme::Command& command) const;

    /// Whether commands other than fabrics ones are served (CSTS.RDY).
    [[nodiscard]] bool ready(std::uint16_t controller_id) const;
    /// Whether the controller exists and holds this queue id.
    [[nodiscard]] bool has_queue(std::uint16_t controller_id, std::uint16_t queue_id) const;
    /// Fills in what of Identify Controller belongs to the fabric and to this controller.
    void complete_identify(std::uint16_t controller_id, nvme::IdentifyController& identify) const;

    [[nodiscard]] std::size_t size() const { return controllers_.size(); }
    [[nodiscard]] const std::string& subsystem_nqn() const { return subsystem_nqn_; }
    [[nodiscard]] ControllerKind kind() const { return kind_; }

  private:
    struct Controller {
        HostId host_id{};
        std::string host_nqn;
        nvme::ClientId client = 0;
        bool privileged = false;
        bool expired = false;
        std::uint32_t keep_alive_ms = 0;
        std::uint64_t expires_ns = 0;
        nvme::Configuration configuration;
        nvme::ControllerStatus status;
        std::uint32_t io_queues_granted = 0;
        std::uint32_t shutdowns = 0;  ///< that it was told of
        std::set<std::uint16_t> queues;
    };
    ConnectOutcome connect_admin(const ConnectRequest& request, std::uint64_t now_ns);
    ConnectOutcome connect_io(const ConnectRequest& request);
    PropertyOutcome configure(Controller& controller, nvme::Configuration wanted);
    void set_keep_alive(Controller& controller, std::uint32_t ms, std::uint64_t now_ns) const;
    [[nodiscard]] std::uint16_t free_id();
    [[nodiscard]] Controller* find(std::uint16_t controller_id);
    [[nodiscard]] const Controller* find(std::uint16_t controller_id) const;

    const std::string subsystem_nqn_;
    const ControllerOptions options_;
    const ControllerKind kind_;
    std::map<std::uint16_t, Controller> controllers_;
    std::uint16_t last_id_ =
        0;  ///< ids go round, so that a late command of an old association finds no new one
};

}  // namespace gnstor::nvmf
