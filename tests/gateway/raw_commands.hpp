// raw_commands.hpp: any bytes as commands in the queues of a gateway, with what must hold whatever they are.
//
// As in a drive's queue, the address of the data is the target's and can be trusted; length, flags and every
// dword are a stranger's. Each command has memory of its own and exactly of the length that it says, so that
// a sanitizer sees a byte too many. What must hold: each command ends, once, but for the event requests
// that a controller holds; what is written is not changed by that.
#pragma once

#include "nvmf/loop_rig.hpp"
#include "nvmf/protocol/capsule.hpp"
#include "ssd/drive/admin.hpp"
#include "ssd/queues/nvme_device.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace gnstor::test {

class RawCommands {
  public:
    explicit RawCommands(ssd::NvmeDevice& device, Reactor& reactor) : device_(device), reactor_(reactor) {}

    /// 66 bytes a command: which queue, how its length is chosen, the entry. Returns how many were given.
    std::uint32_t feed(std::span<const std::uint8_t> bytes) {
        constexpr std::size_t kStep = 2 + sizeof(nvme::Command);
        queues_[0] = device_.create_queue(0, kDepth, 0, ssd::Priority::kMedium, false).value();
        queues_[1] = device_.create_queue(1, kDepth, 0, ssd::Priority::kMedium, false).value();
        std::uint32_t given = 0;
        for (; bytes.size() >= kStep && given < kCommandsMost; bytes = bytes.subspan(kStep), ++given)
            give(bytes.first(kStep));
        require(nvmf::eventually([this] { return settled(); }, 60), "a command does not end");
        for (ssd::NvmeQueue*& queue : queues_) {
            const auto gone = device_.delete_queue(queue);
            require(gone.ok(), "a queue does not go");
        }
        for (const Given& g : given_)
            require(g.before.empty() || g.before == g.data, "what a host writes was changed");
        given_.clear();
        event_requests_ = 0;
        return given;
    }
    std::uint64_t succeeded = 0, refused = 0;

  private:
    static constexpr std::uint32_t kDepth = 64;
    static constexpr std::uint32_t kCommandsMost = 24;

    struct Given {
        bool admin = false, ended = false;
        std::vector<std::byte> data;
        std::vector<std::byte> before;  ///< of `data`, where the command only reads it
    };

    static void require(bool holds, const char* what) {
        if (holds) return;
        std::fprintf(stderr, "%s\n", what);
        std::abort();
    }

    void give(std::span<const std::uint8_t> bytes) {
        nvme::Command command;
        std::memcpy(&command, bytes.data() + 2, sizeof command);
        Given g;
        g.admin = (bytes[0] & 3) == 0;
        const auto kind = g.admin ? nvmf::QueueKind::kAdmin : nvmf::QueueKind::kIo;
        if ((bytes[0] & 0x10) == 0) {
            command.flags = nvme::kFlagsSgl;
            command.namespace_id = 1;
        }
        const nvmf::DataNeed need = nvmf::data_need(kind, command, ssd::Dialect::kPlain);
        // Mostly what the command needs, as a target would have it; else any length.
        std::uint32_t length = need.bytes;
        if ((bytes[1] & 7) == 0) length = std::uint32_t{bytes[1]} * 521;
        length = std::min(length, nvmf::kTransferBytesMax + nvme::kBlockBytes);
        g.data.resize(length);
        for (std::size_t i = 0; i < g.data.size(); ++i)
            g.data[i] = static_cast<std::byte>(bytes[2 + i % sizeof command]);
        const bool reads = (command.opcode & 3u) == 2;  // data goes to the host
        if (!reads) g.before = g.data;
        command.command_id = static_cast<std::uint16_t>(given_.size());
        const std::uint8_t type = (bytes[0] & 0x20) == 0 ? nvme::kSglDataBlockAddress : command.data.type;
        const bool trusted = type == nvme::kSglDataBlockAddress;
        if (trusted)
            command.data = nvme::SglDescriptor::unkeyed(
                type, length == 0 ? 0 : reinterpret_cast<std::uintptr_t>(g.data.data()), length);
        if (command.opcode == static_cast<std::uint8_t>(nvme::AdminOpcode::kAsyncEventRequest) && g.admin)
            ++event_requests_;
        ssd::NvmeQueue& queue = *queues_[g.admin ? 0 : 1];
        given_.push_back(std::move(g));
        require(queue.submit(command), "the queue is full");
        reactor_.wake();
    }

    bool settled() {
        nvme::Completion completion{};
        for (std::size_t i = 0; i < 2; ++i)
            while (queues_[i]->reap(completion)) {
                require(completion.command_id < given_.size(), "an answer to no command");
                Given& g = given_[completion.command_id];
                require(!g.ended && g.admin == (i == 0), "a second answer");
                g.ended = true;
                ++(nvme::ok(completion.result()) ? succeeded : refused);
            }
        std::uint32_t open = 0;
        for (const Given& g : given_) open += g.ended ? 0 : 1;
        return open <= std::min(event_requests_, ssd::kAsyncEventRequests);
    }

    ssd::NvmeDevice& device_;
    Reactor& reactor_;
    ssd::NvmeQueue* queues_[2] = {};
    std::vector<Given> given_;
    std::uint32_t event_requests_ = 0;
};

}  // namespace gnstor::test
