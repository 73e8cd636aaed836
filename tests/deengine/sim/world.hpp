// world.hpp: one simulated history: a drive, its clients, the oracle, and the cuts.
//
// A step sends a command, polls, or breaks something; before every flash operation and every store of the
// drive's state an image may be taken as a cut would leave it, mounted as another drive and compared with the
// oracle (and cut again while it recovers). Some cuts are for good: the history goes on from the image. An
// engine cannot be left in the middle of a call, so after such a cut the call runs to its end with nobody
// listening. The first violation ends the history: failure() says what, steps_done() where. Deterministic;
// one thread.
// Bodies: world.cpp (steps, answers), clients.cpp (commands), cuts.cpp (images, comparison, reboots), rot.cpp
// (pages that go bad), lost_records.cpp (records that are lost), full_disk.cpp (room below the flash).
#pragma once

#include "deengine/sim/config.hpp"
#include "deengine/sim/drive.hpp"
#include "deengine/sim/oracle.hpp"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::deengine::sim {

struct SimCounters {
    std::uint64_t operations = 0, commands = 0, reads = 0, blocks_compared = 0, refusals = 0, full = 0,
                  busy = 0, cuts = 0, recoveries = 0, cuts_in_recovery = 0, crashes = 0, closes = 0, torn = 0,
                  lost = 0, programs = 0, erases = 0, programs_failed = 0, erases_failed = 0, rotten = 0,
                  rotten_young = 0, deletions = 0, media_errors = 0, doubts = 0, suspensions = 0,
                  mounts_refused = 0, forgiven = 0, superseded = 0, audits = 0, syncs_failed = 0,
                  collected = 0, checkpoints = 0, displaced = 0, displaced_in_slices = 0, tombstones_full = 0,
                  groups_aged = 0, long_idles = 0, kills_first = 0, strangers = 0, grants_ended = 0,
                  states_rotten = 0, rot_as_zeroes = 0, losses_accepted = 0, blocks_lost = 0,
                  records_lost = 0, disks_full = 0, mounts_waiting = 0, settled = 0;
    void add(const SimCounters& o);
};

/// A command as a client sent it.
struct Sent {
    nvme::VolumeId vid = 0;
    std::uint64_t life = 0;
    nvme::IoOpcode opcode{};
    std::optional<nvme::ClientId> from;  ///< who sends it, if not the client that it names
    nvme::IoFields fields;
    std::vector<nvme::DsmRange> ranges;
    struct Target {
        nvme::BlockAddress vba;
        WriteOrder order;
        ContentId content;
    };
    std::vector<Target> targets;  ///< versions that it brings
    std::vector<std::byte> data;
    std::optional<nvme::Status> refusal;  ///< it must be refused with this
    std::uint64_t tag = 0;
    bool late = false;  ///< sent before, or by an opening that is over: may be refused
    std::map<std::uint64_t, WriteOrder> flushes;  ///< what its answer makes durable, by key
};

/// Whether a recovery of this image is bound to map the page: it alone holds the newest version of its block
/// that was ever sent, and that was promised.
[[nodiscard]] bool must_be_mapped(const Oracle& oracle, const Medium& image, PageNumber p);

class World {
  public:
    explicit World(const SimConfig& config);

    /// All steps, or until something is wrong.
    void run();
    /// One command of a script instead of a step (enumeration).
    void begin();
    void deliver(Sent command);
    void idle(std::uint32_t polls);
    void delete_volume(nvme::VolumeId vid);
    void add_volume(nvme::VolumeId vid);
    void end();
    /// In thousand flash operations, from now on.
    void set_cuts(std::uint32_t permille) { config_.cuts = permille; }
    /// Looks at every class of image of a cut right now.
    void cut_now();

    [[nodiscard]] Sent make_write(nvme::VolumeId vid, nvme::BlockAddress first, std::uint32_t blocks,
                                  std::uint64_t sequence);
    [[nodiscard]] Sent make_zero(nvme::VolumeId vid, nvme::BlockAddress first, std::uint32_t blocks,
                                 std::uint64_t sequence);
    [[nodiscard]] Sent make_trim(nvme::VolumeId vid, std::vector<nvme::DsmRange> ranges,
                                 std::uint64_t sequence);
    [[nodiscard]] Sent make_flush(nvme::VolumeId vid);

