// raw_admin.hpp: any bytes as admin and fabrics commands, through a connection, to a drive's controller and
// to a discovery controller; for a seeded test and a fuzzer.
//
// What must hold whatever comes: every command but a held event request is answered once, under its id; no
// byte beyond what the SGL names is touched, and none of the NIC's rubbish arrives; the discovery log and
// Identify Controller say at any offset and length what they say as a whole; a host without a client's name
// gets no vendor command through; a controller that is left alone goes on.
#pragma once

#include "loop_rig.hpp"
#include "stock_host.hpp"

#include <gnstor/nvme/discovery.hpp>

#include <algorithm>
#include <set>

namespace gnstor::nvmf {

class RawAdmin {
  public:
    RawAdmin() : rig_(options()), memory_(std::make_unique<Buffer>(rig_.host_nic(), kMemory)) {
        for (std::size_t i = 0; i < 2; ++i) {
            reopen(i);
            truth_[i].resize(kPage);
            require(nvme::ok(stock_[i]->identify(1, 0, truth_[i]).result()), "Identify Controller");
        }
        log_.resize(sizeof(nvme::DiscoveryLogHeader) + sizeof(nvme::DiscoveryEntry));
        require(nvme::ok(stock_[1]->get_log(0x70, 0, log_).result()), "the discovery log");
    }

    void feed(std::span<const std::uint8_t> bytes) {
        in_ = bytes;
        while (in_.size() >= 4) step();
        for (std::size_t i = 0; i < 2; ++i) {
            if (broken(i)) reopen(i);
            require(alive(i), "a keep-alive after all that");
        }
    }
    [[nodiscard]] std::uint64_t commands() const { return commands_; }
    [[nodiscard]] std::uint64_t good() const { return good_; }
    [[nodiscard]] std::uint64_t compared() const { return compared_; }

  private:
    static constexpr std::size_t kMemory = 64u << 10;
    static constexpr std::size_t kPage = 4096;
    static constexpr std::byte kMark{0x5C};

    static RigOptions options() {
        RigOptions o;
        o.strict = false;
        o.one_reactor = true;
        o.manual_clock = true;  // no controller expires but by what it was told
        o.late_windows = 2;
        o.target.ports = {{"4420", ""}};
        return o;
    }
    static void require(bool holds, const char* what) {
        if (holds) return;
        std::fprintf(stderr, "raw admin commands: %s\n", what);
        std::abort();
    }
    void reopen(std::size_t i) {
        StockOptions o;
        o.subsystem_nqn = i == 0 ? rig_.target().subsystem_nqn(0) : std::string{kDiscoveryNqn};
        o.keep_alive_s = 0;
        held_[i].clear();
        stock_[i] = std::make_unique<StockHost>(rig_.host_nic(), o);
        require(nvme::ok(stock_[i]->connect_admin().result()), "Connect");
        stock_[i]->enable();
    }
    [[nodiscard]] bool broken(std::size_t i) { return stock_[i]->admin().queue().broken(); }
    bool alive(std::size_t i) {
        nvme::Completion answer{};
        return exchange(i, stock_command(0x18), answer) && nvme::ok(answer.result());
    }

    std::uint8_t byte() {
        if (in_.empty()) return 0;
        const std::uint8_t b = in_.front();
        in_ = in_.subspan(1);
        return b;
    }
    std::uint32_t word() {
        std::uint32_t v = 0;
        for (int i = 0; i < 4; ++i) v = (v << 8) | byte();
        return v;
    }

    nvme::Command make(std::uint8_t shape) {
        constexpr std::uint8_t kOpcodes[] = {0x06, 0x02, 0x02, 0x0A, 0x09, 0x7F,
                                             0x08, 0x0C, 0x18, 0xC1, 0xCE};
        nvme::Command c = stock_command(kOpcodes[shape % std::size(kOpcodes)]);
        const std::uint8_t wild = byte();
        if ((wild & 0x0F) == 0) c.opcode = byte();
        c.namespace_id = (wild & 0x10) != 0 ? word() : wild & 1u;
        constexpr std::uint8_t kPages[] = {0x70, 0x01, 0x70, 0x02, 0x70, 0x03, 0x70, 0x05};
        c.cdw10 = byte();
        if (c.opcode == 0x06 && (wild & 0x20) == 0) c.cdw10 %= 9;
        if (c.opcode == 0x02) {
            if ((wild & 0x20) == 0) c.cdw10 = kPages[c.cdw10 % std::size(kPages)];
            c.cdw10 |= std::uint32_t{byte()} << 16;
            c.cdw12 = (wild & 0xC0) == 0xC0 ? word() : std::uint32_t{byte()} * 12;
            c.cdw13 = (wild & 0xE0) == 0xE0 ? word() : 0;
            c.cdw14 = (wild & 0x86) == 0x86 ? word() : 0;
        } else {
            c.cdw11 = (wild & 0x40) != 0 ? word() : byte();
            if ((wild & 0x80) != 0) c.cdw12 = word();
        }
        if (c.opcode == 0x08 && !held_[0].empty()) c.cdw10 = std::uint32_t{*held_[0].begin()} << 16;
        return c;
    }

