// rebuild_sim.hpp: drives of an array under one seed while one of them is replaced and filled again, and writers are lost.
// docs/array.md, rules 2, 4, 5, 8, 9, 11, 12.
//
// Real: each drive's firmware (deengine), placement, and daemon/decisions/rebuild and reconcile. Modelled: a writer that follows
// rule 5 (a change goes to every replica of one version of the map, keeps its sequence through all retries, and is
// acknowledged when all have answered; floors), the order in which messages arrive, and the daemon's order of store,
// activate, in force. With outs_of_hundred, drives are silent for a while, out of the map, and come back with what they
// had (rule 10). Faults: writers that end with changes under way, drives that are killed and mounted again, a drive that is lost for good, pages that
// cannot be read, commands and answers that come late or not at all.
//
// Checked after every read, and at the end on every replica of every block (invariants 3, 4, 5, 10, 11 and 14):
//   * a read returns the last acknowledged version of a block, or a newer one that was sent;
//   * when faults cease, every change of the last epoch is acknowledged, the rebuild ends, and every replica holds the
//   last acknowledged version or a newer one that a lost writer sent;
//   * before the next epoch begins, and at the end, all replicas of each block are equal.
#pragma once

#include "daemon/decisions/rebuild.hpp"
#include "daemon/decisions/reconcile.hpp"
#include "daemon/decisions/scrub.hpp"
#include "deengine/front/engine.hpp"
#include "deengine/ram_flash.hpp"
#include "deengine/rig.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gnstor::test {

struct RebuildSimOptions {
    std::uint64_t seed = 1;
    std::uint32_t steps = 3000;
    deengine::Mutation engine = deengine::Mutation::kNone;
    daemon::RebuildMutation rebuild = daemon::RebuildMutation::kNone;
    daemon::ReconcileMutation reconcile = daemon::ReconcileMutation::kNone;
    daemon::ScrubMutation scrub = daemon::ScrubMutation::kNone;
    bool compare_while_written =
        false;  ///< a mutation: replicas are compared before the writer's end is in force
    bool keeps_copied =
        false;  ///< a mutation: a rebuild does not copy again what was copied before an epoch ended
    std::uint32_t writers_of_hundred = 0;   ///< additional events that end a writer
    std::uint32_t replicas = 0;             ///< 0: two or three, by the seed
    std::uint32_t trims_of_ten = 3;         ///< of the writer's changes
    std::uint32_t silences_of_hundred = 2;  ///< commands of the rebuild that get no answer
    std::uint32_t spoils_of_hundred = 0;    ///< additional events that make a page unreadable
    std::uint32_t outs_of_hundred = 0;      ///< additional events that take a drive out, or back
    bool back_as_in = false;                ///< a mutation: a drive that was out is *in* at once
    std::uint32_t max_tombstones = 0;       ///< of each drive; 0: few or very few, by the seed
    bool trace = false;                     ///< print what happens
};

struct RebuildSimCounts {
    std::uint64_t changes = 0, reads = 0, lost_drives = 0, lost_writers = 0, lost_in_rebuild = 0,
                  rebuilds = 0, kills = 0, kills_in_rebuild = 0, outs = 0, outs_in_rebuild = 0, backs = 0;
    std::uint64_t reconciled = 0, reconciled_in_rebuild = 0, reconcile_put = 0, kills_in_reconcile = 0,
                  outs_in_reconcile = 0;
    std::uint64_t scrubbed = 0, mended = 0, scrub_passes = 0;
    std::uint64_t copied = 0, late_copies = 0, unreadable = 0, blocks_compared = 0;

    void add(const RebuildSimCounts& o);
};

class RebuildSim final : public daemon::CopyPort {
  public:
    explicit RebuildSim(const RebuildSimOptions& options);
    ~RebuildSim() override;
    /// Runs the history. Returns what was violated; empty: nothing.
    std::string run();
    [[nodiscard]] const RebuildSimCounts& counts() const { return counts_; }