    [[nodiscard]] bool failed() const { return !failure_.empty(); }
    [[nodiscard]] const std::string& failure() const { return failure_; }
    [[nodiscard]] std::uint64_t steps_done() const { return step_; }
    [[nodiscard]] const SimCounters& counters() const { return counters_; }
    [[nodiscard]] const std::deque<std::string>& trace() const { return trace_; }

    static constexpr std::uint32_t kPollsMax = 5000;  ///< until everything is answered
    static constexpr nvme::BlockAddress kProbeBlock = 4000;
    static constexpr std::uint64_t kCapacity = 4096;
    static constexpr nvme::ClientId kReader = 77;     ///< may read every volume that not everybody may
    static constexpr nvme::ClientId kStranger = 666;  ///< is named nowhere

  private:
    // world.cpp
    void step();
    void complete(std::uint64_t tag, nvme::Status status, std::uint32_t dw0);
    void completed_change(Sent& s, nvme::Status status);
    void completed_read(const Sent& s, nvme::Status status);
    bool may_be_refused(const Sent& s, nvme::Status status);
    [[nodiscard]] bool is_full(const Sent& s) const;
    void note_drive();
    void fail(std::string what);
    void note(std::string what);

    // clients.cpp
    void client_step(std::uint64_t dice);
    void make_ready(nvme::VolumeId vid);
    void send_ready(nvme::VolumeId vid);
    void send_again(nvme::VolumeId vid);
    void send_read(nvme::VolumeId vid);
    void send_refused(nvme::VolumeId vid);
    void send_floor(nvme::VolumeId vid);
    void admin_step();
    void reopen(nvme::VolumeId vid);
    void change_admin(PendingAdmin change);
    void took_admin();
    void new_map();
    [[nodiscard]] nvme::VolumeId pick_volume();
    [[nodiscard]] nvme::BlockAddress pick_block(std::uint32_t& blocks);
    [[nodiscard]] Sent base(nvme::VolumeId vid, nvme::IoOpcode opcode);
    [[nodiscard]] nvme::VolumeRecord new_record(nvme::VolumeId vid);
    void target(Sent& s, bool data);
    void refill(Sent& s);

    // strangers.cpp
    void stranger_step(nvme::VolumeId vid);
    void send_stranger(nvme::VolumeId vid, std::uint64_t which);
    void send_trim_of_same_order(nvme::VolumeId vid);
    void refused_admin(std::uint64_t which);
    void expect_refusal(const Answer& answer, nvme::Status status, const char* what);
    void raise_term();
    void rot_state();
    void idle_long();
    void renew_grant();
    void took_map(std::uint64_t asked_ns);
    [[nodiscard]] bool grant_ended() const;
    void suspend();
    [[nodiscard]] bool owns(const nvme::VolumeRecord& record, nvme::BlockAddress block) const;
    void expect_by_rights(Sent& s);

    // rot.cpp
    void rot();
    void rot_checkpoint();
    void rot_lonely_record();
    void rot_moving();
    bool rot_page(PageNumber p);
    void damage_torn_blocks();
    void forgive_lost_records(const Medium& image);
    void break_syncs();

    // full_disk.cpp
    void fill_or_empty_disk();
    void check_disk_with_room();
    void note_settled();
    void note_boot(Drive& drive, const Medium& medium);

    // lost_records.cpp
    void lose_records();
    bool lose_from(PageNumber page, PageNumber end, const char* what);
    [[nodiscard]] static std::map<PageNumber, PageOob> bad_records(const Medium& image);
    [[nodiscard]] bool may_lose_records(const Medium& image) const;

