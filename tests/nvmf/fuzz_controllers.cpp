// fuzz_controllers.cpp: any sequence of connection requests, Connects, properties, features, silences and
// departures.
//
// Each step takes an opcode byte and its bytes from the input. What must hold whatever comes: a binding
// carries the client that its host NQN names and is privileged only for the admin host, and then only on the
// admin queue; a queue id is bound once.
#include "nvmf/target/controllers.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

using namespace gnstor;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    [[nodiscard]] bool empty() const { return size_ == 0; }
    std::uint8_t byte() {
        if (size_ == 0) return 0;
        --size_;
        return *data_++;
    }
    template <class T>
    void fill(T& record) {
        const std::size_t n = std::min(size_, sizeof record);
        std::memset(static_cast<void*>(&record), 0, sizeof record);
        std::memcpy(static_cast<void*>(&record), data_, n);
        data_ += n;
        size_ -= n;
    }

  private:
    const std::uint8_t* data_;
    std::size_t size_;
};

constexpr const char* kSubsystem = "nqn.2026-11.io.gnstor:ssd:x";

/// Mostly a request that makes sense, with one field out of the input.
nvmf::ConnectRequest request(Input& in, std::uint16_t controller) {
    nvmf::ConnectRequest r;
    const std::uint8_t shape = in.byte();
    r.queue_id = shape & 3;
    r.sq_size = 15;
    r.keep_alive_ms = in.byte();
    r.host_id = {1};
    r.controller_id = r.queue_id == 0 ? nvme::kAnyController : controller;
    r.subsystem_nqn = kSubsystem;
    r.host_nqn =
        (shape & 4) != 0 ? std::string{nvmf::kAdminHostNqn} : nvmf::client_host_nqn(1 + (shape >> 6));
    if ((shape & 8) != 0) r.host_id[0] = in.byte();
    if ((shape & 16) != 0) r.sq_size = in.byte();
    if ((shape & 32) != 0) r.queue_id = in.byte();
    return r;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input in(data, size);
    nvmf::Controllers controllers(
        kSubsystem, {.queues = {.admin_entries_max = 32, .io_entries_max = 64, .io_queues_max = 3},
                     .controllers_max = 3,
                     .admin_host_nqn = std::string{nvmf::kAdminHostNqn}});
    std::map<std::pair<std::uint16_t, std::uint16_t>, nvmf::QueueBinding> bound;
    std::uint64_t now = 0;
    const auto connect = [&](const nvmf::ConnectRequest& r, const nvmf::TransportRequest& t) {
        const auto outcome = controllers.connect(r, t, now);
        if (!nvme::ok(outcome.status)) return;
        const nvmf::QueueBinding& b = outcome.binding;
        require(b.queue_id == r.queue_id && b.queue_id == t.queue_id);
        require(b.client == nvmf::client_of_host_nqn(r.host_nqn).value_or(0));
        require(!b.privileged || (b.queue_id == 0 && r.host_nqn == nvmf::kAdminHostNqn));
        require(bound.emplace(std::pair{b.controller_id, b.queue_id}, b).second);
        require(b.queue_id == 0 || bound.contains({b.controller_id, 0}));
    };
    while (!in.empty()) {
        const std::uint8_t step = in.byte();
        const auto id = static_cast<std::uint16_t>(in.byte() % 8);
        nvme::Command command{};
        switch (step % 8) {
            case 0: {
                const auto r = request(in, id);
                connect(r, {r.queue_id, 16, 0});
                break;
            }
            case 1: {  // the wire's own bytes
                nvme::ConnectData record;
                in.fill(command);
                in.fill(record);
                const auto verdict = nvmf::parse_connect(
                    command, std::as_bytes(std::span<const nvme::ConnectData, 1>(&record, 1)));
                if (nvme::ok(verdict.status)) connect(verdict.request, {verdict.request.queue_id, 16, 0});
                break;
            }
            case 2: {
                std::array<std::byte, 40> bytes;
                in.fill(bytes);
                const auto verdict =
                    nvmf::check_transport_request(std::span(bytes).first(in.byte() % 41), {});
                require(verdict.reject || verdict.request.entries >= 2);
                break;
            }
            case 3:
                in.fill(command);
                (void)controllers.property_get(id, command);
                if (controllers.property_set(id, command).close_io_queues)
                    std::erase_if(bound, [&](const auto& b) {
                        const bool goes = b.first.first == id && b.first.second != 0;
                        if (goes) controllers.disconnect(id, b.first.second);
                        return goes;
                    });
                break;
            case 4:
                in.fill(command);
                (void)controllers.set_feature(id, command, now);
                (void)controllers.get_feature(id, command);
                break;
            case 5:
                now += std::uint64_t{in.byte()} * 10'000'000u;
                for (const std::uint16_t gone : controllers.expire(now)) require(!controllers.ready(gone));
                break;
            case 6: {
                const auto queue = static_cast<std::uint16_t>(in.byte() & 3);
                controllers.disconnect(id, queue);
                std::erase_if(bound, [&](const auto& b) {
                    return b.first.first == id && (queue == 0 || b.first.second == queue);
                });
                break;
            }
            default:
                (void)controllers.keep_alive(id, now);
                // Enabling by the shortest way, so that I/O queues are reached.
                command.cdw11 = 0x14;
                command.cdw12 =
                    nvme::Configuration{.enable = true, .sq_entry_log2 = 6, .cq_entry_log2 = 4}.encode();
                (void)controllers.property_set(id, command);
        }
        require(controllers.size() <= 3);
    }
    return 0;
}
