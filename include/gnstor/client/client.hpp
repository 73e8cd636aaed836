// client.hpp: libgnstor on the host. Opens volumes, sets up channels, keeps leases and connections alive, and
// hands references to kernels.
//
// Client owns an admin connection to every SSD, the channels (each with a queue pair to every SSD) and
// periodic threads (keep-alives, lease renewals, newer maps, larger pools). Volume owns one opening of a
// volume. Both are host owners: not copyable, used from host threads. Kernels take VolumeRef and ChannelSet,
// small values that are valid while their owners live. Nothing here is in the I/O path.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/buffer.hpp>
#include <gnstor/client/control_plane.hpp>
#include <gnstor/gnor/volume_ref.hpp>
#include <gnstor/simt/launch.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {
class Nic;
}
namespace gnstor::gnor {
class Channel;
}

namespace gnstor::client {

struct ClientOptions {
    std::string name = "client";
    /// Lanes that will use the channels; never changed silently.
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::uint32_t channels = 0;           ///< 1 .. 127; 0: 32 for GPU lanes, 4 for CPU lanes
    std::uint32_t depth = 32;             ///< commands in flight per channel and SSD; power of two, 8 .. 256
    std::uint64_t pool_bytes = 2u << 20;  ///< registered pool of each channel; a multiple of 256 KiB
    /// Limit to which the pool doubles when lanes find it empty; 0: 4 * pool_bytes.
    std::uint64_t pool_bytes_max = 0;
    /// Which lanes share a channel; channels().shared<...>() for another rule.
    Sharing sharing = Sharing::kGrid;
    bool check_buffers = false;           ///< debug: detects pool buffers used unallocated, or freed in use
    std::uint32_t keep_alive_ms = 15000;  ///< NVMe keep-alive timeout of the admin connections
    bool scatter_to_cqe = true;           ///< responses inside completions: saves one memory access
    std::uint32_t transfer_timeout_ms = 30000;  ///< Volume::read and write: for each 16 MiB of a transfer
};

/// What an SSD reports to have counted since it was opened (SMART / Health log page, Identify Namespace). It
/// counts a command before it answers it. NVM Command Set 1.0; NVMe Base 2.0, 5.16.1.3.
struct SsdCounts {
    std::uint32_t slot;
    std::uint64_t reads, writes;  ///< commands, of all clients
    std::uint64_t media_errors;   ///< reads that met a wrong checksum
    std::uint64_t blocks_stored;  ///< blocks that hold data now
};

class Volume;

class Client {
  public:
    /// Registers `options.name`, connects through `nic` to all SSDs that answer, at least one. Lanes skip the
    /// others, as if they were broken, until reclaim(). `control` and `nic` must outlive the client.
    static Result<std::unique_ptr<Client>> connect(ControlPlane& control, rdma::Nic& nic,
                                                   const ClientOptions& options);
    /// All volumes must have been destroyed. Waits a bounded time for commands in flight, then resets the
    /// queue pairs.
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    Result<nvme::VolumeRecord> create(const CreateVolume& request);
    Result<std::unique_ptr<Volume>> open(const std::string& name, OpenMode mode);

    /// The channels, for kernels; valid while the client lives. If the calling thread uses another GPU than
    /// the client was created on, the set is empty: every call returns kWrongLanes, and the reason is logged.
    [[nodiscard]] ChannelSet channels() const;
    [[nodiscard]] gnor::Channel& channel(std::uint32_t index);
    [[nodiscard]] std::uint32_t channel_count() const;

    /// New registered memory, zeroed, for kernels and host: whole pages of at least `bytes`. Prefer it to
    /// register_buffer(): it works on every wire.
    Result<Buffer> map_buffer(std::size_t bytes);
    /// Makes `bytes` at `base` a registered buffer of every channel: kernels then read and write it without a
    /// copy. It must be host memory (simt::PinnedMemory where lanes are on a GPU), and stay valid until
    /// unregister_buffer(), which returns kBusy while commands refer to it: quiesce or reclaim, then retry.
    /// Not on the shm wire, whose node must map the memory too: use map_buffer() there.
    Result<void> register_buffer(void* base, std::size_t bytes);
    Result<void> unregister_buffer(void* base);