    // cuts.cpp
    void boot(bool first);
    void hook(Medium& medium, Metadata& metadata, std::uint32_t depth);
    void at_operation(Medium& medium, const Metadata& metadata, std::uint32_t depth,
                      std::span<const std::byte> new_blob);
    void look(const Medium& medium, const std::vector<std::byte>& blob, std::uint32_t depth,
              const Medium::Fates& fates);
    void check_image(std::unique_ptr<Medium> image, const std::vector<std::byte>& blob, std::uint32_t depth);
    /// Of each block the version that was shown; none: its read failed.
    using Shown = std::vector<std::optional<WriteOrder>>;
    /// Compares everything. `settle`: what is shown becomes what is known. `shown`: the versions, to compare
    /// a second time.
    bool compare(Drive& drive, bool after_cut, bool settle, Shown* shown);
    bool compare_block(Drive& drive, nvme::VolumeId vid, const nvme::VolumeRecord& record,
                       nvme::BlockAddress vba, const BlockState& block, bool after_cut,
                       const Version** version);
    bool compare_older(Drive& drive, nvme::VolumeId vid, const nvme::VolumeRecord& record,
                       nvme::BlockAddress vba, const BlockState& block, bool after_cut,
                       const Version** version);
    bool probe(Drive& drive);
    [[nodiscard]] std::unique_ptr<Medium> crash_image(const Medium& medium);
    void reboot();
    void close_and_boot();
    [[nodiscard]] Medium::Fates draw_fates(SplitMix64& random) const;
    [[nodiscard]] std::vector<Medium::Fates> torn_classes(const Medium& medium) const;
    [[nodiscard]] nvme::IoFields read_fields(const nvme::VolumeRecord& record, nvme::BlockAddress vba) const;
    bool mount(Medium& medium, Drive& drive, const char* when);
    void go_on_with_loss(const Medium& medium, const Metadata& metadata);
    bool others_are_there(Drive& drive);
    bool are_lost(Drive& drive, const std::set<std::pair<nvme::VolumeId, nvme::BlockAddress>>& lost);
    bool audit(Drive& drive, const char* when);

    SimConfig config_;
    Oracle oracle_;
    std::unique_ptr<Medium> medium_;
    std::unique_ptr<Metadata> metadata_;
    std::unique_ptr<Drive> drive_;
    /// The cut that the history goes on from, taken in the middle of a call.
    std::unique_ptr<Medium> crash_medium_;
    std::vector<std::byte> crash_blob_;
    bool crash_armed_ = false;

    SplitMix64 random_{1};  ///< of this step's command
    SplitMix64 cuts_{1};    ///< of this step's cuts
    std::uint64_t step_ = 0;
    std::uint64_t next_tag_ = 1;
    ContentId next_content_ = 1;
    std::uint64_t next_life_ = 1;
    std::map<std::uint64_t, Sent> in_flight_;
    std::map<nvme::VolumeId, std::vector<Sent>> ready_;  ///< have a sequence, wait to be delivered
    std::deque<Sent> recent_;                            ///< were delivered; may come again
    std::uint64_t probes_ = 0;
    std::uint64_t term_ = 1;                    ///< of the daemon now
    std::uint64_t known_term_ = 1;              ///< the newest that the drive acknowledged
    std::uint64_t grant_ends_ns_ = ~0ull;       ///< by the clock that counts suspended time ..
    std::uint64_t grant_ends_wall_ns_ = ~0ull;  ///< .. and by the wall clock
    std::uint32_t busy_in_a_row_ = 0;           ///< changes, none of which was done
    bool syncs_fail_ = false;                   ///< until the next boot
    bool room_below_ = true;                    ///< since the drive was found to work with it
    bool refused_ = false;                      ///< a mount did: the history is over
    bool records_lost_ = false;                 ///< a mount said so: any block may be called doubtful
    bool records_gone_ = false;                 ///< since the last boot
    std::map<PageNumber, PageOob> known_bad_;   ///< bad records at the last boot
    bool record_rot_ = false;                   ///< a mount may refuse, for a reason
    /// Volume and block: an older version may show, for nobody can tell that the newest one was there.
    std::set<std::pair<nvme::VolumeId, nvme::BlockAddress>> forgiven_;
    std::string failure_;
    SimCounters counters_;
    std::deque<std::string> trace_;
    std::vector<std::string> mounted_from_;  ///< what lay on flash at the last mount (trace)
};

}  // namespace gnstor::deengine::sim
