// vector_add.cpp: two vectors of doubles, read from a volume by the kernel itself, added and written back.
//
// The volume holds a, b and room for the sum, one after the other. Each warp takes batches of 1 MB: it reads
// both halves into registered memory, adds them where they lie, and writes the result; no host code moves
// data. One source for GPU lanes (nvcc) and CPU lanes. Afterwards the host reads the sum back and compares
// every element.
//
// The array is one in this process, or with --array one that others serve ('gnstor up', or a host's gnstord):
// the same program, over loop, shared memory or RoCEv2 packets.
#include <gnstor/client/client.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/simt/launch.hpp>
#include <gnstor/simt/pinned_memory.hpp>
#if VECTOR_ADD_REMOTE
#include <gnstor/remote_array.hpp>
#endif

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using gnstor::simt::LanesKind;

constexpr std::uint32_t kBlockBytes = 4096;
constexpr std::uint32_t kBatchBytes = 1u << 20;
constexpr std::uint32_t kBatchBlocks = kBatchBytes / kBlockBytes;
constexpr std::uint32_t kBatchDoubles = kBatchBytes / sizeof(double);
constexpr std::uint64_t kDeadlineNs = 30'000'000'000;

/// What each warp reports: how many batches it added, and its first status that was not success.
struct WarpReport {
    std::uint64_t batches;
    std::uint32_t status;
};

struct VectorAdd {
    gnstor::VolumeRef volume;
    gnstor::ChannelSet channels;
    std::byte* memory;      ///< registered: two batches a warp
    WarpReport* reports;    ///< one a warp
    std::uint32_t batches;  ///< in one vector
    std::uint64_t warps;

    GN_HD
    void operator()(gnstor::simt::Lane lane) const {
        const auto group = gnstor::simt::warp(lane);
        const auto channel = channels.mine(lane);
        const std::uint64_t warp = lane.warp_rank();
        auto* a = reinterpret_cast<double*>(memory + warp * 2 * kBatchBytes);
        auto* b = a + kBatchDoubles;
        for (auto batch = static_cast<std::uint32_t>(warp); batch < batches;
             batch += static_cast<std::uint32_t>(warps)) {
            const std::uint32_t block = batch * kBatchBlocks;
            auto status =
                volume.read(group, channel, block, kBatchBlocks, a, gnstor::Deadline::in_ns(kDeadlineNs));
            if (gnstor::nvme::ok(status))
                status = volume.read(group, channel, batches * kBatchBlocks + block, kBatchBlocks, b,
                                     gnstor::Deadline::in_ns(kDeadlineNs));
            for (std::uint32_t i = group.rank(); gnstor::nvme::ok(status) && i < kBatchDoubles;
                 i += group.size())
                a[i] += b[i];
            group.sync();
            if (gnstor::nvme::ok(status))
                status = volume.write(group, channel, 2 * batches * kBatchBlocks + block, kBatchBlocks, a,
                                      gnstor::Deadline::in_ns(kDeadlineNs));
            if (!gnstor::nvme::ok(status)) {  // the same for all lanes of the warp
                if (group.is_leader()) reports[warp].status = static_cast<std::uint32_t>(status);
                return;
            }
            if (group.is_leader()) ++reports[warp].batches;
        }
    }
};

struct Options {
    LanesKind lanes = LanesKind::kCpu;
    std::uint32_t batches = 16;  ///< MB in each vector
    std::string array;           ///< of other processes; empty: one in this process
};

double a_of(std::uint64_t i) {
    return static_cast<double>(i % 1'000'003) * 0.5;
}
double b_of(std::uint64_t i) {
    return static_cast<double>((i * 7919) % 1'000'003) * 0.25;
}

gnstor::Result<void> fill(gnstor::client::Volume& volume, std::uint32_t batches) {
    std::vector<double> values(kBatchDoubles);
    for (std::uint32_t batch = 0; batch < 2 * batches; ++batch) {
        const std::uint64_t first = std::uint64_t{batch % batches} * kBatchDoubles;
        for (std::uint64_t i = 0; i < kBatchDoubles; ++i)
            values[i] = batch < batches ? a_of(first + i) : b_of(first + i);
        GN_TRY(volume.write(std::uint64_t{batch} * kBatchBlocks, std::as_bytes(std::span(values))));
    }
    return {};
}

/// How many elements of the sum are not what the host computes.
gnstor::Result<std::uint64_t> count_wrong(gnstor::client::Volume& volume, std::uint32_t batches) {
    std::vector<double> values(kBatchDoubles);
    std::uint64_t wrong = 0;
    for (std::uint32_t batch = 0; batch < batches; ++batch) {
        GN_TRY(volume.read(std::uint64_t{2 * batches + batch} * kBatchBlocks,
                           std::as_writable_bytes(std::span(values))));
        const std::uint64_t first = std::uint64_t{batch} * kBatchDoubles;
        for (std::uint64_t i = 0; i < kBatchDoubles; ++i)
            wrong += values[i] != a_of(first + i) + b_of(first + i) ? 1 : 0;
    }
    return wrong;
}

