// admin.hpp: the admin commands that are answered from a description of the drive: Identify, Get Log Page,
// features.
//
// Pure logic; no threads, no clock. Vendor commands go to deEngine; asynchronous event requests and Abort go
// to AdminCommands (admin_commands.hpp), which knows the outstanding commands. The nvmf layer handles Connect
// and properties, and replaces CNTLID, SUBNQN and the capsule sizes in Identify with its own. NVMe Base 2.0,
// section 5.
#pragma once

#include <gnstor/nvme/features.hpp>
#include <gnstor/nvme/identify.hpp>

#include "deengine/front/engine.hpp"
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

/// What Identify reports of a drive, or of another NvmeDevice.
struct DriveFacts {
    std::array<std::uint8_t, 16> uuid{};
    std::string serial;
    std::uint64_t capacity_blocks = 0;
    bool write_cache = false;  ///< volatile: FLUSH matters
    std::string model = "GNStor emulated SSD";
    bool array_commands = false;    ///< vendor commands (vendor.hpp)
    bool tells_of_changes = false;  ///< reports changes of the namespace by notices and a log page
    bool write_protected = false;   ///< data can be read, every change is refused
    /// Blocks in one dataset management command, all its ranges together (DMRSL, DMSL), that can be processed
    /// in good time. 0: any number.
    std::uint32_t trim_blocks_max = 0;
};

/// Features of one controller, kept with its admin queue.
struct ControllerFeatures {
    nvme::QueueCount queues{kMaxIoQueues, kMaxIoQueues};
    std::uint32_t async_events = 0;
    bool namespace_changed = false;  // since its host last read the log page
    bool notice_due = false;         // a notice waits: its host has no event request outstanding
    std::uint32_t keep_alive_ms = 0;
    std::uint32_t arbitration = ArbitrationWeights{}.encode();  // the drive's: CommandPath fills it in
};

/// The newest failed commands of one controller, newest first (Base 2.0, 5.16.1.2): a host must not read the
/// commands of other hosts.
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
    /// From now on Identify and the health log report it.
    void set_write_protected() { facts_.write_protected = true; }
    [[nodiscard]] const DriveFacts& facts() const { return facts_; }

    /// Bytes that `command` transfers to the host, or 0; its SGL must describe exactly as many.
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
    [[nodiscard]] nvme::HealthLog health_log(const deengine::EngineCounters& counters,
                                             const ErrorLog& errors) const;
    [[nodiscard]] nvme::CommandsSupportedLog commands_supported_log() const;
    AdminReply get_log_page(const nvme::Command& command, ControllerFeatures& features,
                            std::span<std::byte> data, const deengine::EngineCounters& counters,
                            const ErrorLog& errors) const;
    AdminReply set_features(const nvme::Command& command, ControllerFeatures& features) const;
    AdminReply get_features(const nvme::Command& command, const ControllerFeatures& features) const;

    DriveFacts facts_;
};

}  // namespace gnstor::ssd
