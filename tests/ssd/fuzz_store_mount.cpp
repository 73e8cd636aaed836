// Fuzzer: a good store with some bytes changed, mounted by the firmware: refused or repaired, never a crash,
// never wrong contents given as good. Input: 6 bytes a change (place 4, bits 1, whether checksums are set
// right 1).
#include "mutant_store.hpp"

#include <cstdio>

using namespace gnstor::ssd::testing;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const MutantStore good;
    MutantStore mutant = good;
    std::vector<Change> changes;
    for (std::size_t i = 0; i + 6 <= size && changes.size() < 32; i += 6) {
        std::uint32_t at = 0;
        std::memcpy(&at, data + i, sizeof at);
        // Half of the places are in what says where things are: head, metadata, records.
        const std::uint64_t where = (data[i + 5] & 2) != 0 ? at % good.superblock().data_offset : at;
        changes.push_back({where, data[i + 4], (data[i + 5] & 1) != 0});
    }
    const MutantStore::Outcome outcome = mutant.mount(changes);
    if (!outcome.wrong.empty()) {
        std::fprintf(stderr, "wrong contents given as good: %s\n", outcome.wrong.c_str());
        std::abort();
    }
    return 0;
}
