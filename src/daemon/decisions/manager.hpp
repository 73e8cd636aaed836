// manager.hpp: the daemon's decisions: clients, volumes, leases, epochs, the term and the map. docs/array.md,
// rules 1, 2, 6, 10, 11, 15, 19.
//
// Pure logic: no threads, clocks, sockets or files. Time comes as an argument (milliseconds of a clock that
// never goes back), drives through SsdPort, durable records through RecordStore. One caller at a time
// (InProcessControlPlane adds a mutex).
//
// Invariants
//   * store, activate, in force: a change is first stored, then sent to every drive of the map. It is in
//     force, and acknowledged, once every drive has confirmed it. A change of a volume that continues to
//     exist may do without drives whose grant has ended; such a drive gets a new grant only after it has
//     taken what it missed. A change that is not in force is *pending*: the caller gets an error, and every
//     later call, tick() and start() retries it. The store's records are the truth; a pending change is never
//     withdrawn, only followed by a newer one;
//   * a revision of a record is used once: records of equal revision have equal bytes; a record's epoch never
//     goes back;
//   * at most one client holds the right to write a volume; the epoch was raised after the previous holder;
//   * a volume is opened for writing only when its replicas are known to be equal since its last writer ended
//     (manager_close.cpp);
//   * a VID is live, or retired with its last epoch. It is reused only after every drive has purged it, and
//     the new life begins above that epoch. A deletion is marked on every drive (kVolumeDeleting) before any
//     of them purges, so that a rebuild from drives never mistakes a half-purged volume for a live one;
//   * a Manager that could not store its term at the start is read-only: it uses the term, the map and the
//     records of the store, issues nothing new, and raises the term as soon as it can be stored
//     (manager_read_only.cpp);
//   * a change of who may do what is stored, then sent to the drives whose nodes authenticate hosts. A drive
//     that has not taken the newest list of hosts gets no new grant (manager_hosts.cpp);
//   * while a volume exists, the map changes only when silent drives are taken out or come back
//     (manager_out.cpp), when a spare takes the slot of a lost drive, asked or by itself, and when a slot is filled
//     (manager_replace.cpp). Nothing waits for a drive that is out; creations and deletions wait for every other.
//     The failure domains of slots, on which placement depends, never change while there is a volume.
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/decisions/rebuild.hpp"
#include "daemon/decisions/reconcile.hpp"
#include "daemon/decisions/scrub_schedule.hpp"
#include "daemon/decisions/ssd_port.hpp"
#include "daemon/records/records.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gnstor::daemon {

struct ManagerOptions {
    std::uint64_t lease_ms = 300'000;
    /// T_grant (docs/array.md, rule 3), renewed by tick() at a third of it. All daemons of an array must use
    /// the same value: a starting daemon waits this long for grants of its predecessor to end. 0: without
    /// limit, for tests.
    std::uint32_t grant_ms = 10'000;
    std::uint64_t seed = 0;  ///< seed of the volumes' hash factors
    /// Whether SSDs that are silent are taken out of the map when their grant has ended.
    bool takes_out = true;
    /// How long a slot is out before a spare takes it without the operator (docs/array.md, rule 10). 0: never.
    std::uint64_t spare_after_ms = 600'000;
    /// Time from the end of a pass of the scrub to the next one. 0: only start_scrub() begins one.
    std::uint64_t scrub_every_ms = 7ull * 86'400'000;
    /// What the scrub reads from all SSDs together, in bytes a second.
    std::uint64_t scrub_bytes_per_s = 64ull << 20;
    std::vector<std::string> warnings{};  ///< found while opening the SSDs; copied to the StartReport
};

/// What start() found and did.
struct StartReport {
    bool new_array = false;      ///< neither the store nor any drive held records
    bool rebuilt = false;        ///< the store was empty, the drives were not
    std::uint32_t adopted = 0;   ///< records adopted from drives because they were newer or unknown
    std::uint32_t repaired = 0;  ///< commands sent to drives that lagged
    std::vector<std::string> warnings;
};

struct TickReport {
    std::uint32_t expired = 0;  ///< leases that ended
    std::uint32_t settled = 0;  ///< pending changes that came into force
    std::uint32_t pending = 0;  ///< changes that still wait for a drive
};

