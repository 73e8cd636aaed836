// capture_tool.cpp: traffic of two drivers for another program to judge (capture_test.py).
//
//   udp_capture_tool PORT SEED   connects on 127.0.0.2 and 127.0.0.3 at PORT, sends every kind of request, is
//                                refused, uses a wrong key, hangs up; prints each packet that was sent, as a
//                                whole IP datagram in hexadecimal, one a line
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "rdma/udp/rig.hpp"

using namespace gnstor;
using namespace gnstor::rdma::udp;
namespace roce = gnstor::rdma::roce;
using roce::RequestKind;

namespace {

/// Prints what goes out.
class PrintingTap final : public Tap {
  public:
    bool on_packet(bool sent, const roce::NetworkHeaders& headers,
                   std::span<const std::byte> payload) override {
        if (!sent) return true;
        std::string line;
        for (const auto part : {headers.bytes(), payload}) {
            for (const std::byte b : part) line += fmt::format("{:02x}", std::to_integer<unsigned>(b));
        }
        const std::lock_guard lock(mutex_);
        std::puts(line.c_str());
        return true;
    }

  private:
    static inline std::mutex mutex_;
};

bool require(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "udp_capture_tool: %s\n", what);
    return holds;
}

/// Requests of every kind from `own`, one after another.
bool talk(rig::FakeEndpoint& own, SplitMix64& dice, std::uint64_t count) {
    std::vector<std::byte> bytes(9000);
    for (std::uint64_t id = 1; id <= count; ++id) {
        const std::span<std::byte> part =
            std::span(bytes).first(dice.below(id % 3 == 0 ? bytes.size() : 100));
        rig::fill(part, dice.next());
        roce::Request request;
        switch (id % 4) {
            case 0:
                request = rig::request(RequestKind::kWrite, id, part, 100);
                break;
            case 1:
                request = rig::request(RequestKind::kRead, id, part, 100);
                break;
            case 2:
                request = rig::request(RequestKind::kSend, id, part);
                request.solicited = id % 8 == 2;
                break;
            default:
                request = rig::request(RequestKind::kSendInvalidate, id, part);
                request.invalidate_rkey = rig::kKey;
                break;
        }
        if (!own.post(request).ok() || !own.await_completions(id) || !own.bad.empty())
            return require(false, "a request failed");
    }
    return true;
}

bool run(std::uint16_t port, std::uint64_t seed) {
    SplitMix64 dice(seed);
    const auto left_reactor = std::move(Reactor::start("gn-left")).value();
    const auto right_reactor = std::move(Reactor::start("gn-right")).value();
    auto left = Driver::open({.address = "127.0.0.2", .port = port, .mtu = 1024}, *left_reactor);
    auto right = Driver::open({.address = "127.0.0.3", .port = port, .mtu = 4096}, *right_reactor);
    if (!left.ok() || !right.ok()) return require(false, "cannot open");
    PrintingTap left_tap, right_tap;
    (*left)->set_tap(&left_tap);
    (*right)->set_tap(&right_tap);
    rig::FakeAcceptor acceptor(*right_reactor);
    acceptor.receives = 4;
    acceptor.receive_bytes = 9000;
    rig::FakeEndpoint endpoint(*left_reactor), wrong(*left_reactor);
    endpoint.post_receives(4, 9000);
    const auto connect = [&](rig::FakeEndpoint& one, std::uint32_t qp) {
        return (*left)->connect(qp, one, "127.0.0.3", 4420, {}, {}, 30'000, one.link).ok();
    };
    if (!require(!connect(endpoint, 7), "connected to nobody")) return false;
    if (!(*right)->listen(4420, acceptor).ok() || !connect(endpoint, 7) || !connect(wrong, 8))
        return require(false, "cannot connect");
    rig::FakeEndpoint* const other = acceptor.await_link(0);
    if (other == nullptr || !talk(endpoint, dice, 200) || !talk(*other, dice, 200)) return false;
    std::vector<std::byte> bytes(2000);
    if (!wrong.post(rig::request(RequestKind::kWrite, 1, bytes, 0, rig::kReadOnlyKey)).ok() ||
        !wrong.await([&] { return wrong.failed.has_value(); }))
        return require(false, "a wrong key did no harm");
    endpoint.close();
    const bool ended = other->await([&] { return other->failed.has_value(); });
    (*right)->unlisten(4420);
    (*left)->set_tap(nullptr);
    (*right)->set_tap(nullptr);
    return require(ended, "the peer was not told of the end");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    return run(static_cast<std::uint16_t>(std::atoi(argv[1])), std::strtoull(argv[2], nullptr, 0)) ? 0 : 1;
}
