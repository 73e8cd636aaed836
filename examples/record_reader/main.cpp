// main.cpp: what a training loop asks of storage: all records of a data set, in another random order each
// epoch, in batches, read by the kernel that uses them.
//
// The host writes a data set of records (a header with number and checksum, then features) and shuffles the
// indices. Each warp takes batches of them, reads their records into registered memory (record_reader.hpp),
// checks every header and sums every feature; no host code is in the way. Afterwards the host compares each
// sum with what it computes itself. One source for GPU lanes (nvcc) and CPU lanes, on an array in this
// process or with --array on one that others serve: over loop, shared memory or RoCEv2 packets.
#include "record_reader.hpp"

#include <gnstor/client/client.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/simt/launch.hpp>
#include <gnstor/simt/pinned_memory.hpp>
#if RECORD_READER_REMOTE
#include <gnstor/remote_array.hpp>
#endif

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using gnstor::nvme::Status;
using gnstor::simt::LanesKind;

constexpr std::uint32_t kBatch = 64;  ///< records that a warp reads at once
constexpr std::uint64_t kDeadlineNs = 60'000'000'000;
constexpr std::uint64_t kFillBytes = 1u << 20;

/// How a record begins; its features are the words after it.
struct Header {
    std::uint64_t index;
    std::uint64_t check;  ///< the sum of the features
};

GN_HD
std::uint64_t feature(std::uint64_t index, std::uint32_t word) {
    return (index + 1) * 0x9E3779B97F4A7C15ull + word * 0xBF58476D1CE4E5B9ull;
}

struct WarpReport {
    std::uint64_t good, bad;  ///< records, by their headers
    std::uint32_t status;     ///< the first that was not success
};

struct Epoch {
    RecordReader reader;
    gnstor::ChannelSet channels;
    const std::uint64_t* order;   ///< indices of records
    std::uint64_t* sums;          ///< of the record at each place of the order
    std::byte* memory;            ///< registered: a batch a warp
    gnstor::IoRequest* requests;  ///< a batch a warp
    WarpReport* reports;          ///< one a warp
    std::uint64_t records, warps;

    GN_HD
    void operator()(gnstor::simt::Lane lane) const {
        const auto group = gnstor::simt::warp(lane);
        const auto channel = channels.mine(lane);
        const std::uint64_t warp = lane.warp_rank();
        std::byte* const mine = memory + warp * kBatch * reader.bytes;
        for (std::uint64_t first = warp * kBatch; first < records; first += warps * kBatch) {
            const auto count = static_cast<std::uint32_t>(records - first < kBatch ? records - first
                                                                                   : std::uint64_t{kBatch});
            const Status status = reader.read(group, channel, order + first, count, mine,
                                              requests + warp * kBatch, gnstor::Deadline::in_ns(kDeadlineNs));
            if (!gnstor::nvme::ok(status)) {  // the same for all lanes of the warp
                if (group.is_leader()) reports[warp].status = static_cast<std::uint32_t>(status);
                return;
            }
            for (std::uint32_t k = 0; k < count; ++k) use(group, mine + k * reader.bytes, first + k, warp);
            group.sync();  // nobody looks at the batch any more
        }
    }

    /// What a model would do with a record: the warp's lanes share its features.
    template <class Group>
    GN_HD void use(Group group, const std::byte* record, std::uint64_t place, std::uint64_t warp) const {
        const auto* const header = reinterpret_cast<const Header*>(record);
        const auto* const features = reinterpret_cast<const std::uint64_t*>(record + sizeof(Header));
        const auto words = static_cast<std::uint32_t>((reader.bytes - sizeof(Header)) / 8);
        std::uint64_t sum = 0;
        for (std::uint32_t w = group.rank(); w < words; w += group.size()) sum += features[w];
        for (std::uint32_t other = 1; other < group.size(); other *= 2)
            sum += group.shfl(sum, group.rank() ^ other);
        if (!group.is_leader()) return;
        const bool good = header->index == order[place] && header->check == sum;
        ++(good ? reports[warp].good : reports[warp].bad);
        sums[place] = sum;
    }
};

struct Options {
    LanesKind lanes = LanesKind::kCpu;
    std::uint32_t bytes = 1024;
    std::uint64_t records = 4096;
    std::uint32_t epochs = 2;
    std::string array;  ///< of other processes; empty: one in this process
};