/// When a drive's grant has certainly ended, by this daemon's clock: T_grant plus the possible clock
/// difference, counted from the first reading of the clock after the grant was sent. The drive counts from
/// its earlier GRANT ASK, so the bound is never too early. If observe_time() comes late, the bound is only
/// longer.
struct GrantBound {
    /// Granted since the clock was last read; initially true: an unknown drive may hold one.
    bool open = true;
    std::uint64_t ends_ms = 0;
};

class Manager {
  public:
    /// Takes over the array: loads the records, raises the term, reconciles store and drives, activates the
    /// map. `store` and `ports` must outlive the Manager. Fails if that would risk data; the error says what
    /// to bring back.
    static Result<std::unique_ptr<Manager>> start(RecordStore& store, std::vector<SsdPort*> ports,
                                                  const ManagerOptions& options, std::uint64_t now_ms);

    /// Returns the id of a client name, and gives a new name one. kPermission: the client was removed.
    Result<client::ClientIdentity> register_client(const std::string& name);
    /// The same, but lets a removed client in again, with its id and another generation.
    Result<client::ClientAccess> add_client(const std::string& name);
    /// Ends what a client may do: its keys, its token, its leases. Its volumes stay, and so do its name and
    /// id.
    Result<void> remove_client(const std::string& name, std::uint64_t now_ms);
    /// Gives a client another generation, and so other keys and another token.
    Result<client::ClientAccess> rotate_client(const std::string& name, std::uint64_t now_ms);
    /// The keys of a client with every drive whose node authenticates hosts.
    Result<std::vector<client::SsdKeys>> ssd_keys(nvme::ClientId client);
    /// nullopt: there is no such client, or it was removed.
    [[nodiscard]] std::optional<ClientInfo> client_of(nvme::ClientId client) const;
    Result<client::ArrayView> array() const;
    Result<nvme::VolumeRecord> create_volume(nvme::ClientId client, const client::CreateVolume& request);
    Result<client::OpenedVolume> open_volume(nvme::ClientId client, const std::string& name,
                                             client::OpenMode mode, std::uint64_t now_ms);
    Result<std::uint64_t> renew_lease(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                      std::uint64_t now_ms);
    Result<void> release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                std::uint64_t byte_length);
    Result<void> share_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader);
    Result<void> unshare_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader);
    Result<void> delete_volume(nvme::ClientId owner, const std::string& name, std::uint64_t now_ms);
    [[nodiscard]] std::vector<nvme::VolumeRecord> list_volumes() const;
    /// Whether open_volume() failed because the volume's replicas are still being compared, and no SSD is waited for. Another
    /// call then continues the comparison.
    [[nodiscard]] bool is_comparing(const std::string& name) const;

    /// Gives the slot of an SSD that is lost to a spare that is empty, large enough and of a fitting failure domain.
    /// The spare is then filled (rebuild_some()); asked again meanwhile, nothing changes. If the slot is out and its
    /// SSD is back, the SSD gets its slot again and is filled with what it missed. kBusy: the lost SSD may still hold
    /// a grant. kNotFound: no such slot, or no spare. kState, kNoSpace: why it may not be replaced, or by none of the
    /// spares.
    Result<void> replace_ssd(std::uint32_t slot, std::uint64_t now_ms);
    /// Takes an SSD that was found after the start as a spare, or as the SSD of a slot that is out. `port` must outlive
    /// the Manager. kExists: the SSD is known. kState: it has a slot, or belongs to another array; restart gnstord, or
    /// format it. kIo, kTimedOut: no answer.
    Result<void> add_spare(SsdPort& port, std::uint64_t now_ms);
    /// Begins a pass of the scrub over all volumes, unless one is under way. kState: another daemon has taken over.
    Result<void> start_scrub(std::uint64_t now_ms);
    /// Sends up to so many commands: those that compare the replicas of volumes without a writer come first, then those
    /// that fill a slot, then the scrub's. True: there
    /// is more to do at once. False: there is nothing to do, or an SSD must be waited for; call again about a second later.
    bool copy_some(std::uint32_t commands);

    /// Ends expired leases, renews grants and retries pending changes. Call about once a second.
    TickReport tick(std::uint64_t now_ms);

    [[nodiscard]] const StartReport& start_report() const { return report_; }
    [[nodiscard]] ArrayInfo info(std::uint64_t now_ms) const;
    [[nodiscard]] std::uint64_t term() const { return records_.term; }
    /// kState if an SSD of the map is missing, or its store is an older copy: volumes can then be read, but
    /// none can be created or deleted. `refused`: the refused action, as a sentence ("... was not created").
    Result<void> check_none_missing(const std::string& refused);
    /// Why no change can be stored now; empty: as far as known, changes can be stored.
    [[nodiscard]] std::string read_only() const;

  private:
    static constexpr std::uint32_t kNoSlot = kSpareSlot;
    struct Drive {
        SsdPort* port;
        SsdIdentity identity;
        std::uint32_t slot = kNoSlot;  ///< kNoSlot: a spare, out, or an older copy
        /// The slot that it comes back to, if it is out: it gets no map and no grant until then.
        std::uint32_t out_slot = kNoSlot;
        bool listed = false;    ///< it listed its records at start()
        bool known = false;     ///< it has accepted a command of some daemon
        bool serves = false;    ///< it took the map when it was last asked
        std::string trouble{};  ///< why its last command failed; empty: it did not
        GrantBound grant{};     ///< when the grant that it may hold has ended
        /// Why it refuses the newest records of volumes.
        std::map<nvme::VolumeId, std::string> refused{};
        /// Changes in force without it: to be sent before it gets a grant.
        std::set<nvme::VolumeId> behind{};
        /// Version of the list of hosts that its node has taken on its port's present connection.
        std::optional<std::uint64_t> hosts{};
        bool knows_out = true;  ///< its firmware takes maps with slots that are out
        /// The end of the time that it has to take its first map in its slot, before it is taken out.
        std::uint64_t to_serve_ms = 0;
        std::uint64_t next_back_ms = 0;  ///< if it is out: not taken back by itself before
        std::string not_back{};          ///< why it was not taken back when that was last tried
        bool admitted = false;    ///< the age of its store was checked on its port's present connection
        std::uint64_t taken = 0;  ///< the newest term of this daemon that it has stored
        std::string older{};      ///< not empty: its store is an older copy of itself; why
        std::uint32_t older_slot = kNoSlot;  ///< the slot that it would fill then
    };
    struct Live {
        bool in_force = false;  ///< its newest record is on every drive
        std::uint64_t lease_end_ms = 0;
        /// Without a writer: the client that is opening it again, and has had it; until `lease_end_ms` no other may.
        nvme::ClientId next_writer = 0;
        /// The epoch since whose end its replicas are known to be equal.
        nvme::Epoch equal_epoch = 0;
        /// Except for so many ranges, which a drive refused: the next comparison looks at every block.
        std::size_t ranges_left = 0;
    };
    struct Takeover;  // manager_start.cpp

    Manager(RecordStore& store, const ManagerOptions& options)
        : store_(store), options_(options), scrub_({options.scrub_every_ms, options.scrub_bytes_per_s}) {}

    // manager_start.cpp
    Result<void> take_over(std::vector<SsdPort*> ports, std::uint64_t now_ms);
    [[nodiscard]] Result<std::uint64_t> next_term(const Takeover& t);
    Result<void> list_drives(std::vector<SsdPort*> ports, Takeover& t);
    [[nodiscard]] Result<void> check_none_is_new(const Takeover& t) const;
    [[nodiscard]] Result<void> check_one_array(const Takeover& t) const;
    void adopt_map(Takeover& t);
    Result<void> merge_records(Takeover& t);
    Result<void> plan_map(Takeover& t);
    [[nodiscard]] Result<void> check_all_here(const Takeover& t) const;
    Result<void> map_from_ports(Takeover& t, std::uint32_t version);
    [[nodiscard]] Result<void> label_domains(placement::ArrayMap& map) const;
    void learn_clients(Takeover& t);
    std::uint32_t take_slots();  ///< assigns the map's slots by UUID; returns how many drives have one
    void reconcile(Takeover& t, std::uint64_t now_ms);
    void settle_live(const Takeover& t);
    void finish_start();

    // manager_older_ssd.cpp
    [[nodiscard]] std::uint32_t slot_of(const SsdUuid& uuid) const;  ///< kNoSlot: no slot of the map has it
    [[nodiscard]] bool in_map(const SsdUuid& uuid) const { return slot_of(uuid) != kNoSlot; }
    [[nodiscard]] bool tells_volumes(const SsdUuid& uuid) const;
    [[nodiscard]] bool holds_data(const SsdUuid& uuid) const;
    void check_age(Drive& drive, std::uint64_t term);
    void set_older(Drive& drive, const std::string& why);
    void find_older(const Takeover& t);
    void drop_deleted(Takeover& t);
    void forgive_older();
    [[nodiscard]] Result<void> drop_renamed(Takeover& t);
    void forget_deleted(Takeover& t, nvme::VolumeId id, std::string why);
    [[nodiscard]] Result<void> admit(Drive& drive);
    [[nodiscard]] bool may_be_written() const;
    void put_taken(Change& change) const;
    void note_taken();
    [[nodiscard]] bool raise_is_due() const;
    void raise_term();

    // manager_read_only.cpp
    Result<void> start_read_only(Takeover& t, const Error& cause, std::uint64_t now_ms);
    [[nodiscard]] Result<void> check_not_behind(const Takeover& t, const Error& cause) const;
    /// Tries to store; true if changes can be stored (again).
    bool try_store(std::uint64_t now_ms);
    void become_writable(std::uint64_t now_ms);

    // manager_activate.cpp
    Result<void> commit(const Change& change);
    bool note_led_elsewhere(const Result<void>& store_says);
    Result<void> reload();  ///< reads the store again after a save whose outcome is unknown
    Result<void> sure();    ///< makes sure that records_ equals the store, before any decision is based on it
    Result<void> activate(nvme::VolumeId volume);
    Result<void> activate_map();
    [[nodiscard]] std::vector<std::uint32_t> missing_slots()
        const;  ///< slots of the map, but for those that are out, whose drive was not found at the start
    Result<void> grant(Drive& drive);  ///< MAP SET
    template <class Command>
    Result<void> command(Drive& drive, Command send_it);
    Result<void> put_record(Drive& drive, const nvme::VolumeRecord& record);
    Result<void> set_map(Drive& drive);
    [[nodiscard]] nvme::MapSet map_for(const Drive& drive) const;
    Result<void> give_map(Drive& drive, const nvme::MapSet& set, std::uint32_t nonce);
    Result<void> remove_volume(Drive& drive, nvme::VolumeId volume);
    Result<void> catch_up(Drive& drive);  ///< sends all changes in force that it missed
    void note_superseded(const Error& e);
    Result<void> finish_delete(nvme::VolumeId volume);
    bool undo_creation(nvme::VolumeId volume, Errc refusal);  ///< of a volume that a drive will never accept
    Result<void> send(Drive& drive, const nvme::VolumeRecord& record);
    Result<void> change_volume(nvme::VolumeRecord record);  ///< raises the revision, stores, activates
    Result<void> close_epoch(nvme::VolumeId volume, std::uint64_t byte_length);
    Drive* drive_in(std::uint32_t slot);
    [[nodiscard]] const Drive* older_in(std::uint32_t slot) const;
    [[nodiscard]] Error missing_error(std::uint32_t slot) const;
    Error pending_error(const std::string& what, const Error& cause) const;

    // manager_close.cpp
    [[nodiscard]] bool is_equal(const nvme::VolumeRecord& record) const;
    [[nodiscard]] bool may_compare(const nvme::VolumeRecord& record) const;
    Reconcile::Step compare(nvme::VolumeId volume, std::uint32_t commands);
    void end_comparison(nvme::VolumeId volume);
    bool compare_some(std::uint32_t commands);
    Result<void> close_for(nvme::VolumeId volume, nvme::ClientId client, std::uint64_t now_ms);
    [[nodiscard]] const Drive* behind_in(nvme::VolumeId volume) const;
    Result<void> make_equal(nvme::VolumeId volume);
    [[nodiscard]] Error unequal_error(const nvme::VolumeRecord& record) const;
    [[nodiscard]] SsdCopyPort copy_port() const;

    // manager_replace.cpp
    bool rebuild_some(std::uint32_t commands);
    Result<void> give_slot(std::uint32_t slot);  ///< replace_ssd(), as of the last observe_time()
    [[nodiscard]] Result<void> check_lost(std::uint32_t slot);
    [[nodiscard]] Result<void> check_donors(std::uint32_t slot);
    [[nodiscard]] Result<void> check_spare(Drive& spare, std::uint32_t slot);
    [[nodiscard]] std::uint64_t blocks_for(std::uint32_t slot) const;
    [[nodiscard]] Result<void> check_domain(const Drive& spare, std::uint32_t slot);
    Result<bool> answers(Drive& drive);
    void follow_map();
    Result<void> settle_replacement(std::uint32_t slot);
    Result<void> ask_again(std::uint32_t slot);
    [[nodiscard]] Error no_spare(std::uint32_t slot) const;
    [[nodiscard]] Result<void> check_version_left() const;
    [[nodiscard]] std::uint32_t rebuilding_slot() const;  ///< kNoSlot: none
    void end_rebuild(std::uint32_t slot);
    [[nodiscard]] std::optional<RebuildInfo> rebuild_info() const;
    void add_slot_warnings(ArrayInfo& info) const;            // manager_info.cpp
    [[nodiscard]] SsdInfo info_of(const Drive& drive) const;  // likewise

    // manager_out.cpp
    [[nodiscard]] bool is_out(std::uint32_t slot) const;
    [[nodiscard]] bool is_out(const SsdUuid& uuid) const;
    [[nodiscard]] bool any_out() const;
    [[nodiscard]] std::vector<std::uint32_t> silent_slots();
    [[nodiscard]] Result<void> check_redundant(const std::vector<std::uint32_t>& silent) const;
    [[nodiscard]] bool written_by_client() const;
    bool take_out_silent();  ///< true: it changed the map
    void take_back_answering();
    void use_spares();
    [[nodiscard]] bool has_spare() const;
    [[nodiscard]] const GrantBound& bound_of(std::uint32_t slot);
    bool is_back(Drive& drive);
    Drive* returning_to(std::uint32_t slot);
    Result<void> prepare_back(Drive& drive);
    Result<void> take_back(Drive& drive);
    Result<void> follow_volumes(Drive& drive);
    Result<void> raise_above(const nvme::VolumeRecord& seen);

    // manager_scrub.cpp
    bool scrub_some(std::uint32_t commands);
    [[nodiscard]] bool may_scrub(const nvme::VolumeRecord& record) const;
    void tell_of_scrub() const;  ///< a pass has ended

    // manager_grants.cpp (with tick())
    void observe_time(std::uint64_t now_ms);
    bool leads();
    void keep_grants(std::uint64_t now_ms);
    [[nodiscard]] bool may_keep_grants() const;
    [[nodiscard]] bool may_hold_grant(const GrantBound& bound) const;
    /// A third of T_grant has passed (docs/array.md, rule 3).
    [[nodiscard]] bool grants_due(std::uint64_t now_ms) const;

    // manager_clients.cpp
    [[nodiscard]] Result<nvme::ClientId> client_named(const std::string& name) const;
    [[nodiscard]] Result<nvme::ClientId> free_client_id(const std::string& name) const;
    [[nodiscard]] client::ClientIdentity identity_of(nvme::ClientId client) const;
    [[nodiscard]] bool is_removed(nvme::ClientId client) const;
    [[nodiscard]] Result<void> check_client(nvme::ClientId client) const;
    [[nodiscard]] std::string client_name(nvme::ClientId client) const;
    [[nodiscard]] Result<void> check_term_stored(const std::string& name) const;
    Result<void> put_client(nvme::ClientId client, ClientRecord record);  ///< under its next generation
    Result<void> close_epochs_of(nvme::ClientId client);

    // manager_hosts.cpp
    [[nodiscard]] std::uint64_t hosts_version() const;
    [[nodiscard]] bool authenticates() const;  ///< some drive's node does
    Result<void> send_hosts(Drive& drive);     ///< nothing, if it has taken the newest list
    Result<void> tell_hosts(Drive& drive);     ///< the same, as a command of its own; manager_activate.cpp
    Result<void> settle_hosts();               ///< sends the list; ok: it is in force
    [[nodiscard]] bool hosts_in_force() const;

    // manager_unshare.cpp
    [[nodiscard]] Result<void> check_unshare(const nvme::VolumeRecord& record, nvme::ClientId reader) const;

    // manager_volumes.cpp
    Result<nvme::VolumeRecord*> find(const std::string& name);
    Result<void> check_create(const client::CreateVolume& request) const;
    Result<nvme::VolumeId> free_volume_id() const;
    Result<nvme::VolumeRecord> new_record(nvme::ClientId owner, const client::CreateVolume& request) const;
    Result<nvme::VolumeRecord> create_again(nvme::VolumeRecord there, nvme::ClientId client,
                                            const client::CreateVolume& request);
    /// The client that holds it for writing, or is opening it again; 0: none.
    [[nodiscard]] nvme::ClientId holder_of(const nvme::VolumeRecord& record) const;
    [[nodiscard]] bool held_by_other(const nvme::VolumeRecord& record, nvme::ClientId client,
                                     std::uint64_t now_ms) const;
    [[nodiscard]] std::uint32_t slots_in_use() const;
    /// Whether clients may see it: it has been in force, and is not being deleted.
    [[nodiscard]] bool listed(const nvme::VolumeRecord& record) const;

    RecordStore& store_;
    const ManagerOptions options_;
    Records records_;
    std::map<nvme::VolumeId, Live> live_;
    std::vector<Drive> drives_;
    std::set<nvme::ClientId> rotating_;  ///< rotations not in force yet; asking again makes no keys
    ScrubSchedule scrub_;
    std::optional<Rebuild> rebuild_;  ///< of the slot that is rebuilding, once its map is in force
    std::map<nvme::VolumeId, Reconcile> comparing_;  ///< volumes without a writer, while they are compared
    std::set<nvme::VolumeId>
        to_compare_;                    ///< volumes whose writer has ended, or whose last writer is unknown
    nvme::VolumeId compared_last_ = 0;  ///< of to_compare_, so that each has its turn
    /// Of rebuild_, when all is copied: the term that the SSD takes before it becomes *in*. 0: not yet.
    std::uint64_t filled_term_ = 0;
    bool map_in_force_ = false;     ///< every drive confirmed the map when last asked
    nvme::MapVersion told_ = 0;     ///< the newest version that has been in force: clients may have it
    std::uint64_t granted_ms_ = 0;  ///< when the SSDs last got their grants
    std::uint64_t now_ms_ = 0;      ///< the newest time passed by a caller
    GrantBound before_start_;       ///< of missing SSDs: their grants from the previous daemon
    bool term_taken_ = false;       ///< an SSD of the map has taken a term of this daemon
    bool started_ = false;          ///< take_over() has ended
    bool unsure_ = false;           ///< a save failed, and the store was not read again since
    std::string read_only_;         ///< not empty: why the term has not been stored since the start
    Errc read_only_code_ = Errc::kNoSpace;
    std::string save_trouble_;        ///< why the last save failed; empty: it did not
    bool raise_due_ = false;          ///< an SSD has reconnected since the term was raised
    std::uint64_t written_term_ = 0;  ///< the newest term under which a volume was changed
    std::uint64_t raised_ms_ = 0;     ///< when raise_term() last raised it
    std::string out_trouble_;         ///< why silent SSDs were not taken out; empty: there is none
    std::map<std::uint32_t, std::uint64_t>
        out_since_ms_;                 ///< slots that are out, as far as this daemon knows
    std::uint64_t next_spare_ms_ = 0;  ///< no slot is given to a spare before, because that has failed
    std::string spare_trouble_;  ///< why no spare took a slot that has been out for long; empty: none should
    std::string superseded_;     ///< not empty: another daemon took over, so nothing may be changed
    StartReport report_;
};

/// Whether `client` may read, or write, a volume.
[[nodiscard]] bool may_read(const nvme::VolumeRecord& record, nvme::ClientId client);
[[nodiscard]] bool may_write(const nvme::VolumeRecord& record, nvme::ClientId client);

}  // namespace gnstor::daemon
