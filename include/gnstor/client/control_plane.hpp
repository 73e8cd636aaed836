// control_plane.hpp: the client's interface to the daemon. Implemented in process (embedded array) and over
// HTTP.
//
// All calls may block for a bounded time and may come from any host thread. Never in the I/O path.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::client {

struct ClientIdentity {
    nvme::ClientId id;
    std::string name;
    std::string host_nqn;  ///< to present at Fabrics Connect, which binds the client id to the connection
};

/// One drive of the array as a client reaches it.
struct SsdAddress {
    std::uint32_t slot;
    std::string nic_address;  ///< address of the node's NIC
    std::string service;      ///< RDMA service on which the node listens
    std::string subsystem_nqn;
    std::uint8_t uuid[16];
};

struct ArrayView {
    placement::ArrayMap map;
    std::vector<SsdAddress> ssds;  ///< in order of slot
};

struct CreateVolume {
    std::string name;                   ///< 1 .. 63 of [A-Za-z0-9._-], not beginning with a dot
    std::uint64_t capacity_bytes = 0;   ///< rounded up to blocks; 1 block .. 16 TiB
    std::uint32_t chunk_bytes = 65536;  ///< power of two, 4 KiB .. 1 MiB
    std::uint32_t replicas = 2;         ///< 1 .. 4, at most the number of slots in use
    bool any_writer = false;  ///< any client may open it for writing, one at a time; else only the owner
};

enum class OpenMode : std::uint8_t { kRead, kWrite };

struct OpenedVolume {
    nvme::VolumeRecord record;  ///< its epoch must be stamped on every command
    OpenMode mode;
    std::uint64_t lease_ms;  ///< writers: how long the lease lasts; renew at a third of it
};

class ControlPlane {
  public:
    virtual ~ControlPlane() = default;
    /// Returns the id of a client name; the same name always gets the same id.
    virtual Result<ClientIdentity> register_client(const std::string& name) = 0;
    virtual Result<ArrayView> array() = 0;
    virtual Result<nvme::VolumeRecord> create_volume(nvme::ClientId client, const CreateVolume& request) = 0;
    /// For writing: takes the lease and raises the epoch on every drive. kBusy: another client holds the
    /// lease; the error names it.
    virtual Result<OpenedVolume> open_volume(nvme::ClientId client, const std::string& name,
                                             OpenMode mode) = 0;
    virtual Result<std::uint64_t> renew_lease(nvme::ClientId client, nvme::VolumeId volume,
                                              nvme::Epoch epoch) = 0;
    /// Ends this client's writing (closes the epoch) or reading; records the content's byte length unless it
    /// is ~0.
    virtual Result<void> release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                        std::uint64_t byte_length) = 0;
    /// Only the owner may call it. `reader` 0: any client may read.
    virtual Result<void> share_volume(nvme::ClientId owner, const std::string& name,
                                      nvme::ClientId reader) = 0;
    virtual Result<void> delete_volume(nvme::ClientId owner, const std::string& name) = 0;
    virtual Result<std::vector<nvme::VolumeRecord>> list_volumes() = 0;
};

}  // namespace gnstor::client
