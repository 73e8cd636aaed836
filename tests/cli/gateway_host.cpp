// gateway_host.cpp: an ordinary NVMe host as a program, for tests of gateway processes. It connects, executes
// the commands that its arguments name, and prints the status of each:
//
//     gateway_host ADDRESS NQN [keys:FILE] (write:BLOCK | flush | writes)...
//
// FILE holds the host's key in its first line and the gateway's in its second. `writes` ends when the gateway
// ends the queue.
#include "client/udp_host.hpp"
#include "nvmf/host/host.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/simt/time.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

Result<std::shared_ptr<const nvmf::HostAuthentication>> read_keys(const std::string& file) {
    GN_ASSIGN(const std::string text, read_private_file(file, 4096, {"file of keys", "make others"}));
    const std::size_t end = text.find('\n'), second = text.find('\n', end + 1);
    GN_ASSIGN(nvmf::HostAuthentication keys,
              nvmf::parse_host_authentication(text.substr(0, end), text.substr(end + 1, second - end - 1)));
    return std::make_shared<const nvmf::HostAuthentication>(std::move(keys));
}

/// Writes the same block until the gateway ends the queue.
Result<void> write_on(nvmf::HostQueue& queue) {
    GN_ASSIGN(const nvme::Status first, carry_out(queue, "write:1"));
    std::printf("writes: %s\n", nvme::status_name(first));
    (void)std::fflush(stdout);
    const std::uint64_t end = simt::now_ns() + kWaitNs;
    while (simt::now_ns() < end)
        if (!carry_out(queue, "write:1").ok()) return {};
    return error(Errc::kTimedOut, "the gateway did not end the queue");
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
    std::size_t next = 2;
    if (words[next].starts_with("keys:")) {
        GN_ASSIGN(options.authentication, read_keys(words[next++].substr(5)));
    }
    GN_ASSIGN(const auto controller, nvmf::HostController::connect(host->nic(), options));
    GN_ASSIGN(const auto queue, controller->open_io_queue(1, 16));
    for (std::size_t i = next; i < words.size(); ++i) {
        if (words[i] == "writes") {
            GN_TRY(write_on(*queue));
            continue;
        }
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
