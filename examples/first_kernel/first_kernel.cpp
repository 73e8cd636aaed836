// first_kernel.cpp: the shortest whole program: a kernel reads a volume and adds up all of its words.
//
// The host opens an array in this process, writes a volume and launches the kernel; the kernel reads every
// block by itself, and the host compares the sum with its own. One source for GPU lanes (nvcc) and CPU lanes.
// README.md and docs/device-api.md show the parts between the marks; tests/house/site_test.py compares them.
#include <gnstor/client/client.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/simt/launch.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using gnstor::simt::LanesKind;

constexpr std::uint32_t kBlockBytes = 4096;
constexpr std::uint32_t kBlocks = 4096;  ///< 16 MiB

// [shown in README.md]
struct LaneSum {  // what one lane added up, and whether all of its calls succeeded
    std::uint64_t sum;
    bool good;
};
/// The warps share the blocks of a volume; the lanes of a warp share the words of a block.
struct SumOfVolume {
    gnstor::VolumeRef volume;
    gnstor::ChannelSet channels;
    std::uint32_t blocks, warps;
    LaneSum* sums;  // one for each lane

    GN_HD
    void operator()(gnstor::simt::Lane lane) const {
        const auto warp = gnstor::simt::warp(lane);  // all lanes of a warp make each call together
        const auto channel = channels.mine(lane);    // queue pairs to all SSDs, a pool of registered memory
        const auto room = gnstor::Deadline::in_ns(1'000'000'000);  // of alloc: 1 s
        auto* const page = static_cast<std::uint64_t*>(channel.alloc(warp, 4096, room));
        LaneSum mine{0, page != nullptr};
        for (auto block = static_cast<std::uint32_t>(lane.warp_rank()); mine.good && block < blocks;
             block += warps) {
            const auto deadline = gnstor::Deadline::in_ns(1'000'000'000);  // of this read
            mine.good = gnstor::nvme::ok(volume.read(warp, channel, block, 1, page, deadline));
            for (std::uint32_t i = warp.rank(); mine.good && i < 512; i += warp.size()) mine.sum += page[i];
            warp.sync();  // no lane still needs the page when the next block arrives in it
        }
        if (page != nullptr && !gnstor::nvme::ok(channel.free(warp, page))) mine.good = false;
        sums[lane.grid_rank()] = mine;
    }
};
// [end of what README.md shows]

/// The words of a block, which no other block has.
std::vector<std::uint64_t> words_of(std::uint64_t block) {
    std::vector<std::uint64_t> words(kBlockBytes / sizeof(std::uint64_t));
    for (std::uint64_t i = 0; i < words.size(); ++i)
        words[i] = (block * words.size() + i + 1) * 0x9E3779B97F4A7C15ull;
    return words;
}

gnstor::Result<bool> run(LanesKind lanes) {
    const bool gpu = lanes == LanesKind::kGpu;
    const std::uint32_t warps = gpu ? 16 : 2, threads = gpu ? gnstor::simt::kWarpLanes : 1;

    // [shown in docs/device-api.md]
    GN_ASSIGN(auto array, gnstor::EmbeddedArray::open({}));  // a NIC and 4 SSDs, emulated, in memory
    gnstor::client::ClientOptions options;
    options.name = "first_kernel";
    options.lanes = lanes;
    GN_ASSIGN(auto client, array->connect(options));
    gnstor::client::CreateVolume request;
    request.name = "words";
    request.capacity_bytes = std::uint64_t{kBlocks} * kBlockBytes;
    GN_TRY(client->create(request));
    GN_ASSIGN(auto volume, client->open(request.name, gnstor::client::OpenMode::kWrite));

    std::uint64_t expected = 0;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
        const auto words = words_of(block);
        for (const std::uint64_t word : words) expected += word;
        GN_TRY(volume->write(block, std::as_bytes(std::span(words))));
    }

    const std::size_t count = std::size_t{warps} * threads;
    GN_ASSIGN(auto sums, gnstor::simt::PinnedMemory::map(count * sizeof(LaneSum), lanes));
    const SumOfVolume kernel{volume->ref(), client->channels(), kBlocks, warps,
                             reinterpret_cast<LaneSum*>(sums.lane_data())};
    GN_TRY(gnstor::simt::launch(lanes, warps, threads, kernel));  // returns when the kernel has ended
    // [end of what docs/device-api.md shows]

    LaneSum total{0, true};
    for (std::size_t i = 0; i < count; ++i) {
        LaneSum one;
        std::memcpy(&one, sums.data() + i * sizeof one, sizeof one);
        total.sum += one.sum;
        total.good = total.good && one.good;
    }
    const bool correct = total.good && total.sum == expected;
    std::printf("first_kernel: %s lanes read %u blocks; the sum of their words is %s\n",
                std::string(gnstor::simt::lanes_name(lanes)).c_str(), kBlocks, correct ? "correct" : "wrong");
    GN_TRY(volume->release());
    return correct;
}

/// The lanes that the command line names; nothing where it is wrong.
std::optional<LanesKind> lanes_of(int argc, char** argv) {
    if (argc == 1) return LanesKind::kCpu;
    if (argc != 3 || std::string_view(argv[1]) != "--lanes") return std::nullopt;
    const auto lanes = gnstor::simt::parse_lanes(argv[2]);
    if (!lanes) return std::nullopt;
    return *lanes;
}

}  // namespace

int main(int argc, char** argv) {
    const auto lanes = lanes_of(argc, argv);
    if (!lanes) {
        std::fprintf(stderr, "usage: first_kernel [--lanes cpu|gpu]\n");
        return 2;
    }
    const auto correct = run(*lanes);
    if (!correct) {
        std::fprintf(stderr, "first_kernel: %s\n", correct.error().message.c_str());
        return 1;
    }
    return *correct ? 0 : 1;
}