    nvme::Status copy_open(std::uint32_t slot, const daemon::CopyRange& range,
                           std::uint32_t& window) override;
    nvme::Status copy_read(std::uint32_t slot, const daemon::CopyRange& range,
                           const daemon::CopySource& source, std::span<std::byte> data,
                           nvme::Epoch& epoch) override;
    nvme::Status copy_survey(std::uint32_t slot, const daemon::CopyRange& range, nvme::SurveyKind kind,
                             std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) override;
    nvme::Status set_floor(std::uint32_t slot, nvme::VolumeId volume, nvme::Epoch epoch,
                           std::uint64_t floor) override;
    nvme::Status copy_write(std::uint32_t slot, const daemon::CopyRange& range,
                            const daemon::CopySource& source, std::span<std::byte> data) override;

  private:
    static constexpr std::uint32_t kSlots = 4;
    /// Blocks that are used, in two groups that lie some extents apart: a comparison leaves out a group without a change.
    static constexpr std::uint32_t kBlocks = 48;
    static constexpr std::uint32_t kGroupBlocks = 24;
    static constexpr std::uint32_t kGroupDistance = 3 * nvme::kExtentBlocks;
    static constexpr std::uint32_t kCapacity = kGroupDistance + kGroupBlocks;
    static_assert(kBlocks == 2 * kGroupBlocks);
    static constexpr nvme::BlockAddress address_of(std::uint32_t used) {
        return used / kGroupBlocks * kGroupDistance + used % kGroupBlocks;
    }
    static constexpr std::uint32_t used_of(nvme::BlockAddress block) {
        return block / kGroupDistance * kGroupBlocks + block % kGroupDistance;
    }
    static constexpr nvme::VolumeId kVolume = 1;
    static constexpr nvme::ClientId kClient = 7;

    struct Answer {
        nvme::Status status = nvme::Status::kSuccess;
        std::uint64_t result = 0;
    };
    struct Drive final : deengine::CompletionSink {
        Drive(std::uint64_t number, const deengine::EngineOptions& o);
        void mount();
        void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

        deengine::test::RamFlash flash;
        deengine::test::RamMetadata metadata;
        deengine::EngineOptions options;
        std::unique_ptr<deengine::Engine> engine;
        std::map<std::uint64_t, Answer> answers;
        std::string trouble;
        bool spoilt = false;  ///< a page of it was made unreadable
    };
    /// A change that a writer has sent.
    struct Change {
        std::uint64_t number;  ///< epoch in the upper half, sequence in the lower: the order of rule 7
        bool trim;
        nvme::BlockAddress first;
        std::uint32_t blocks;
        nvme::MapVersion version = 0;  ///< of the round that is under way
        std::uint32_t round = 0;
        std::set<std::uint32_t> waiting{};  ///< slots of this round that have not answered with success
        bool done = false;
        bool abandoned = false;  ///< its writer was lost before it was acknowledged
    };
    /// Something on its way to a drive; also an answer on its way back.
    struct Message {
        enum class Kind : std::uint8_t { kChange, kFloor, kMapSet, kLateCopy } kind;
        std::uint32_t slot;
        std::uint64_t life;        ///< of the slot's drive process: a restart ends its connections
        std::uint64_t number = 0;  ///< of the change
        std::uint32_t round = 0;
        nvme::Command command{};
        std::vector<std::byte> data{};
    };

    std::uint32_t below(std::uint32_t n) { return n == 0 ? 0 : static_cast<std::uint32_t>(random_() % n); }
    bool one_in(std::uint32_t n) { return below(n) == 0; }