std::uint64_t sum_of(const Options& o, std::uint64_t index) {
    std::uint64_t sum = 0;
    for (std::uint32_t w = 0; w < (o.bytes - sizeof(Header)) / 8; ++w) sum += feature(index, w);
    return sum;
}

/// Writes the data set, as much at a time as the host keeps of it.
gnstor::Result<void> fill(gnstor::client::Volume& volume, const Options& o) {
    const std::uint64_t total = o.records * o.bytes;
    std::vector<std::byte> part(kFillBytes / o.bytes * o.bytes);  // whole records, and whole blocks
    for (std::uint64_t at = 0; at < total; at += part.size()) {
        const std::uint64_t used = std::min<std::uint64_t>(part.size(), total - at);
        const std::uint64_t blocks = (used + RecordReader::kBlockBytes - 1) / RecordReader::kBlockBytes;
        std::fill(part.begin() + static_cast<std::ptrdiff_t>(used), part.end(), std::byte{0});
        for (std::uint64_t here = 0; here < used; here += o.bytes) {
            const std::uint64_t index = (at + here) / o.bytes;
            std::byte* const record = part.data() + here;
            const Header header{index, sum_of(o, index)};
            std::memcpy(record, &header, sizeof header);
            for (std::uint32_t w = 0; w < (o.bytes - sizeof header) / 8; ++w) {
                const std::uint64_t value = feature(index, w);
                std::memcpy(record + sizeof header + std::size_t{w} * 8, &value, sizeof value);
            }
        }
        const auto bytes = std::span<const std::byte>(part).first(blocks * RecordReader::kBlockBytes);
        GN_TRY(volume.write(at / RecordReader::kBlockBytes, bytes));
    }
    return {};
}

/// Memory that the host and the lanes share, as an array of T.
template <class T>
gnstor::Result<gnstor::simt::PinnedMemory> map_array(std::uint64_t count, LanesKind lanes) {
    return gnstor::simt::PinnedMemory::map(count * sizeof(T), lanes);
}

/// All epochs on a volume that is filled. False: something is wrong, and has been said.
gnstor::Result<bool> train(const Options& o, gnstor::client::Client& client,
                           const gnstor::client::Volume& volume) {
    const bool gpu = o.lanes == LanesKind::kGpu;
    const std::uint64_t batches = (o.records + kBatch - 1) / kBatch;
    const auto warps = static_cast<std::uint32_t>(std::min<std::uint64_t>(gpu ? 16 : 2, batches));
    GN_ASSIGN(auto memory, client.map_buffer(std::size_t{warps} * kBatch * o.bytes));
    GN_ASSIGN(auto requests, map_array<gnstor::IoRequest>(std::uint64_t{warps} * kBatch, o.lanes));
    GN_ASSIGN(auto reports, map_array<WarpReport>(warps, o.lanes));
    GN_ASSIGN(auto order, map_array<std::uint64_t>(o.records, o.lanes));
    GN_ASSIGN(auto sums, map_array<std::uint64_t>(o.records, o.lanes));
    std::vector<std::uint64_t> indices(o.records);
    std::iota(indices.begin(), indices.end(), 0);
    std::mt19937_64 random(1);
    std::uint64_t good = 0, wrong = 0;
    double seconds = 0;
    for (std::uint32_t epoch = 0; epoch < o.epochs; ++epoch) {
        std::shuffle(indices.begin(), indices.end(), random);
        std::memcpy(order.data(), indices.data(), o.records * sizeof indices[0]);
        std::memset(sums.data(), 0, o.records * sizeof indices[0]);
        std::memset(reports.data(), 0, warps * sizeof(WarpReport));
        const Epoch kernel{{volume.ref(), o.bytes, o.records},
                           client.channels(),
                           reinterpret_cast<const std::uint64_t*>(order.lane_data()),
                           reinterpret_cast<std::uint64_t*>(sums.lane_data()),
                           memory.lane_data(),
                           reinterpret_cast<gnstor::IoRequest*>(requests.lane_data()),
                           reinterpret_cast<WarpReport*>(reports.lane_data()),
                           o.records,
                           warps};
        const auto began = std::chrono::steady_clock::now();
        GN_TRY(gnstor::simt::launch(o.lanes, warps, gpu ? gnstor::simt::kWarpLanes : 1, kernel));
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        for (std::uint32_t w = 0; w < warps; ++w) {
            WarpReport report;
            std::memcpy(&report, reports.data() + w * sizeof report, sizeof report);
            good += report.good;
            wrong += report.bad;
            if (report.status != 0)
                std::printf("record_reader: warp %u stopped: %s\n", w,
                            gnstor::nvme::status_name(static_cast<Status>(report.status)));
        }
        for (std::uint64_t place = 0; place < o.records; ++place) {
            std::uint64_t sum = 0;
            std::memcpy(&sum, sums.data() + place * sizeof sum, sizeof sum);
            wrong += sum != sum_of(o, indices[place]) ? 1 : 0;
        }
    }
    GN_TRY(memory.release());
    std::printf(
        "record_reader: %s lanes read %llu records of %u bytes in %u shuffled epochs, %.0f a second; %llu "
        "wrong\n",
        std::string(gnstor::simt::lanes_name(o.lanes)).c_str(), static_cast<unsigned long long>(good),
        o.bytes, o.epochs, static_cast<double>(good) / seconds, static_cast<unsigned long long>(wrong));
    return good == o.records * o.epochs && wrong == 0;
}