    void step() {
        const std::uint8_t shape = byte();
        const std::size_t which = shape >> 7;
        if (broken(which) || held_[which].size() > 16) reopen(which);
        nvme::Command command = make(shape & 0x7F);
        // What the command needs; sometimes another length, another kind, another key.
        const DataNeed need = data_need(QueueKind::kAdmin, command);
        const std::uint8_t sgl = byte();
        std::uint32_t length = need.any_length ? 512u : need.bytes;
        if (sgl % 16 == 0) length = word() % (kMemory / 2);
        if (length > kMemory / 2) length = kMemory / 2;  // refused: it is not what the command says
        std::fill_n(memory_->data(), kMemory, kMark);
        if (length != 0) command.data = memory_->sgl(0, length);
        if (sgl % 16 == 1) command.data.type = byte();
        if (sgl == 0x22) command.data = nvme::SglDescriptor::keyed(word(), length, word());
        nvme::Completion answer{};
        ++commands_;
        if (!exchange(which, command, answer)) return;  // held, or the connection is gone
        check(which, command, length, answer);
        if (command.data.type == nvme::kSglKeyedInvalidate)  // the key is gone
            memory_ = std::make_unique<Buffer>(rig_.host_nic(), kMemory);
        if (is_fabrics(command) || command.opcode == 0x09) enable_again(which);
    }

    void enable_again(std::size_t i) {
        nvme::PropertyCommand wire{};
        wire.opcode = 0x7F;
        wire.flags = nvme::kFlagsSgl;
        wire.offset = 0x14;
        nvme::Completion answer{};
        for (const bool on : {false, true}) {
            wire.value = nvme::Configuration{.enable = on, .sq_entry_log2 = 6, .cq_entry_log2 = 4}.encode();
            nvme::Command command;
            std::memcpy(&command, &wire, sizeof command);
            if (!exchange(i, command, answer)) return;
            if (!on) held_[i].clear();  // and an answer to one of them is nobody's from here on
        }
    }

    /// False: no answer is due any more.
    bool exchange(std::size_t i, nvme::Command command, nvme::Completion& answer) {
        StockQueue& admin = stock_[i]->admin();
        if (broken(i)) return false;
        if (!admin.try_post(command)) return false;
        const std::uint64_t until = simt::now_ns() + 100 * kSecond;
        if (command.opcode == 0x0C) {
            held_[i].insert(command.command_id);
            return false;
        }
        for (;;) {
            if (admin.queue().poll(answer)) {
                if (answer.command_id == command.command_id) break;
                require(held_[i].erase(answer.command_id) == 1, "an answer to nobody's command");
            } else if (admin.queue().broken()) {
                return false;
            } else {
                rig_.round();
            }
            require(simt::now_ns() < until, "a command is not answered");
        }
        good_ += nvme::ok(answer.result()) ? 1 : 0;
        return true;
    }

    void check(std::size_t which, const nvme::Command& command, std::uint32_t length,
               const nvme::Completion& answer) {
        const std::byte* const data = memory_->data();
        const bool in_time = !nvme::ok(answer.result()) || (command.opcode != 0x06 && command.opcode != 0x02);
        const std::size_t touched = in_time ? 0 : length;
        require(std::all_of(data + touched, data + kMemory, [](std::byte b) { return b == kMark; }),
                "bytes beyond the SGL, or of a command that failed, were touched");
        require(command.opcode < 0xC0 || !nvme::ok(answer.result()),
                "a vendor command of a stranger went through");
        if (in_time) return;
        if (command.opcode == 0x06 && (command.cdw10 & 0xFF) == 1) {
            auto mine = truth_[which];
            std::memcpy(&mine[offsetof(nvme::IdentifyController, cntlid)],
                        data + offsetof(nvme::IdentifyController, cntlid), 2);
            require(std::equal(mine.begin(), mine.end(), data), "Identify Controller says something else");
            ++compared_;
        }
        if (which == 1 && command.opcode == 0x02) {
            const std::uint64_t offset = command.cdw12 | (std::uint64_t{command.cdw13} << 32);
            require((command.cdw10 & 0xFF) == 0x70 && offset <= log_.size(), "a log page that is not there");
            for (std::size_t i = 0; i < length; ++i) {
                const std::byte expected = offset + i < log_.size() ? log_[offset + i] : std::byte{0};
                require(data[i] == expected, "the discovery log says something else");
            }
            ++compared_;
        }
    }

    LoopRig rig_;
    std::unique_ptr<Buffer> memory_;
    std::unique_ptr<StockHost> stock_[2];
    std::set<std::uint16_t> held_[2];
    std::vector<std::byte> truth_[2];
    std::vector<std::byte> log_;
    std::span<const std::uint8_t> in_;
    std::uint64_t commands_ = 0, good_ = 0, compared_ = 0;
};

}  // namespace gnstor::nvmf
