// oracle.cpp: grep's offsets and the CPU's CRCs.
#include "oracle.hpp"

#include "process.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace gnstor::demo {

Result<std::vector<std::uint64_t>> grep_offsets(const std::filesystem::path& file,
                                                const std::string& pattern) {
    GN_ASSIGN(const ProcessOutput grep,
              run_process({"grep", "-obUaF", "-e", pattern, "--", file.string()}, 120'000));
    if (grep.exit_code > 1)
        return error(Errc::kIo, "grep ended with exit status {} on {}", grep.exit_code, file.string());
    std::vector<std::uint64_t> offsets;
    const char* at = grep.out.c_str();
    while (*at != '\0') {
        char* end = nullptr;
        offsets.push_back(std::strtoull(at, &end, 10));
        if (end == at || *end != ':')
            return error(Errc::kCorrupt, "grep printed a line that does not begin with a byte offset");
        at = end + 1 + pattern.size();
        if (*at == '\n') ++at;
    }
    return offsets;
}

Result<std::vector<std::uint32_t>> block_crcs(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) return error(Errc::kIo, "cannot open {}", file.string());
    std::vector<std::uint32_t> crcs;
    std::vector<char> block(nvme::kBlockBytes);
    while (true) {
        std::memset(block.data(), 0, block.size());
        in.read(block.data(), static_cast<std::streamsize>(block.size()));
        if (in.gcount() == 0) break;
        crcs.push_back(crc32c(block.data(), block.size()));
    }
    return crcs;
}

std::vector<std::uint64_t> without_overlaps(std::vector<std::uint64_t> sorted, std::size_t pattern_bytes) {
    std::vector<std::uint64_t> kept;
    for (const std::uint64_t offset : sorted)
        if (kept.empty() || offset >= kept.back() + pattern_bytes) kept.push_back(offset);
    return kept;
}

}  // namespace gnstor::demo
