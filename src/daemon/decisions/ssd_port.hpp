// ssd_port.hpp: how the daemon's decisions reach one drive: the vendor admin commands of nvme/vendor.hpp.
//
// The Manager's caller calls it, one call at a time; every call ends within a bounded time. Failures by their
// code:
//   kState      the drive has seen a newer term (kStaleTerm): this daemon was superseded
//   kExists     VOLUME ADD of a VID that exists
//   kNotFound   no such volume on this drive
//   kNoSpace    the drive's tables are full: it will refuse again
//   kUnsupported  VOLUME ADD below an epoch of the VID's earlier life (kStaleEpoch)
//   kTimedOut, kIo  no answer: the command may or may not have been carried out
// anything else: the drive refused and changed nothing. ssd_error() makes such an Error from an NVMe status.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/host_set.hpp>
#include <gnstor/nvme/status.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::nvmf::auth {
class DhchapKey;
}

namespace gnstor::daemon {

struct SsdIdentity {
    std::array<std::uint8_t, 16> uuid{};  ///< identifies the store's incarnation (docs/array.md, rule 10)
    std::string nic_address;
    std::string service;
    std::string subsystem_nqn;
    std::string serial;
    std::uint64_t capacity_blocks = 0;
};

/// Answers of VOLUME LIST and MAP GET.
struct SsdVolumes {
    std::uint64_t term = 0;                 ///< the newest that it has seen
    nvme::Epoch highest_deleted_epoch = 0;  ///< highest epoch of any volume deleted from it
    bool incomplete = false;  ///< its slot was being filled when it last took a map (nvme::kListIncomplete)
    placement::ArrayMap newest_map{};  ///< the newest that it has stored; version 0: none, or it cannot tell
    /// Its firmware knows MAP GET, and so slots that are out (older firmware refuses a map that has one).
    bool knows_out = true;
    std::vector<nvme::VolumeRecord> records;
};

class SsdPort {
  public:
    virtual ~SsdPort() = default;
    /// The drive's index in its node (0 ..); the slot that it takes in a new array.
    [[nodiscard]] virtual std::uint32_t slot() const = 0;
    [[nodiscard]] virtual SsdIdentity identity() const = 0;
    /// Whether it has reconnected since the last answered volume_list(), so that another store may be behind
    /// it. Until it is listed, a command that would raise its term is not sent and fails with kIo.
    [[nodiscard]] virtual bool is_new() const { return false; }
    /// Whether its connection is known to have ended since the last command: until it is asked again, it passes for
    /// one that does not serve.
    [[nodiscard]] virtual bool is_disconnected() const { return false; }
    /// Whether it stores the terms that it has seen. A write-protected SSD loses them when it is closed.
    [[nodiscard]] virtual bool keeps_terms() const { return true; }
    virtual Result<SsdVolumes> volume_list(std::uint64_t term) = 0;
    virtual Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record) = 0;
    virtual Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record) = 0;
    virtual Result<void> volume_remove(std::uint64_t term, nvme::VolumeId volume) = 0;
    /// Returns a nonce for the next map_set(), whose grant is counted from this call (GRANT ASK).
    virtual Result<std::uint32_t> grant_ask(std::uint64_t term) = 0;
    /// `nonce` is 0 if map.grant_ms is 0.
    virtual Result<void> map_set(std::uint64_t term, const nvme::MapSet& map, std::uint32_t nonce) = 0;
    /// One of the commands that compare and copy blocks (nvme/copy.hpp), or FLOOR, which carries its term itself; its
    /// direction follows from the opcode. `dw0`: of the answer. No answer: kQueueError.
    virtual nvme::Status copy(const nvme::Command& /*command*/, std::span<std::byte> /*data*/,
                              std::uint32_t& /*dw0*/) {
        return nvme::Status::kInvalidOpcode;
    }
    /// The key of the drive's node, if that authenticates hosts; null: it lets every host in. Never changes.
    [[nodiscard]] virtual const nvmf::auth::DhchapKey* node_key() const { return nullptr; }
    /// Which clients the node lets in, in order of id. Answered when the queues of all others have ended. A
    /// node that restarts forgets it (is_new()).
    virtual Result<void> hosts_set(std::uint64_t /*term*/, std::uint64_t /*version*/,
                                   std::span<const nvme::HostSetEntry> /*hosts*/) {
        return {};
    }
};

/// The Error that an SsdPort returns for an NVMe status other than success.
[[nodiscard]] Error ssd_error(nvme::Status status, std::string_view command, std::string_view ssd);

}  // namespace gnstor::daemon
