// client.hpp: libgnstor on the host. Opens volumes, sets channels up, keeps leases and connections alive;
// hands references to kernels.
//
// Client owns an admin connection to every SSD, the channels (each with a queue pair to every SSD) and a
// proxy thread (keep-alives, lease renewals, newer maps, larger pools). Volume owns one opening of a volume.
// Both are host owners: not copyable, used from host threads; what kernels take are VolumeRef and ChannelSet,
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
class SoftNic;
}
namespace gnstor::gnor {
class Channel;
}

namespace gnstor::client {

struct ClientOptions {
    std::string name = "client";
    simt::LanesKind lanes = simt::LanesKind::kCpu;  ///< who will use the channels; never changed silently
    std::uint32_t channels = 0;                     ///< 1 .. 127; 0: 32 for GPU lanes, 4 for CPU lanes
    std::uint32_t depth = 32;             ///< commands under way per channel and SSD; power of two, 8 .. 256
    std::uint64_t pool_bytes = 2u << 20;  ///< registered pool a channel; a multiple of 256 KiB
    std::uint64_t pool_bytes_max = 0;  ///< to which it doubles when lanes find it empty; 0: 4 times the above
    Sharing sharing = Sharing::kGrid;  ///< which lanes share a channel: channels().shared<...>() for others
    bool check_buffers = false;        ///< debug: pool buffers that are used unallocated, or freed in use
    std::uint32_t keep_alive_ms = 15000;        ///< NVMe keep-alive timeout of the admin connections
    bool scatter_to_cqe = true;                 ///< responses inside completions: one trip less
    std::uint32_t transfer_timeout_ms = 30000;  ///< Volume::read and write: for each 16 MiB of a transfer
};

/// What an SSD counted since it was opened, by its own word (SMART / Health log page, Identify Namespace).
/// It counts a command before it answers it. NVM Command Set 1.0; NVMe Base 2.0, 5.16.1.3.
struct SsdCounts {
    std::uint32_t slot;
    std::uint64_t reads, writes;  ///< commands, of all clients
    std::uint64_t media_errors;   ///< reads that met a wrong checksum
    std::uint64_t blocks_stored;  ///< that hold data now
};

class Volume;

class Client {
  public:
    /// Registers `options.name`, connects through `nic` to all SSDs that answer, at least one; lanes pass the
    /// others by, as broken ones, until reclaim(). `control` and `nic` must outlive the client.
    static Result<std::unique_ptr<Client>> connect(ControlPlane& control, rdma::SoftNic& nic,
                                                   const ClientOptions& options);
    /// Volumes must be gone. Commands still under way are waited for, bounded; then queue pairs are reset.
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    Result<nvme::VolumeRecord> create(const CreateVolume& request);
    Result<std::unique_ptr<Volume>> open(const std::string& name, OpenMode mode);

    /// What kernels take. Valid while the client lives. Empty (every call says kWrongLanes, the reason is
    /// logged) where the calling thread uses another GPU than the client was made on.
    [[nodiscard]] ChannelSet channels() const;
    [[nodiscard]] gnor::Channel& channel(std::uint32_t index);
    [[nodiscard]] std::uint32_t channel_count() const;

    /// New registered memory, zeroed, for kernels and host: whole pages of at least `bytes`. What a program
    /// should use where it has the choice; it works on every wire.
    Result<Buffer> map_buffer(std::size_t bytes);
    /// Makes `bytes` at `base` a registered buffer of every channel: kernels then read and write it without a
    /// copy. The memory must be host memory (simt::PinnedMemory where lanes are on a GPU), and stay until
    /// unregister_buffer, which says kBusy while commands name it: quiesce, or reclaim, then try again. Not
    /// on the shm wire, whose node has to map it, too: map_buffer().
    Result<void> register_buffer(void* base, std::size_t bytes);
    Result<void> unregister_buffer(void* base);

