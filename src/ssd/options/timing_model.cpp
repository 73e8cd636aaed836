// timing_model.cpp: validation of a timing, its lookup tables, and due times of a batch.
#include "ssd/options/timing_model.hpp"

#include <gnstor/nvme/command.hpp>

#include <algorithm>
#include <cmath>

namespace gnstor::ssd {

namespace {

constexpr std::uint64_t kLongestNs = 1'000'000'000;  // of any configured time: a longer one is a mistake
constexpr double kMostPerSecond = 1e9;
constexpr double kMostBytesPerSecond = 1e13;
constexpr std::uint32_t kMostUnits = 1024;
/// Dies need this much more capacity than the gate admits: random load is uneven among dies.
constexpr double kDieRoom = 1.25;

/// Linear in bytes between two points; constant below the first. `above`: increase per byte beyond the last.
double between(const std::vector<SizePoint>& points, double bytes, double (*value)(const SizePoint&),
               double above) {
    if (bytes <= points.front().bytes) return value(points.front());
    for (std::size_t i = 1; i < points.size(); ++i) {
        const SizePoint &a = points[i - 1], &b = points[i];
        if (bytes > b.bytes) continue;
        return value(a) +
               (bytes - a.bytes) * (value(b) - value(a)) / (static_cast<double>(b.bytes) - a.bytes);
    }
    return value(points.back()) + (bytes - points.back().bytes) * above;
}

double cost_of(const SizePoint& p) {
    return 1e9 / p.per_second;
}
double latency_of(const SizePoint& p) {
    return static_cast<double>(p.latency_ns);
}
/// Time per byte at the last point: bandwidth is constant beyond it.
double byte_ns(const std::vector<SizePoint>& points) {
    return cost_of(points.back()) / points.back().bytes;
}
double cost_at(const std::vector<SizePoint>& points, double bytes) {
    return between(points, bytes, cost_of, byte_ns(points));
}
double latency_at(const std::vector<SizePoint>& points, double bytes) {
    return between(points, bytes, latency_of, byte_ns(points));
}

Result<void> check_points(const char* what, const std::vector<SizePoint>& points) {
    if (points.empty()) return error(Errc::kInvalidArgument, "a drive has no figures for {}", what);
    std::uint32_t before = 0;
    double cost_before = 0;
    for (const SizePoint& p : points) {
        if (p.bytes < nvme::kSectorBytes || p.bytes > (1u << 30) || p.bytes % nvme::kSectorBytes != 0)
            return error(Errc::kInvalidArgument, "{}: a size of {} bytes; give multiples of {} up to 1 GiB",
                         what, p.bytes, nvme::kSectorBytes);
        if (p.bytes <= before)
            return error(Errc::kInvalidArgument,
                         "{}: a size of {} bytes follows {} bytes; give the sizes in ascending order", what,
                         p.bytes, before);
        if (!(p.per_second >= 1) || p.per_second > kMostPerSecond)
            return error(Errc::kInvalidArgument,
                         "{} of {} bytes: a rate of {} commands a second is out of range; give 1 to {}", what,
                         p.bytes, p.per_second, kMostPerSecond);
        if (p.latency_ns == 0 || p.latency_ns > kLongestNs)
            return error(Errc::kInvalidArgument,
                         "{} of {} bytes: a latency of {} ns is out of range; give 1 to {}", what, p.bytes,
                         p.latency_ns, kLongestNs);
        if (cost_of(p) < cost_before)
            return error(Errc::kInvalidArgument,
                         "{}: more commands a second of {} bytes than of {} bytes; the rate must not grow "
                         "with the size",
                         what, p.bytes, before);
        before = p.bytes;
        cost_before = cost_of(p);
    }
    return {};
}

Result<void> check_geometry(const DriveTiming& t) {
    if (t.channels == 0 || t.dies_per_channel == 0 || t.channels > kMostUnits ||
        t.dies_per_channel > kMostUnits)
        return error(Errc::kInvalidArgument,
                     "a drive cannot have {} channels of {} dies; give 1 to {} of each", t.channels,
                     t.dies_per_channel, kMostUnits);
    if (t.stripe_bytes == 0 || t.stripe_bytes % nvme::kBlockBytes != 0 || t.stripe_bytes > (1u << 20))
        return error(Errc::kInvalidArgument,
                     "a drive cannot have stripes of {} bytes; give a multiple of {} up to 1 MiB",
                     t.stripe_bytes, nvme::kBlockBytes);
    if (t.firmware_ns > kLongestNs || t.read_die_ns > kLongestNs || t.program_die_ns > kLongestNs)
        return error(Errc::kInvalidArgument,
                     "firmware_ns, read_die_ns and program_die_ns may be {} ns at most", kLongestNs);
    if (!(t.channel_bytes_per_second >= 1e6) || t.channel_bytes_per_second > kMostBytesPerSecond)
        return error(Errc::kInvalidArgument, "a channel cannot carry {} bytes a second; give 1e6 to {}",
                     t.channel_bytes_per_second, kMostBytesPerSecond);
    return {};
}

/// Rejects rates that dies and channels cannot reach, and latencies below theirs.
Result<void> check_reach(const DriveTiming& t) {
    const double dies = double(t.channels) * t.dies_per_channel;
    for (const SizePoint& p : t.read) {
        const double stripes = std::ceil(double(p.bytes) / t.stripe_bytes);
        const double die_limit =
            t.read_die_ns == 0 ? 1e18 : dies * 1e9 / static_cast<double>(t.read_die_ns) / stripes;
        if (p.per_second * kDieRoom > die_limit)
            return error(Errc::kInvalidArgument,
                         "read of {} bytes: the rate is {:.0f} a second, but {:.0f} dies of {} ns can do "
                         "only {:.0f} a second, and must be able to do a quarter more than the rate; give "
                         "more dies or a shorter read_die_ns",
                         p.bytes, p.per_second, dies, t.read_die_ns, die_limit);
        const double channel_limit = t.channels * t.channel_bytes_per_second / p.bytes;
        if (p.per_second * kDieRoom > channel_limit)
            return error(Errc::kInvalidArgument,
                         "read of {} bytes: the rate is {:.0f} a second, but {} channels can carry only "
                         "{:.0f} a second, and must be able to carry a quarter more than the rate",
                         p.bytes, p.per_second, t.channels, channel_limit);
        const double piece = std::min(p.bytes, t.stripe_bytes);
        const double least = static_cast<double>(t.read_die_ns) + piece * 1e9 / t.channel_bytes_per_second;
        if (static_cast<double>(p.latency_ns) < least)
            return error(Errc::kInvalidArgument,
                         "read of {} bytes: a latency of {} ns, but die and channel alone take {:.0f} ns",
                         p.bytes, p.latency_ns, least);
    }
    for (const SizePoint& p : t.write) {
        const double most = t.program_die_ns == 0
                                ? 1e18
                                : dies * t.stripe_bytes * 1e9 / static_cast<double>(t.program_die_ns);
        if (p.per_second * p.bytes * kDieRoom > most)
            return error(Errc::kInvalidArgument,
                         "write of {} bytes: the rate is {:.0f} bytes a second, but the dies can program "
                         "only {:.0f}, and must be able to program a quarter more than the rate",
                         p.bytes, p.per_second * p.bytes, most);
    }
    return {};
}

}  // namespace

Result<void> check(const DriveTiming& timing) {
    if (timing.none()) return {};
    GN_TRY(check_points("read", timing.read));
    GN_TRY(check_points("write", timing.write));
    GN_TRY(check_geometry(timing));
    return check_reach(timing);
}

TimingModel::TimingModel(const DriveTiming& t, std::uint32_t bytes_max)
    : stripe_blocks_(t.stripe_bytes / nvme::kBlockBytes),
      stripe_bytes_(t.stripe_bytes),
      channels_(t.channels),
      firmware_ns_(t.firmware_ns),
      read_die_ns_(t.read_die_ns),
      program_die_ns_(t.program_die_ns),
      die_free_(std::size_t{t.channels} * t.dies_per_channel),
      channel_free_(t.channels) {
    const auto tabulate = [bytes_max](const std::vector<SizePoint>& points) {
        std::vector<Size> sizes;
        for (std::uint32_t sectors = 0; sectors <= bytes_max / nvme::kSectorBytes; ++sectors) {
            const double bytes = double(sectors) * nvme::kSectorBytes;
            sizes.push_back(
                {static_cast<std::uint64_t>(std::llround(cost_at(points, bytes) * (1u << kFraction))),
                 static_cast<std::uint64_t>(std::llround(latency_at(points, bytes)))});
        }
        return sizes;
    };
    read_ = tabulate(t.read);
    write_ = tabulate(t.write);
    for (std::uint32_t sectors = 0; sectors <= stripe_bytes_ / nvme::kSectorBytes; ++sectors)
        transfer_ns_.push_back(static_cast<std::uint32_t>(
            std::llround(double(sectors) * nvme::kSectorBytes * 1e9 / t.channel_bytes_per_second)));
}

const TimingModel::Size& TimingModel::size_of(bool write, std::uint32_t bytes) const {
    const std::vector<Size>& sizes = write ? write_ : read_;
    return sizes[std::min<std::size_t>((bytes + nvme::kSectorBytes - 1) / nvme::kSectorBytes,
                                       sizes.size() - 1)];
}

double TimingModel::latency_ns(bool write, std::uint32_t bytes) const {
    return static_cast<double>(firmware_ns_ + size_of(write, bytes).latency_ns);
}
double TimingModel::cost_ns(bool write, std::uint32_t bytes) const {
    return static_cast<double>(size_of(write, bytes).cost) / (1u << kFraction);
}
std::uint32_t TimingModel::die_of(std::uint64_t block) const {
    return static_cast<std::uint32_t>(block / stripe_blocks_ % die_free_.size());
}

void TimingModel::schedule(std::uint64_t now_ns, std::span<const Request> batch,
                           std::span<std::uint64_t> due_ns) {
    std::uint64_t gate = gate_ns_, fraction = gate_fraction_;
    if (gate < now_ns) {
        gate = now_ns;
        fraction = 0;
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Request& r = batch[i];
        const Size& size = size_of(r.write, r.bytes);
        const std::uint64_t start = gate + (fraction != 0 ? 1 : 0);  // rounded up: never before its turn
        fraction += size.cost;
        gate += fraction >> kFraction;
        fraction &= (1u << kFraction) - 1;
        const std::uint64_t at_dies = start + firmware_ns_;
        if (r.write) {
            // Commands are timed before they are checked: one above the largest size will be refused.
            program(at_dies,
                    std::min(r.bytes, static_cast<std::uint32_t>(write_.size() - 1) * nvme::kSectorBytes));
            due_ns[i] = at_dies + size.latency_ns;
        } else {
            due_ns[i] = read_from_dies(at_dies, r) + size.latency_ns;
        }
    }
    gate_ns_ = gate;
    gate_fraction_ = fraction;
}

/// Reserves time of dies and channels. Returns when an idle drive would have to start in order to finish as
/// late as this one: `start` if there is no contention.
std::uint64_t TimingModel::read_from_dies(std::uint64_t start, const Request& request) {
    std::uint64_t delayed = start;
    std::uint64_t block = request.block;
    std::uint32_t left =
        std::min(request.bytes, static_cast<std::uint32_t>(read_.size() - 1) * nvme::kSectorBytes);
    std::uint32_t die = die_of(block);
    std::uint32_t room =
        (stripe_blocks_ - static_cast<std::uint32_t>(block % stripe_blocks_)) * nvme::kBlockBytes;
    while (left != 0) {
        const std::uint32_t piece = std::min(left, room);
        const std::uint64_t ready = std::max(start, die_free_[die]) + read_die_ns_;
        die_free_[die] = ready;
        // The channel is reserved from the arrival on: a read that waits for its die does not keep others
        // from the channel.
        std::uint64_t& channel = channel_free_[die % channels_];
        const std::uint64_t turn = std::max(channel, start);
        channel = turn + transfer_ns_[piece / nvme::kSectorBytes];
        delayed = std::max({delayed, ready - read_die_ns_, turn});
        left -= piece;
        room = stripe_bytes_;
        if (++die == die_free_.size()) die = 0;
    }
    return delayed;
}

void TimingModel::program(std::uint64_t start, std::uint32_t bytes) {
    for (buffered_ += bytes; buffered_ >= stripe_bytes_; buffered_ -= stripe_bytes_) {
        die_free_[programming_] = std::max(start, die_free_[programming_]) + program_die_ns_;
        if (++programming_ == die_free_.size()) programming_ = 0;
    }
}

}  // namespace gnstor::ssd