/// An array is the same thing to this program wherever it is.
gnstor::Result<std::unique_ptr<gnstor::client::Array>> open_array(const Options& o) {
    if (o.array.empty()) {
        GN_ASSIGN(auto embedded, gnstor::EmbeddedArray::open({}));
        return std::unique_ptr<gnstor::client::Array>(std::move(embedded));
    }
#if RECORD_READER_REMOTE
    GN_ASSIGN(auto remote, gnstor::RemoteArray::open({.array = o.array}));
    return std::unique_ptr<gnstor::client::Array>(std::move(remote));
#else
    return gnstor::error(gnstor::Errc::kUnsupported,
                         "--array needs the installed library's component remote, which was not found");
#endif
}

gnstor::Result<bool> run(const Options& o) {
    GN_ASSIGN(auto array, open_array(o));
    std::printf("record_reader: wire %s\n", array->wire().c_str());
    gnstor::client::ClientOptions client_options;
    client_options.name = "record_reader";
    client_options.lanes = o.lanes;
    GN_ASSIGN(auto client, array->connect(client_options));
    gnstor::client::CreateVolume request;
    request.name = "records-" + std::to_string(::getpid());
    request.capacity_bytes = o.records * o.bytes;
    GN_TRY(client->create(request));
    auto correct = [&]() -> gnstor::Result<bool> {
        {
            GN_ASSIGN(auto writer, client->open(request.name, gnstor::client::OpenMode::kWrite));
            GN_TRY(fill(*writer, o));
            GN_TRY(writer->release());
        }
        // Training reads alone: as many processes as like may do so at once.
        GN_ASSIGN(auto volume, client->open(request.name, gnstor::client::OpenMode::kRead));
        GN_ASSIGN(const bool good, train(o, *client, *volume));
        GN_TRY(volume->release());
        return good;
    }();
    // Others' arrays are left as they were.
    auto deleted = client->control().delete_volume(client->identity().id, request.name);
    if (correct.ok()) GN_TRY(std::move(deleted));
    return correct;
}

/// Whether `text` is a number of least .. most.
bool number(const char* text, long least, long most, auto& to) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most) return false;
    to = static_cast<std::remove_reference_t<decltype(to)>>(value);
    return true;
}

bool take(Options& o, std::string_view name, const char* value) {
    if (name == "--lanes") {
        const auto lanes = gnstor::simt::parse_lanes(value);
        if (lanes) o.lanes = *lanes;
        return lanes.ok();
    }
    if (name == "--bytes") return number(value, 512, 65536, o.bytes) && RecordReader::takes(o.bytes);
    if (name == "--records") return number(value, 1, 1'000'000, o.records);
    if (name == "--epochs") return number(value, 1, 1000, o.epochs);
    if (name != "--array" || *value == '\0') return false;
    o.array = value;
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 >= argc || !take(options, argv[i], argv[i + 1])) {
            std::fprintf(stderr,
                         "usage: record_reader [--lanes cpu|gpu] [--bytes 512|1024|2048|4096..65536] "
                         "[--records N] [--epochs N] [--array unix:SOCKET]\n");
            return 2;
        }
    const auto correct = run(options);
    if (!correct) {
        std::fprintf(stderr, "record_reader: %s\n", correct.error().message.c_str());
        return 1;
    }
    return *correct ? 0 : 1;
}
