// deengine_copy.cpp: copying blocks with CRC-32C beside copying them plainly, in pairs.
//
// A repeat is many short slices, each variant's turn after turn, on blocks of the same draw; what counts is
// the middle one of a variant's slices, which another program's turn on the core does not move. The ratio of
// a repeat is that of these middles.
#include "deengine.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/hash.hpp>
#include <gnstor/nvme/command.hpp>

#include <array>
#include <cstring>
#include <memory>

namespace gnstor::bench::deengine_bench {
namespace {

constexpr std::uint32_t kSlices = 401;
constexpr std::uint32_t kSliceBlocks = 256;
constexpr std::uint32_t kDestinations = 256;  ///< blocks of the receiving pool: 1 MiB, as I/O buffers are

void copy_plain(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    keep_value(to);
}
/// Words of 8 bytes, each loaded and stored: what a fused loop would be without its CRC.
void copy_by_words(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 8) {
        std::uint64_t word;
        std::memcpy(&word, from + i, 8);
        asm("" : "+r"(word));  // keeps the compiler from making a memcpy of it
        std::memcpy(to + i, &word, 8);
    }
    keep_value(to);
}
void copy_with_crc(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    copy_sectors_crc32c(to, from, static_cast<std::uint32_t>(bytes / nvme::kSectorBytes), crcs);
    keep_value(crcs);
}
/// Past the caches.
void stream_with_crc(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    stream_sectors_crc32c(to, from, static_cast<std::uint32_t>(bytes / nvme::kSectorBytes), crcs);
    keep_value(crcs);
}

struct Variant {
    const char* name;
    void (*copy)(std::byte*, const std::byte*, std::size_t);
};
constexpr std::array<Variant, 4> kVariants{{{"memcpy", copy_plain},
                                            {"loop of words", copy_by_words},
                                            {"copy with CRC", copy_with_crc},
                                            {"copy with CRC past the caches", stream_with_crc}}};

/// All variants on one kind of source.
class CopyBench {
  public:
    CopyBench(std::uint64_t source_bytes, std::size_t bytes, std::uint64_t seed)
        : bytes_(bytes),
          blocks_(source_bytes / nvme::kBlockBytes),
          source_(std::make_unique<AlignedBlock[]>(blocks_)),
          pool_(std::make_unique<AlignedBlock[]>(kDestinations)),
          random_(seed) {
        for (std::uint64_t b = 0; b < blocks_; ++b)
            for (std::size_t i = 0; i < nvme::kBlockBytes; i += 8) {
                const std::uint64_t word = random_.next();
                std::memcpy(source_[b].bytes + i, &word, 8);
            }
    }
    /// The first variant of a repeat measures all of them.
    Result<Repeat> run(std::size_t variant) {
        if (variant == 0) measure_all();
        Repeat r = repeat_of(seconds_[variant], kSliceBlocks, kSliceBlocks * bytes_);
        r.times_reference = seconds_[variant] / seconds_[0];
        return r;
    }

  private:
    void measure_all() {
        std::array<Slices, kVariants.size()> slices;
        for (std::uint32_t slice = 0; slice < kSlices; ++slice)
            for (std::size_t k = 0; k < kVariants.size(); ++k) {
                const std::size_t v = (slice + k) % kVariants.size();  // nobody is always first
                for (auto& block : order_) block = random_.below(blocks_);
                const Stopwatch watch;
                for (std::uint32_t i = 0; i < kSliceBlocks; ++i)
                    kVariants[v].copy(pool_[i % kDestinations].bytes, source_[order_[i]].bytes, bytes_);
                slices[v].add(watch.seconds());
            }
        for (std::size_t v = 0; v < kVariants.size(); ++v) seconds_[v] = slices[v].middle();
    }

    const std::size_t bytes_;
    const std::uint64_t blocks_;
    std::unique_ptr<AlignedBlock[]> source_;
    std::unique_ptr<AlignedBlock[]> pool_;
    SplitMix64 random_;
    std::array<std::uint64_t, kSliceBlocks> order_{};
    std::array<double, kVariants.size()> seconds_{};
};

}  // namespace

Result<std::vector<Case>> measure_copy(const DeEngineOptions& options) {
    std::vector<std::unique_ptr<CopyBench>> benches;
    std::vector<Step> steps;
    struct Source {
        const char* name;
        std::uint64_t bytes;
    };
    for (const Source& source :
         {Source{"in no cache", options.data_bytes}, Source{"in the cache", 256u << 10}})
        for (const std::size_t bytes : {512u, 4096u}) {
            benches.push_back(std::make_unique<CopyBench>(source.bytes, bytes, options.seed));
            for (std::size_t v = 0; v < kVariants.size(); ++v)
                steps.push_back({{{"operation", "copy"},
                                  {"bytes", bytes},
                                  {"source", source.name},
                                  {"variant", kVariants[v].name}},
                                 [bench = benches.back().get(), v] { return bench->run(v); }});
        }
    return measure("copy", options.repeats, std::move(steps));
}

}  // namespace gnstor::bench::deengine_bench