/// An array is the same thing to this program wherever it is.
gnstor::Result<std::unique_ptr<gnstor::client::Array>> open_array(const Options& options) {
    if (options.array.empty()) {
        GN_ASSIGN(auto embedded, gnstor::EmbeddedArray::open({}));
        return std::unique_ptr<gnstor::client::Array>(std::move(embedded));
    }
#if VECTOR_ADD_REMOTE
    GN_ASSIGN(auto remote, gnstor::RemoteArray::open({.array = options.array}));
    return std::unique_ptr<gnstor::client::Array>(std::move(remote));
#else
    return gnstor::error(gnstor::Errc::kUnsupported,
                         "--array needs the installed library's component remote, which was not found");
#endif
}

/// Adds the vectors of a volume that is open for writing. False: something is wrong, and has been said.
gnstor::Result<bool> add(const Options& options, gnstor::client::Client& client,
                         gnstor::client::Volume& volume) {
    GN_TRY(fill(volume, options.batches));
    const bool gpu = options.lanes == LanesKind::kGpu;
    const std::uint32_t warps = std::min<std::uint32_t>(gpu ? 16 : 2, options.batches);
    GN_ASSIGN(auto buffers, client.map_buffer(std::size_t{warps} * 2 * kBatchBytes));
    GN_ASSIGN(auto reports, gnstor::simt::PinnedMemory::map(warps * sizeof(WarpReport), options.lanes));
    const VectorAdd kernel{volume.ref(),        client.channels(),
                           buffers.lane_data(), reinterpret_cast<WarpReport*>(reports.lane_data()),
                           options.batches,     warps};
    GN_TRY(gnstor::simt::launch(options.lanes, warps, gpu ? gnstor::simt::kWarpLanes : 1, kernel));

    std::uint64_t added = 0;
    for (std::uint32_t w = 0; w < warps; ++w) {
        WarpReport report;
        std::memcpy(&report, reports.data() + w * sizeof report, sizeof report);
        added += report.batches;
        if (report.status != 0)
            std::printf("vector_add: warp %u stopped: %s\n", w,
                        gnstor::nvme::status_name(static_cast<gnstor::nvme::Status>(report.status)));
    }
    GN_TRY(buffers.release());
    GN_ASSIGN(const std::uint64_t wrong, count_wrong(volume, options.batches));
    std::printf("vector_add: %s lanes added %llu of %u batches of 1 MB; %llu of %llu sums are wrong\n",
                std::string(gnstor::simt::lanes_name(options.lanes)).c_str(),
                static_cast<unsigned long long>(added), options.batches,
                static_cast<unsigned long long>(wrong),
                static_cast<unsigned long long>(std::uint64_t{options.batches} * kBatchDoubles));
    return added == options.batches && wrong == 0;
}

gnstor::Result<bool> run(const Options& options) {
    GN_ASSIGN(auto array, open_array(options));
    std::printf("vector_add: wire %s\n", array->wire().c_str());
    gnstor::client::ClientOptions client_options;
    client_options.name = "vector_add";
    client_options.lanes = options.lanes;
    GN_ASSIGN(auto client, array->connect(client_options));
    gnstor::client::CreateVolume request;
    request.name = "vectors-" + std::to_string(::getpid());
    request.capacity_bytes = 3ull * options.batches * kBatchBytes;
    GN_TRY(client->create(request));
    auto correct = [&]() -> gnstor::Result<bool> {
        GN_ASSIGN(auto volume, client->open(request.name, gnstor::client::OpenMode::kWrite));
        GN_ASSIGN(const bool good, add(options, *client, *volume));
        GN_TRY(volume->release());
        return good;
    }();
    // Others' arrays are left as they were.
    GN_TRY(client->control().delete_volume(client->identity().id, request.name));
    return correct;
}

/// False: the command line was not understood, and that has been said.
bool parse(int argc, char** argv, Options& options) {
    for (int i = 1; i < argc; i += 2) {
        const std::string_view name = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
        if (name == "--lanes" && value != nullptr) {
            const auto lanes = gnstor::simt::parse_lanes(value);
            if (lanes) {
                options.lanes = *lanes;
                continue;
            }
        } else if (name == "--batches" && value != nullptr) {
            const long batches = std::strtol(value, nullptr, 10);
            if (batches >= 1 && batches <= 256) {
                options.batches = static_cast<std::uint32_t>(batches);
                continue;
            }
        } else if (name == "--array" && value != nullptr && *value != '\0') {
            options.array = value;
            continue;
        }
        std::fprintf(stderr,
                     "usage: vector_add [--lanes cpu|gpu] [--batches 1..256] [--array unix:SOCKET]\n");
        return false;
    }
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (!parse(argc, argv, options)) return 2;
    const auto correct = run(options);
    if (!correct) {
        std::fprintf(stderr, "vector_add: %s\n", correct.error().message.c_str());
        return 1;
    }
    return *correct ? 0 : 1;
}
