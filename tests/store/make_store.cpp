// make_store.cpp: makes a small store with the firmware's shards and says what each block holds. For
// checker_test.py.
//
//   make_store STORE SEED CHANGES closed|killed SERVICE_UNITS [FORMAT_VERSION]
//
// Random writes, trims and polls on two volumes, enough of them and units are collected and used again.
// `closed`: as a drive closes; `killed`: everything acknowledged, nothing closed. Output: a line "vid vba
// sequence" for each block that holds something.
#include "ssd/shard_store.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

using namespace gnstor;
using namespace gnstor::ssd;
using namespace gnstor::ssd::testing;  // NOLINT: the rig's names

int main(int argc, char** argv) {
    if (argc != 6 && argc != 7) {
        std::fprintf(stderr,
                     "usage: make_store STORE SEED CHANGES closed|killed SERVICE_UNITS [FORMAT_VERSION]\n");
        return 2;
    }
    const auto number = [&](int i) { return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)); };
    auto opened = ShardStore::open(argv[1], number(5), argc == 7 ? number(6) : kStoreFormatVersion);
    if (!opened.ok()) {
        std::fprintf(stderr, "make_store: %s\n", opened.error().message.c_str());
        return 1;
    }
    ShardStore& store = **opened;
    SplitMix64 random(std::strtoull(argv[2], nullptr, 10));
    std::map<std::pair<unsigned, unsigned>, std::uint64_t> holds;
    for (std::uint64_t left = std::strtoull(argv[3], nullptr, 10); left > 0; --left) {
        const nvme::VolumeId volume = kVolumes[random.below(2)];
        const auto blocks = static_cast<std::uint32_t>(random.below(4) == 0 ? random.below(8) + 1 : 1);
        const auto first = static_cast<std::uint32_t>(random.below(kVolumeBlocks - blocks + 1));
        const bool trim = random.below(10) == 0;
        const nvme::Status status =
            trim ? store.trim(volume, first, blocks) : store.write(volume, first, blocks);
        if (!nvme::ok(status)) {
            std::fprintf(stderr, "make_store: sequence %llu: %s\n",
                         static_cast<unsigned long long>(store.sequence), nvme::status_name(status));
            return 1;
        }
        for (std::uint32_t i = 0; i < blocks; ++i) {
            if (trim)
                holds.erase({volume, first + i});
            else
                holds[{volume, first + i}] = store.sequence;
        }
        // A floor now and then, so that trims may be forgotten.
        if (left % 50 == 0) store.resolve();
        for (std::uint64_t polls = random.below(3); polls > 0; --polls) store.poll();
    }
    if (std::string(argv[4]) == "closed") store.close();
    for (const auto& [block, sequence] : holds)
        std::printf("%u %u %llu\n", block.first, block.second, static_cast<unsigned long long>(sequence));
    std::fflush(stdout);
    // As a kill would: nothing is said to the store any more.
    if (std::string(argv[4]) != "closed") ::_exit(0);
    return 0;
}
