// timing_model.hpp: when a modelled drive completes a command: latency, rate limits, channels and dies of
// real flash.
//
// Pure logic: time is an argument, nothing waits here. A command passes four stages:
//   gate      the drive as a whole: successive commands start at least their cost apart, where cost = 1 /
//             (operations per second of this size). The profile thus bounds the throughput of any mix;
//   firmware  a fixed time (the hashing that deEngine adds);
//   dies      reads occupy the dies that hold their stripes, each die one read at a time in order of arrival,
//             and then the die's channel while the stripe is transferred. Writes complete from the drive's
//             protected buffer; buffered data is programmed stripe by stripe, one die after the other, and
//             reads of a die that is programming wait;
//   rest      the remainder of the latency that the profile states for an idle drive.
// Due times of a batch are computed together (aggregated update): state is loaded and stored once per batch,
// and all its commands have one time of arrival.
// Invariants
//   * no due time is earlier than arrival + firmware + stated latency of the size;
//   * the costs of the commands that start in any window add up to at most the window and one command;
//   * reads of one size that touch one die only complete in the order of their arrival at that die.
// The die of a block follows from its address, not from the page where the emulated firmware put it.
// One owner thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::ssd {

/// Performance of a drive at one command size. Between two sizes, time per command is linear in its bytes;
/// below the first size it is constant; above the last, bandwidth is constant.
struct SizePoint {
    std::uint32_t bytes;
    double per_second;         ///< commands of this size, without other load
    std::uint64_t latency_ns;  ///< of an idle drive, without firmware_ns
    bool operator==(const SizePoint&) const = default;
};

struct DriveTiming {
    std::vector<SizePoint> read, write;  ///< ascending sizes; both empty: no model
    std::uint32_t firmware_ns = 0;       ///< added to every command
    std::uint32_t channels = 1;
    std::uint32_t dies_per_channel = 1;
    std::uint32_t stripe_bytes = 16384;  ///< consecutive bytes on one die; whole blocks of 4 KiB
    std::uint64_t read_die_ns = 0;       ///< how long a read of a stripe, or of a part of it, occupies a die
    std::uint64_t program_die_ns = 0;    ///< how long programming a stripe occupies a die
    double channel_bytes_per_second = 0;
    [[nodiscard]] bool none() const { return read.empty() && write.empty(); }
    bool operator==(const DriveTiming&) const = default;
};

/// kInvalidArgument: the message names the figures that contradict each other. A timing that is none()
/// passes.
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

    /// Computes when each request of `batch`, all arrived at `now_ns`, is due. `now_ns` never decreases.
    void schedule(std::uint64_t now_ns, std::span<const Request> batch, std::span<std::uint64_t> due_ns);

    /// Latency of an idle drive, firmware included; and how long a command occupies the gate.
    [[nodiscard]] double latency_ns(bool write, std::uint32_t bytes) const;
    [[nodiscard]] double cost_ns(bool write, std::uint32_t bytes) const;
    [[nodiscard]] std::uint32_t dies() const { return static_cast<std::uint32_t>(die_free_.size()); }
    [[nodiscard]] std::uint32_t die_of(std::uint64_t block) const;

  private:
    /// Of commands of one size. Costs in 2^-16 ns, so that rounding is below 1e-7 of any command.
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
    std::vector<Size> read_, write_;          // by number of sectors
    std::vector<std::uint32_t> transfer_ns_;  // of a piece, by sectors up to a stripe
    std::vector<std::uint64_t> die_free_;     // when each die is idle
    std::vector<std::uint64_t> channel_free_;
    std::uint64_t gate_ns_ = 0;        // when the next command may begin, and
    std::uint64_t gate_fraction_ = 0;  // 2^-16 ns on top
    std::uint32_t programming_ = 0;    // the die that programs the next buffered stripe
    std::uint32_t buffered_ = 0;       // bytes, less than a stripe
};

}  // namespace gnstor::ssd
