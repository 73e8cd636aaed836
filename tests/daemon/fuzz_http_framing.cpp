// fuzz_http_framing.cpp: any bytes as a connection's: the same requests end at the same places in whatever
// pieces they came, within the limits. The first byte chooses the size of the pieces.
#include "daemon/http/request_parser.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

using namespace gnstor::daemon;
using State = RequestParser::State;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::size_t step = data[0] % 32 + 1;
    std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    for (;;) {
        RequestParser at_once, piecewise;
        const State state = at_once.look(bytes);
        State in_pieces = piecewise.look({});
        for (std::size_t n = 0; n < bytes.size() && in_pieces == State::kMore;) {
            n = std::min(n + step, bytes.size());
            in_pieces = piecewise.look(bytes.substr(0, n));
        }
        if (in_pieces != state || piecewise.head_bytes() != at_once.head_bytes() ||
            piecewise.body_bytes() != at_once.body_bytes() ||
            piecewise.refusal().status != at_once.refusal().status ||
            piecewise.request().target != at_once.request().target ||
            piecewise.request().authorization != at_once.request().authorization ||
            piecewise.keeps_connection() != at_once.keeps_connection())
            std::abort();
        const std::size_t head = at_once.head_bytes(), whole = head + at_once.body_bytes();
        if (head > kMaxHeadBytes || at_once.body_bytes() > kMaxBodyBytes) std::abort();
        if (state == State::kRefused && at_once.refusal().status / 100 != 4) std::abort();
        if (state != State::kWhole) return 0;
        if (whole > bytes.size() || head < 4 || bytes.substr(head - 4, 4) != "\r\n\r\n" ||
            bytes.find("\r\n\r\n") != head - 4)
            std::abort();
        bytes.remove_prefix(whole);
    }
}
