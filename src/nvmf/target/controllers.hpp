// controllers.hpp: the controllers of one subsystem: the hosts, queues and state of each. Pure logic.
//
// NVMe Base 2.0, 3.1.1 (dynamic controller model), 3.1.3 (properties), 3.5 (initialization), 3.9 (Keep
// Alive), 6.3 (Connect).
// Invariants:
//   * a controller lives from the Connect of its admin queue until that queue is gone or its keep-alive time
//     passes;
//   * each queue id of a controller has at most one connection;
//   * an I/O queue connects only to an enabled controller, with the host id and the names that created it: so
//     all its queues carry the client id that the host NQN bound at the admin Connect.
// Time is an argument. One caller at a time (under Subsystem::mutex); nothing here blocks.
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
    kDiscovery,  ///< only an admin queue
};

/// Keep-alive granularity (KAS): a controller's time is rounded up to a multiple of it.
inline constexpr std::uint32_t kKeepAliveGranularityMs = 100;
/// How long a discovery controller without a keep-alive time may be idle (Base 2.0, 3.9): a host that only
/// wanted the log page may vanish, and nothing else would end its connection.
inline constexpr std::uint32_t kDiscoveryIdleMs = 120'000;
/// Longest time until CC.EN takes effect (CAP.TO), in units of 500 ms; here it takes effect at once.
inline constexpr std::uint8_t kEnableTimeout500ms = 20;
/// Asynchronous event requests that a controller holds (AERL + 1).
inline constexpr std::uint32_t kAsyncEventsMax = 4;

/// The properties that Connect gives a queue.
struct QueueBinding {
    std::uint16_t controller_id = 0;
    std::uint16_t queue_id = 0;
    nvme::ClientId client = 0;
    bool privileged = false;
    ssd::Priority priority = ssd::Priority::kMedium;
    bool sq_flow = true;  ///< false: no SQ flow control, as the host requested
};

struct ConnectOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t dw0 = 0;  ///< success: the controller id
    QueueBinding binding;
};

struct PropertyOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint64_t value = 0;
    bool close_io_queues = false;  ///< disabled or shut down: its I/O connections must be closed
    bool reset = false;            ///< disabled: its device must drop its event requests and features
    std::uint32_t shutdown = 0;    ///< not 0: a shutdown began; its number, for shutdown_ended()
};

struct FeatureOutcome {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t dw0 = 0;
    bool handled = false;  ///< false: the drive handles the feature
};

class Controllers {
  public:
    Controllers(std::string subsystem_nqn, ControllerOptions options,
                ControllerKind kind = ControllerKind::kIo);

    /// Connect of an admin queue (creates a controller) or of an I/O queue. `transport`: the request of the
    /// RDMA connection.
    ConnectOutcome connect(const ConnectRequest& request, const TransportRequest& transport,
                           std::uint64_t now_ns);
    /// A queue's connection is gone. Queue 0: the controller ends, and the caller must fail its other queues.
    void disconnect(std::uint16_t controller_id, std::uint16_t queue_id);

    PropertyOutcome property_get(std::uint16_t controller_id, const nvme::Command& command) const;
    PropertyOutcome property_set(std::uint16_t controller_id, const nvme::Command& command);

    /// The device's flush for shutdown number `shutdown` has ended. `stable` false: it failed, and the
    /// shutdown will never complete (CSTS.CFS).
    void shutdown_ended(std::uint16_t controller_id, std::uint32_t shutdown, bool stable);

    nvme::Status keep_alive(std::uint16_t controller_id, std::uint64_t now_ns);
    /// A command arrived: restarts the idle time of a discovery controller without a keep-alive time.
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
    /// Fills in the fields of Identify Controller that belong to the fabric and to this controller.
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
        std::uint32_t shutdowns = 0;  ///< number of shutdowns that began
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
        0;  ///< ids rotate, so that a late command of an old association does not reach a new one
};

}  // namespace gnstor::nvmf
