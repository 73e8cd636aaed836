// admin.hpp: the admin commands that a drive answers by itself: Identify, Get Log Page, features.
//
// Pure logic over a description of the drive; no threads, no clock. Vendor commands go to deEngine,
// asynchronous event requests and Abort to the drive, which knows what is outstanding (drive.cpp). Connect
// and properties are nvmf's, which also replaces CNTLID, SUBNQN and the capsule sizes in Identify by its own.
// NVMe Base 2.0, section 5.
#pragma once

#include <gnstor/nvme/features.hpp>
#include <gnstor/nvme/identify.hpp>

#include "deengine/engine.hpp"
#include "ssd/queues/arbiter.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gnstor::ssd {

inline constexpr std::uint32_t kMdtsLog2 = 8;  ///< 256 blocks, 1 MiB
inline constexpr std::uint32_t kMdtsBlocks = 1u << kMdtsLog2;
inline constexpr std::uint32_t kAsyncEventRequests = 4;  ///< held at once by an admin queue
inline constexpr std::uint32_t kMaxIoQueues = 128;       ///< of one controller
inline constexpr std::uint32_t kInCapsuleBytes = nvme::kBlockBytes;
inline constexpr std::uint32_t kErrorLogEntries = 16;
inline constexpr std::uint32_t kFirstNamespace = 1;

/// What Identify says of a drive, or of what stands in for one.
struct DriveFacts {
    std::array<std::uint8_t, 16> uuid{};
    std::string serial;
    std::uint64_t capacity_blocks = 0;
    bool write_cache = false;  ///< volatile: FLUSH matters
    std::string model = "GNStor emulated SSD";
    bool array_commands = false;    ///< GNStor's own (vendor.hpp)
    bool tells_of_changes = false;  ///< of the namespace, by notices and a log page
    bool write_protected = false;   ///< what is there can be read alone
    /// Of a dataset management command, all its ranges together (DMRSL, DMSL): what is done in good time. 0:
    /// any number.
    std::uint32_t trim_blocks_max = 0;
};

/// Features of one controller, kept with its admin queue.
struct ControllerFeatures {
    nvme::QueueCount queues{kMaxIoQueues, kMaxIoQueues};
    std::uint32_t async_events = 0;
    bool namespace_changed = false;  // and its host has not looked at the log page since
    bool notice_due = false;         // of that; its host has no event request outstanding
    std::uint32_t keep_alive_ms = 0;
    std::uint32_t arbitration = ArbitrationWeights{}.encode();  // the drive's: CommandPath fills it in
};

/// The newest failed commands, newest first. One a controller (Base 2.0, 5.16.1.2): what others asked for is
/// not a host's to read.
class ErrorLog {
  public:
    void add(std::uint16_t sq_id, const nvme::Command& command, nvme::Status status);
    [[nodiscard]] std::uint64_t total() const { return total_; }
    [[nodiscard]] std::array<nvme::ErrorLogEntry, kErrorLogEntries> newest_first() const;

  private:
    std::array<nvme::ErrorLogEntry, kErrorLogEntries> ring_{};
    std::uint64_t total_ = 0;
};

struct AdminReply {
    nvme::Status status;
    std::uint32_t dw0 = 0;
};

class AdminHandler {
  public:
    explicit AdminHandler(DriveFacts facts) : facts_(std::move(facts)) {}
    /// From now on Identify and the health log say so.
    void set_write_protected() { facts_.write_protected = true; }
    [[nodiscard]] const DriveFacts& facts() const { return facts_; }

    /// Bytes that `command` moves to the host (drive to host) or 0; what its SGL must describe.
    static std::uint32_t data_bytes(const nvme::Command& command);
    /// Identify, Get Log Page, Set and Get Features, Keep Alive; anything else: Invalid Command Opcode.
    AdminReply handle(const nvme::Command& command, ControllerFeatures& features, std::span<std::byte> data,
                      const deengine::EngineCounters& counters, const ErrorLog& errors) const;

    [[nodiscard]] nvme::IdentifyController controller() const;
    [[nodiscard]] nvme::IdentifyNamespace identify_namespace(const deengine::EngineCounters& counters) const;

  private:
    AdminReply identify(const nvme::Command& command, std::span<std::byte> data,
                        const deengine::EngineCounters& counters) const;
    [[nodiscard]] std::vector<std::uint8_t> descriptors() const;
    AdminReply get_log_page(const nvme::Command& command, ControllerFeatures& features,
                            std::span<std::byte> data, const deengine::EngineCounters& counters,
                            const ErrorLog& errors) const;
    AdminReply set_features(const nvme::Command& command, ControllerFeatures& features) const;
    AdminReply get_features(const nvme::Command& command, const ControllerFeatures& features) const;

    DriveFacts facts_;
};

}  // namespace gnstor::ssd