    /// Waits until no channel has a command in flight. Call while no kernel uses the channels.
    Result<void> quiesce(std::uint32_t timeout_ms);
    /// Repairs queue pairs in error: resets them, frees what they held, reconnects. Call while no kernel uses
    /// the channels. kIo on the shm wire once the serving process has ended: open the array again.
    Result<void> reclaim();
    /// Drops the tokens that ended kernels never waited for, and which would hold their command slots for
    /// ever; returns the number of commands. Call while no kernel uses the channels.
    Result<std::uint32_t> drop_tokens();
    /// Drops the callbacks that ended kernels left behind: they never run. Their requests continue (their
    /// buffers stay in use until quiesce or reclaim). Returns the number dropped. Call while no kernel uses
    /// the channels. Afterwards nothing that a callback points at is accessed. The destructor does it too.
    /// With CPU lanes quiesce() itself runs callbacks: call this before it if what they point at has been
    /// destroyed.
    Result<std::uint32_t> drop_callbacks();
    /// Frees the pool buffers that ended kernels did not free. Returns how many were kept because a command
    /// may still access them (quiesce or reclaim, then retry). Call while no kernel uses the channels.
    Result<std::uint32_t> free_left_buffers();
    /// Fetches the map now. A periodic task also fetches it whenever an SSD refuses the map that lanes use.
    Result<void> refresh_map();

    /// Asks the SSDs whether any of them has a volatile write cache, so that flush() matters.
    Result<bool> volatile_write_cache();
    /// Asks every SSD, in order of slot; the daemon is not involved.
    Result<std::vector<SsdCounts>> ssd_counts();

    [[nodiscard]] const ClientIdentity& identity() const;
    /// The newest map that this client has; references to older ones stay valid.
    [[nodiscard]] const ArrayView& array() const;
    [[nodiscard]] simt::LanesKind lanes() const;
    [[nodiscard]] ControlPlane& control();

  private:
    friend class Volume;
    friend class Buffer;
    struct Impl;
    explicit Client(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// One opening of a volume.
class Volume {
  public:
    /// Releases it: a writer's epoch closes, with the byte length last set.
    ~Volume();
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    [[nodiscard]] VolumeRef ref() const;
    /// As of the opening. renew() raises the epoch in ref(), not here.
    [[nodiscard]] const nvme::VolumeRecord& record() const;
    /// Length of the contents that release() records; at most the capacity.
    Result<void> set_byte_length(std::uint64_t bytes);
    /// Releases now; if it fails, it may be called again. Lanes must have finished.
    Result<void> release();
    /// Whether the lease is valid, as far as this client knows; always true for readers. Safety of writes
    /// does not depend on it: epochs guard them.
    [[nodiscard]] bool lease_held() const;
    /// Whether a write of this opening ended such that replicas may differ. Until renew(), SSDs then keep the
    /// tombstones of later trims, and commands that find no room for one wait. Updated ten times a second.
    [[nodiscard]] bool floor_is_held() const;
    /// Ends the epoch and begins the next one within this opening: no other client can open the volume in
    /// between. kPermission: another client opened it meanwhile, or the lease ended; open it again. kBusy:
    /// requests with tokens or callbacks have not ended. Any other error: the daemon did not confirm; while
    /// renewing() is true, commands of ref() may be refused until a later renew() succeeds. Refs taken before
    /// renew() are refused with Stale Epoch afterwards. Call while no kernel uses the client's channels.
    Result<void> renew();
    [[nodiscard]] bool renewing() const;

    /// Host convenience: moves whole blocks between host memory and the volume, on the client's own CPU lane
    /// and channel. Any host thread; one transfer at a time per client. The sizes of `to` and `from` are
    /// multiples of 4096 bytes. Errors name the first block that failed and its NVMe status; kTimedOut after
    /// ClientOptions::transfer_timeout_ms. Whatever the result, nothing accesses the memory after return, not
    /// even an SSD that hangs. With GPU lanes, no kernel may write the same opening during write(): kBusy if
    /// one did. read() fails if the newest version of a block is doubtful on every replica.
    Result<void> read(std::uint64_t first_block, std::span<std::byte> to);
    /// The same, but for such blocks `to` gets the newest of their older versions. Returns the number of such
    /// blocks.
    Result<std::uint64_t> read_older_too(std::uint64_t first_block, std::span<std::byte> to);
    Result<void> write(std::uint64_t first_block, std::span<const std::byte> from);

  private:
    friend class Client;
    struct Impl;
    explicit Volume(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::client
