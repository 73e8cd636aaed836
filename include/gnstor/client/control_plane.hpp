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

/// What gnstord gives an administrator for a client.
struct ClientAccess {
    ClientIdentity identity;
    std::uint32_t generation = 0;  ///< another one whenever keys and token are replaced
    /// Lets another machine act as this client, and as no other, over TCP. Secret: shown once, never logged.
    /// Empty, as `address` is: gnstord does not listen on TCP, or was not asked over HTTP.
    std::string token;
    std::string address;  ///< https://HOST:PORT or http://HOST:PORT, as gnstord was told to listen
    std::string certificate_fingerprint;  ///< of gnstord's certificate there; empty: no TLS
};

/// One drive of the array as a client reaches it.
struct SsdAddress {
    std::uint32_t slot;
    std::string nic_address;  ///< address of the node's NIC
    std::string service;      ///< RDMA service on which the node listens
    std::string subsystem_nqn;
    std::uint8_t uuid[16];
};

/// The keys of one client with one SSD whose node authenticates hosts, in the text form of NVMe DH-HMAC-CHAP
/// (DHHC-1). Secret: never logged.
struct SsdKeys {
    std::uint32_t slot;
    std::string host_key;        ///< proves the client to the SSD
    std::string controller_key;  ///< proves the SSD to the client
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
    /// Returns the id of a client name; the same name always gets the same id. kPermission: the client was
    /// removed.
    virtual Result<ClientIdentity> register_client(const std::string& name) = 0;
    // For administrators; a client's token does not suffice (docs/array.md, rule 19).
    /// As register_client(), but lets a removed client in again.
    virtual Result<ClientAccess> add_client(const std::string& name) { return no_clients(name); }
    /// Gives a client other keys and another token; the earlier ones end. An error that says that the change
    /// is recorded: some SSD may still take the earlier key, until a grant's time has passed.
    virtual Result<ClientAccess> rotate_client(const std::string& name) { return no_clients(name); }
    /// Revokes a client's access. Its volumes stay, and its name and id are not used again. Errors as above.
    virtual Result<void> remove_client(const std::string& name) { return no_clients(name); }
    /// Gives the slot of a lost SSD to a spare, and has gnstord fill the spare from the other replicas (docs/array.md,
    /// rule 12). kBusy: the lost SSD may still serve; try again later. kNotFound: no such slot, or no spare. kState,
    /// kNoSpace, kIo: why it may not be replaced.
    virtual Result<void> replace_ssd(std::uint32_t slot) {
        return error(Errc::kUnsupported, "the SSD of slot {} cannot be replaced here; ask gnstord", slot);
    }
    /// Begins a pass of the scrub, which compares the replicas of all volumes and mends what an SSD cannot read; nothing
    /// changes if one is under way. kState: another gnstord serves the array.
    virtual Result<void> start_scrub() {
        return error(Errc::kUnsupported, "this control plane begins no scrub");
    }
    virtual Result<ArrayView> array() = 0;
    /// Of every SSD that demands authentication; empty: none does.
    virtual Result<std::vector<SsdKeys>> ssd_keys(nvme::ClientId /*client*/) {
        return std::vector<SsdKeys>{};
    }
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
    /// The opposite: ends the sharing with `reader`; 0: with all clients, those named stay. Only the owner may call it.
    /// When it has succeeded, SSDs refuse the reader's commands. kState: others may read it all the same, and why.
    virtual Result<void> unshare_volume(nvme::ClientId /*owner*/, const std::string& name,
                                        nvme::ClientId /*reader*/) {
        return error(Errc::kUnsupported, "the sharing of volume '{}' cannot be ended here; ask gnstord",
                     name);
    }
    virtual Result<void> delete_volume(nvme::ClientId owner, const std::string& name) = 0;
    virtual Result<std::vector<nvme::VolumeRecord>> list_volumes() = 0;

  private:
    static Error no_clients(const std::string& name) {
        return error(Errc::kUnsupported, "client '{}' cannot be changed here; ask gnstord", name);
    }
};

}  // namespace gnstor::client
