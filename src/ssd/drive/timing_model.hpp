// timing_model.hpp: when a modelled drive would have answered: latency, limits, channels and dies of real
// flash.
//
// Pure logic: time is an argument, nothing is waited for here. A command passes four places:
//   gate      the drive as a whole: commands begin at least their cost apart, cost = 1 / (operations a second
//   of
//             this size). What a drive achieves under any mix is therefore bounded by what its profile says;
//   firmware  a fixed time (the hashing that deEngine adds);
//   dies      reads occupy the dies that hold their stripes, each die one at a time in the order of arrival,
//   and
//             then the channel of the die while the stripe is transferred. Writes are answered from the
//             drive's protected buffer; what they fill is programmed stripe after stripe on one die after the
//             other, and reads that meet such a die wait;
//   rest      what is left of the latency that the profile states for an idle drive.
// Targets of a batch are computed at once (aggregated update): state is loaded and stored once a batch, and a
// batch has one time of arrival.
// Invariants
//   * no target is earlier than arrival + firmware + stated latency of the size;
//   * costs of commands that begin in any window are at most the window and one command;
//   * reads of one size that touch one die only are answered in the order of their arrival at that die.
// Which die holds a block is taken from its address, not from where the emulated firmware really put it.
// One owner thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::ssd {

/// What a drive does at one size of command. Between two sizes, time a command is linear in its bytes; below
/// the first it is that of the first; above the last, bandwidth stays.
struct SizePoint {
    std::uint32_t bytes;
    double per_second;         ///< commands of this size, when nothing else is asked for
    std::uint64_t latency_ns;  ///< of an idle drive, without firmware_ns
    bool operator==(const SizePoint&) const = default;
};

struct DriveTiming {
    std::vector<SizePoint> read, write;  ///< ascending sizes; both empty: no model
    std::uint32_t firmware_ns = 0;       ///< added to every command
    std::uint32_t channels = 1;
    std::uint32_t dies_per_channel = 1;
    std::uint32_t stripe_bytes = 16384;  ///< consecutive bytes on one die; whole blocks of 4 KiB
    std::uint64_t read_die_ns = 0;       ///< a die is busy with a read of a stripe or a part of it
    std::uint64_t program_die_ns = 0;    ///< and with programming a stripe
    double channel_bytes_per_second = 0;
    [[nodiscard]] bool none() const { return read.empty() && write.empty(); }
    bool operator==(const DriveTiming&) const = default;
};

/// kInvalidArgument: says which figure contradicts which. "none" is good.
Result<void> check(const DriveTiming& timing);

class TimingModel {
  public:
    struct Request {
        std::uint64_t block;  ///< volume and address of the first block, in one number
        std::uint32_t bytes;
        bool write;
    };

    /// `timing` passed check() and is not none. `bytes_max`: the largest command.
    TimingModel(const DriveTiming& timing, std::uint32_t bytes_max);

    /// When each of `batch`, all arrived at `now_ns`, shall be answered. `now_ns` does not go back.
    void schedule(std::uint64_t now_ns, std::span<const Request> batch, std::span<std::uint64_t> due_ns);

    /// What an idle drive takes, firmware included; and the time that the gate is kept by a command.
    [[nodiscard]] double latency_ns(bool write, std::uint32_t bytes) const;
    [[nodiscard]] double cost_ns(bool write, std::uint32_t bytes) const;
    [[nodiscard]] std::uint32_t dies() const { return static_cast<std::uint32_t>(die_free_.size()); }
    [[nodiscard]] std::uint32_t die_of(std::uint64_t block) const;

  private:
    /// Of commands of so many sectors. Costs in 2^-16 ns, so that rounding is below 1e-7 of any command.
    struct Size {
        std::uint64_t cost;
        std::uint64_t latency_ns;
    };
    static constexpr std::uint32_t kFraction = 16;

    [[nodiscard]] const Size& size_of(bool write, std::uint32_t bytes) const;
    std::uint64_t read_from_dies(std::uint64_t start, const Request& request);
    void program(std::uint64_t start, std::uint32_t bytes);

    std::uint32_t stripe_blocks_;
    std::uint32_t stripe_bytes_;
    std::uint32_t channels_;
    std::uint64_t firmware_ns_;
    std::uint64_t read_die_ns_;
    std::uint64_t program_die_ns_;
    std::vector<Size> read_, write_;          // by sectors
    std::vector<std::uint32_t> transfer_ns_;  // of a piece, by sectors up to a stripe
    std::vector<std::uint64_t> die_free_;     // when each die is idle
    std::vector<std::uint64_t> channel_free_;
    std::uint64_t gate_ns_ = 0;        // when the next command may begin, and
    std::uint64_t gate_fraction_ = 0;  // 2^-16 ns on top
    std::uint32_t programming_ = 0;    // the die that the buffer goes to next
    std::uint32_t buffered_ = 0;       // bytes, less than a stripe
};

}  // namespace gnstor::ssd
