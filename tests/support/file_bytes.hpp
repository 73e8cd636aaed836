// file_bytes.hpp: the contents of a file, read in one piece: tests are compiled without optimising, where a
// stream iterator takes seconds for a store.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace gnstor::test {

/// Empty where the file cannot be read.
inline std::string file_bytes(const std::filesystem::path& path) {
    std::error_code failed;
    const std::uintmax_t size = std::filesystem::file_size(path, failed);
    std::string bytes(failed ? 0 : size, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(file.gcount()));
    return bytes;
}

}  // namespace gnstor::test