    void fill_slot(std::uint32_t slot);
    Answer command(std::uint32_t slot, const nvme::Command& c, deengine::Requester from,
                   std::span<std::byte> data);
    bool send_record(std::uint32_t slot);
    void event();
    void new_change();
    void send(Change& change);
    void resend(Change& change, std::uint32_t slot);
    void deliver(std::size_t index);
    void take_answer(Change& change, std::uint32_t slot, Answer answer);
    void publish_floor();
    void read();
    void check_read(nvme::BlockAddress block, std::uint32_t slot, std::uint64_t floor_before,
                    const std::byte* data);
    void kill(std::uint32_t slot);
    void lose_drive();
    void out_or_back();
    void take_out(std::uint32_t slot);
    void take_back(std::uint32_t slot);
    [[nodiscard]] std::uint32_t out_slot() const;  ///< kSlots: none
    /// Slots of the newest map that are not out.
    [[nodiscard]] std::uint32_t slots_here() const { return kSlots - (out_slot() == kSlots ? 0 : 1); }
    void lose_writer();
    void raise_one();
    void record_in_force();
    void reconcile_step();
    void end_reconcile();
    void begin_next_epoch();
    void compare_replicas(const char* when, const placement::ArrayMap& map);
    nvme::Status read_replica(std::uint32_t slot, nvme::BlockAddress block, nvme::Epoch epoch,
                              nvme::MapVersion version, std::vector<std::byte>& data);
    void spoil_page();
    void activate_one();
    void learn_map();
    void rebuild_step();
    void scrub_step();
    void end_scrub();
    void scrub_all();
    void settle();
    void compare_all();
    void change_map(placement::SlotState state, std::uint32_t slot);
    [[nodiscard]] placement::Replicas replicas_of(const placement::ArrayMap& map,
                                                  nvme::BlockAddress block) const;
    template <class... T>
    void trace(fmt::format_string<const T&...> format, const T&... values) const {
        if (options_.trace) fmt::print("{}\n", fmt::format(format, values...));
    }
    void fail(const std::string& what) {
        if (failure_.empty()) failure_ = what;
    }

    const RebuildSimOptions options_;
    std::mt19937_64 random_;
    std::uint64_t now_ns_ = 1'000'000;
    std::uint64_t tag_ = 0;
    std::uint64_t drives_made_ = 0;
    nvme::VolumeRecord record_{};
    std::array<std::unique_ptr<Drive>, kSlots> drives_;
    std::array<std::uint64_t, kSlots> lives_{};
    std::vector<Message> messages_;
    std::map<std::uint64_t, Change> changes_;  ///< by number; all that were ever sent
    nvme::Epoch epoch_ = 1;                    ///< of the writer
    /// Where the end of an epoch has come: its writer is removed (stored, not in force yet), its replicas are compared,
    /// they are equal and nobody writes, the next writer is recorded (not in force yet).
    enum class Close : std::uint8_t { kNo, kRemoving, kComparing, kEqual, kOpening } closing_ = Close::kNo;
    std::uint64_t next_sequence_ = 1;
    std::uint64_t resolved_ = 0;               ///< all sequences of the epoch up to here
    std::vector<std::uint64_t> acknowledged_;  ///< by block: number of the newest acknowledged change
    std::set<std::uint32_t> raised_;           ///< slots whose drive has the volume's newest record
    placement::ArrayMap stored_{};             ///< the newest version
    std::set<std::uint32_t> active_;           ///< slots whose drive has activated it
    placement::ArrayMap told_{};               ///< the newest version that is in force
    placement::ArrayMap known_{};              ///< the writer's
    std::optional<daemon::Rebuild> rebuild_;
    std::optional<daemon::Reconcile> reconcile_;
    std::optional<daemon::Scrub> scrub_;
    bool spoilt_in_pass_ = false;        ///< a page became unreadable since the scrub began
    nvme::MapVersion copy_version_ = 0;  ///< of what sends the present copy command
    std::uint32_t losses_left_;
    std::uint32_t max_tombstones_;
    bool quiet_ = false;  ///< faults have ceased
    RebuildSimCounts counts_;
    std::string failure_;
};

}  // namespace gnstor::test
