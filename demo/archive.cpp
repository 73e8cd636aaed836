// archive.cpp: chooses files, lets tar join them, reads back where each lies.
#include "archive.hpp"

#include "process.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

namespace gnstor::demo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTarBlock = 512;

std::uint64_t rounded_to_tar_block(std::uint64_t bytes) {
    return (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
}

/// Regular, readable, non-empty files below `root` in order of path, as long as their archive stays within
/// `bytes_max`.
std::vector<fs::path> choose_files(const fs::path& root, std::uint64_t bytes_max) {
    std::vector<fs::path> files;
    std::error_code ignored;
    for (auto it =
             fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, ignored);
         it != fs::recursive_directory_iterator(); it.increment(ignored))
        if (it->is_regular_file(ignored) && !it->is_symlink(ignored)) files.push_back(it->path());
    std::sort(files.begin(), files.end());
    std::vector<fs::path> chosen;
    std::uint64_t total = 20 * kTarBlock;  // tar pads its end to a record
    for (const fs::path& file : files) {
        const std::uint64_t bytes = fs::file_size(file, ignored);
        if (ignored || bytes == 0 || !std::ifstream(file)) continue;
        const std::uint64_t in_archive = 3 * kTarBlock + rounded_to_tar_block(bytes);
        if (total + in_archive > bytes_max) continue;
        total += in_archive;
        chosen.push_back(file);
    }
    return chosen;
}

/// A number of a tar header: octal text, or base 256 when the top bit is set (POSIX.1-1988 ustar; GNU
/// extension).
std::uint64_t tar_number(const char* field, std::size_t width) {
    std::uint64_t value = 0;
    if ((static_cast<unsigned char>(field[0]) & 0x80u) != 0) {
        for (std::size_t i = 1; i < width; ++i) value = (value << 8) | static_cast<unsigned char>(field[i]);
        return value;
    }
    for (std::size_t i = 0; i < width && field[i] != '\0'; ++i)
        if (field[i] >= '0' && field[i] <= '7')
            value = value * 8 + static_cast<std::uint64_t>(field[i] - '0');
    return value;
}

Result<std::vector<Member>> read_members(const fs::path& path, std::uint64_t bytes) {
    std::ifstream file(path, std::ios::binary);
    std::vector<Member> members;
    std::string long_name;
    std::array<char, kTarBlock> header{};
    for (std::uint64_t at = 0; at + kTarBlock <= bytes;) {
        file.seekg(static_cast<std::streamoff>(at));
        if (!file.read(header.data(), kTarBlock))
            return error(Errc::kIo, "cannot read the archive {} at offset {}", path.string(), at);
        if (header[0] == '\0') break;
        const std::uint64_t size = tar_number(&header[124], 12);
        const char type = header[156];
        if (type == 'L') {  // GNU: the next member's name
            long_name.resize(size);
            file.read(long_name.data(), static_cast<std::streamsize>(size));
            while (!long_name.empty() && long_name.back() == '\0') long_name.pop_back();
        } else {
            const std::string short_name(header.data(), strnlen(header.data(), 100));
            if (type == '0' || type == '\0')
                members.push_back({at + kTarBlock, size, long_name.empty() ? short_name : long_name});
            long_name.clear();
        }
        const bool has_data = type == '0' || type == '\0' || type == 'L';
        at += kTarBlock + (has_data ? rounded_to_tar_block(size) : 0);
    }
    return members;
}

}  // namespace

const Member* Archive::member_at(std::uint64_t offset) const {
    auto after = std::upper_bound(members.begin(), members.end(), offset,
                                  [](std::uint64_t o, const Member& m) { return o < m.offset; });
    if (after == members.begin()) return nullptr;
    const Member& m = *std::prev(after);
    return offset < m.offset + m.bytes ? &m : nullptr;
}

Result<Archive> make_archive(const fs::path& input, const fs::path& work, std::uint64_t bytes_max) {
    std::error_code failed;
    if (fs::is_regular_file(input, failed)) {
        const std::uint64_t bytes = fs::file_size(input, failed);
        if (bytes == 0)
            return error(Errc::kInvalidArgument, "{} is empty; name a file with contents with --input",
                         input.string());
        if (bytes > bytes_max)
            return error(
                Errc::kInvalidArgument,
                "{} has {} bytes, but the demo takes at most {}; name a smaller file with --input, or "
                "raise --max-bytes",
                input.string(), bytes, bytes_max);
        return Archive{input, bytes, {{0, bytes, input.string()}}};
    }
    if (!fs::is_directory(input, failed))
        return error(Errc::kNotFound,
                     "{} is neither a file nor a folder; name a file or a folder with --input",
                     input.string());
    const std::vector<fs::path> files = choose_files(input, bytes_max);
    if (files.empty())
        return error(Errc::kNotFound,
                     "there is no readable file of a suitable size below {}; choose another --input",
                     input.string());
    const fs::path list = work / "files.list";
    const fs::path path = work / "input.tar";
    {
        std::ofstream out(list, std::ios::binary);
        for (const fs::path& f : files) out << f.string() << '\0';
        if (!out.flush()) return error(Errc::kIo, "cannot write {}; is the file system full?", list.string());
    }
    GN_ASSIGN(const ProcessOutput tar,
              run_process({"tar", "--create", "--format=gnu", "--absolute-names", "--null", "--no-recursion",
                           "--hard-dereference", "--file", path.string(), "--files-from", list.string()},
                          120'000));
    if (tar.exit_code > 1)  // 1: a file changed while it was read; the archive is whole
        return error(Errc::kIo, "tar ended with exit status {} while archiving {}", tar.exit_code,
                     input.string());
    const std::uint64_t bytes = fs::file_size(path, failed);
    if (failed) return error(Errc::kIo, "tar made no archive at {}", path.string());
    GN_ASSIGN(std::vector<Member> members, read_members(path, bytes));
    return Archive{path, bytes, std::move(members)};
}

}  // namespace gnstor::demo
