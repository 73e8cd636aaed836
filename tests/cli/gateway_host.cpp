// gateway_host.cpp: an ordinary NVMe host as a program, for tests of gateway processes: connects, carries out
// what its words say and prints the status of each: gateway_host ADDRESS NQN write:BLOCK|flush ...
#include "client/udp_host.hpp"
#include "nvmf/host/host.hpp"

#include <gnstor/simt/time.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace gnstor {
namespace {

constexpr std::uint64_t kWaitNs = 100'000'000'000;

nvme::Command command_of(std::string_view word) {
    nvme::Command c{};
    c.flags = nvme::kFlagsSgl;
    c.namespace_id = 1;
    c.command_id = 1;
    c.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kFlush);
    if (word == "flush") return c;
    c.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kWrite);
    c.cdw10 = static_cast<std::uint32_t>(std::strtoul(word.substr(6).data(), nullptr, 10));
    c.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, nvme::kBlockBytes);
    return c;
}

Result<nvme::Status> carry_out(nvmf::HostQueue& queue, std::string_view word) {
    const nvme::Command command = command_of(word);
    const std::vector<std::byte> data(word == "flush" ? 0 : nvme::kBlockBytes, std::byte{0x5A});
    const std::uint64_t end = simt::now_ns() + kWaitNs;
    auto posted = queue.post(command, data);
    nvme::Completion completion{};
    while (simt::now_ns() < end && !queue.broken()) {
        if (posted == nvmf::HostQueue::Posted::kFull) posted = queue.post(command, data);
        if (queue.poll(completion)) return completion.result();
        std::this_thread::yield();
    }
    return error(Errc::kTimedOut, "no answer to {}", word);
}

Result<void> run(const std::vector<std::string>& words) {
    GN_ASSIGN(const auto host, client::UdpHost::open("", words[0]));
    nvmf::HostOptions options;
    options.peer_address = words[0];
    options.service = "4420";
    options.subsystem_nqn = words[1];
    options.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    options.host_id = {7};
    options.timeout_ms = 60'000;
    GN_ASSIGN(const auto controller, nvmf::HostController::connect(host->nic(), options));
    GN_ASSIGN(const auto queue, controller->open_io_queue(1, 16));
    for (std::size_t i = 2; i < words.size(); ++i) {
        GN_ASSIGN(const nvme::Status status, carry_out(*queue, words[i]));
        std::printf("%s: %s\n", words[i].c_str(), nvme::status_name(status));
    }
    return {};
}

}  // namespace
}  // namespace gnstor

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 3) return 2;
    const auto done = gnstor::run(words);
    if (!done.ok()) std::fprintf(stderr, "gateway_host: %s\n", done.error().message.c_str());
    return done.ok() ? 0 : 1;
}