    /// Waits until no channel has a command under way. Call with no kernel using the channels.
    Result<void> quiesce(std::uint32_t timeout_ms);
    /// Brings queue pairs in error back: resets them, frees what they held, reconnects. Call with no kernel
    /// using the channels. kIo on the shm wire once its process has ended: open the array anew.
    Result<void> reclaim();
    /// Gives up the tokens that ended kernels left behind, which hold command slots for ever: returns of how
    /// many commands. Call with no kernel using the channels.
    Result<std::uint32_t> drop_tokens();
    /// Gives up the callbacks that ended kernels left behind: they never run, their requests go on (their
    /// buffers stay in use until quiesce or reclaim). Returns how many. Call with no kernel using the
    /// channels. The destructor does it too, and nothing that a callback points at is touched after it. With
    /// CPU lanes quiesce runs callbacks itself: call this before, where what they point at is gone.
    Result<std::uint32_t> drop_callbacks();
    /// Gives back the pool buffers that ended kernels did not free; returns how many a command may still
    /// touch: those stay (quiesce or reclaim, then again). Call with no kernel using the channels.
    Result<std::uint32_t> free_left_buffers();
    /// Fetches the map now. When an SSD refuses the one that lanes have, the proxy does it by itself.
    Result<void> refresh_map();

    /// Asks the SSDs: whether any of them has a volatile write cache, so that flush() matters.
    Result<bool> volatile_write_cache();
    /// Asks every SSD, in order of slot. The daemon is not asked.
    Result<std::vector<SsdCounts>> ssd_counts();

    [[nodiscard]] const ClientIdentity& identity() const;
    /// The newest that this client knows; a reference to an older one stays valid.
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
    /// Releases it: writers' epochs close, with the byte length last set.
    ~Volume();
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    [[nodiscard]] VolumeRef ref() const;
    /// As of the opening: renew() raises the epoch, which ref() knows.
    [[nodiscard]] const nvme::VolumeRecord& record() const;
    [[nodiscard]] OpenMode mode() const;
    /// What release records as the length of the contents; at most the capacity.
    Result<void> set_byte_length(std::uint64_t bytes);
    /// Releases now, and says whether that worked; if not, it may be called again. Lanes must be done.
    Result<void> release();
    /// Whether the lease still stands, as far as this side knows; readers: always. Epochs make writing safe
    /// regardless.
    [[nodiscard]] bool lease_held() const;
    /// Whether a write of this opening ended so that replicas may differ by it: SSDs keep what they remember
    /// of trims since then, and what has no room for it waits. renew() ends that. Looked at ten times a
    /// second.
    [[nodiscard]] bool floor_is_held() const;
    /// Ends the epoch and begins the next one, in one opening: nobody else can have it in between.
    /// kPermission: somebody had it since, or the lease is over; open it again. kBusy: requests with tokens
    /// or callbacks have not ended. Any other error: the daemon did not say that it is done; where renewing()
    /// says so, what ref() gives may be refused until a later renew() has worked. Refs of before are refused
    /// with Stale Epoch afterwards. Call with no kernel using the client's channels.
    Result<void> renew();
    [[nodiscard]] bool renewing() const;

    /// Host convenience: moves whole blocks between host memory and the volume, on the client's own CPU lane
    /// and channel. Any host thread; one transfer of a client at a time. `to` and `from` are a multiple of
    /// 4096 bytes long. Errors name the first block that failed and its NVMe status; kTimedOut after
    /// ClientOptions::transfer_timeout_ms. Whatever the result, on return nothing touches the memory any
    /// more, not even an SSD that hangs. With GPU lanes, write() wants no kernel writing the same opening:
    /// kBusy if one did.
    /// A block whose newest version is doubtful on every replica makes an error of read().
    Result<void> read(std::uint64_t first_block, std::span<std::byte> to);
    /// The same, but of such blocks `to` gets the newest of their older versions. Returns how many they are.
    Result<std::uint64_t> read_older_too(std::uint64_t first_block, std::span<std::byte> to);
    Result<void> write(std::uint64_t first_block, std::span<const std::byte> from);

  private:
    friend class Client;
    struct Impl;
    explicit Volume(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::client
