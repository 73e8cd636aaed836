#include "daemon/http/socket_table.hpp"

#include <charconv>
#include <cstring>
#include <iterator>
#include <sstream>

namespace gnstor::daemon {
namespace {

template <class Number>
bool read_number(std::string_view text, int base, Number& number) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, base);
    return !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::optional<in6_addr> address_of(const SocketRow& row) {
    // Words of 32 bits, each printed as a number of this machine's byte order.
    const std::size_t words = row.address.size() / 8;
    if (row.address.size() % 8 != 0 || (words != 1 && words != 4)) return std::nullopt;
    in6_addr address{};
    address.s6_addr[10] = address.s6_addr[11] = words == 1 ? 0xff : 0;
    for (std::size_t w = 0; w < words; ++w) {
        std::uint32_t word = 0;
        if (!read_number(std::string_view(row.address).substr(8 * w, 8), 16, word)) return std::nullopt;
        std::memcpy(&address.s6_addr[words == 1 ? 12 : 4 * w], &word, sizeof word);
    }
    return address;
}

std::vector<SocketRow> read_socket_table(std::string_view table) {
    std::vector<SocketRow> rows;
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream in(line);
        const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
        // sl, local address, remote address, state, queues, timer, retransmissions, uid, timeout, inode
        if (words.size() < 10) continue;
        const std::string_view local = words[1];
        const std::size_t colon = local.rfind(':');
        if (colon == std::string_view::npos) continue;
        SocketRow row;
        row.address = local.substr(0, colon);
        const bool good = read_number(local.substr(colon + 1), 16, row.port) &&
                          read_number(words[3], 16, row.state) && read_number(words[7], 10, row.user) &&
                          read_number(words[9], 10, row.inode);
        if (good) rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace gnstor::daemon
