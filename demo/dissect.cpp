// dissect.cpp: structures as annotated hex.
#include "dissect.hpp"

#include <gnstor/base/endian.hpp>

#include <fmt/core.h>

#include <cstring>

namespace gnstor::demo {
namespace {

/// Prints fields of one structure: offset, bytes as they lie in memory, meaning.
class Sheet {
  public:
    Sheet(std::string& out, const void* structure)
        : out_(out), bytes_(static_cast<const std::uint8_t*>(structure)) {}

    void field(std::size_t offset, std::size_t length, const std::string& meaning) {
        std::string hex;
        for (std::size_t i = 0; i < length; ++i)
            hex += fmt::format("{:02x}{}", bytes_[offset + i], i % 4 == 3 ? " " : "");
        out_ += fmt::format("    {:>3}  {:<37}{}\n", offset, hex, meaning);
    }

  private:
    std::string& out_;
    const std::uint8_t* bytes_;
};

void capsule_sheet(std::string& out, const nvme::Command& c) {
    const nvme::IoFields f = nvme::decode_io(c);
    out += "  capsule: 64 bytes, an NVMe submission queue entry (NVMe Base 2.0, 3.3.3.1)\n";
    Sheet s(out, &c);
    s.field(0, 4,
            fmt::format("opcode {:02x}h (read), SGL, command id {:04x}h: slot and generation", c.opcode,
                        c.command_id));
    s.field(4, 4, fmt::format("namespace {}", c.namespace_id));
    s.field(8, 4, fmt::format("CDW2: epoch {} of the volume", f.epoch));
    s.field(12, 4, fmt::format("CDW3: map version {}", f.map_version));
    s.field(24, 16,
            fmt::format("keyed SGL: {} bytes at {:#x}, key {:08x}h", c.data.length(), c.data.address,
                        c.data.key()));
    s.field(40, 8, fmt::format("SLBA: VID {}, client {}, block {}", f.volume, f.client, f.block));
    s.field(48, 4, fmt::format("CDW12: {} block{}", f.blocks, f.blocks == 1 ? "" : "s"));
    s.field(52, 4,
            f.sectors == 0
                ? "CDW13: whole blocks"
                : fmt::format("CDW13: sectors {} .. {}", f.first_sector, f.first_sector + f.sectors - 1));
    s.field(56, 8, "CDW14-15: no sequence, this is a read");
}

void entry_sheet(std::string& out, const ReadTrace& t) {
    std::uint32_t words[16];
    std::memcpy(words, &t.entry, sizeof words);
    out += "  send entry: 64 bytes, an mlx5 work-queue entry, big endian\n";
    Sheet s(out, &t.entry);
    s.field(0, 4,
            fmt::format("index {}, opcode {:02x}h (SEND)", (be32(words[0]) >> 8) & 0xFFFFu,
                        be32(words[0]) & 0xFFu));
    s.field(4, 4, fmt::format("queue pair {}, {} x 16 bytes", be32(words[1]) >> 8, be32(words[1]) & 0x3Fu));
    s.field(8, 4, "signature 0, completion asked for");
    s.field(12, 4, "immediate: none");
    s.field(
        16, 16,
        fmt::format("data segment: {} bytes under key {:08x}h: the capsule", be32(words[4]), be32(words[5])));
    out += "  doorbell record and bell\n";
    Sheet(out, &t.doorbell_record)
        .field(0, 4, fmt::format("record: send counter {}", be32(t.doorbell_record) & 0xFFFFu));
    Sheet(out, &t.bell).field(0, 8, "bell: one 64-bit store, the entry's first 8 bytes");
}

void completion_sheet(std::string& out, const ReadTrace& t) {
    std::uint32_t words[16];
    std::memcpy(words, &t.cqe, sizeof words);
    const std::uint8_t op_own = reinterpret_cast<const std::uint8_t*>(&t.cqe)[63];
    out += "  receive completion: 64 bytes (mlx5), first and last lines\n";
    Sheet s(out, &t.cqe);
    s.field(44, 4, fmt::format("{} bytes received", be32(words[11])));
    s.field(56, 4, fmt::format("queue pair {}", be32(words[14]) & 0xFFFFFFu));
    s.field(60, 4,
            fmt::format("receive {}, op_own {:02x}h: opcode {} (responder SEND), owner {}, {}",
                        be32(words[15]) >> 16, op_own, op_own >> 4, op_own & 1u,
                        (op_own & 4u) != 0 ? "response inside" : "response in its buffer"));
    out += "  response: 16 bytes, an NVMe completion queue entry (NVMe Base 2.0, 3.3.3.2)\n";
    Sheet r(out, &t.response);
    r.field(0, 4, fmt::format("DW0: {}", t.response.dw0));
    r.field(8, 4, fmt::format("SQ head {}, SQ {}", t.response.sq_head, t.response.sq_id));
    r.field(12, 4,
            fmt::format("command id {:04x}h, status: {}", t.response.command_id,
                        nvme::status_name(t.response.result())));
}

}  // namespace

std::string dissect(const ReadTrace& t) {
    std::string out = fmt::format(
        "One read, taken apart (one lane, one block, served by SSD slot {}; offset, bytes, meaning)\n",
        t.slot);
    capsule_sheet(out, t.capsule);
    entry_sheet(out, t);
    completion_sheet(out, t);
    out += "  the lane's clock, from the call\n";
    out += fmt::format("    {:>9.1f} us  capsule and send entry written\n",
                       static_cast<double>(t.built_ns) / 1e3);
    out += fmt::format("    {:>9.1f} us  doorbell rung\n", static_cast<double>(t.rung_ns) / 1e3);
    out += fmt::format("    {:>9.1f} us  completion seen\n", static_cast<double>(t.completed_ns) / 1e3);
    out += fmt::format("    {:>9.1f} us  data read\n", static_cast<double>(t.data_read_ns) / 1e3);
    return out;
}

}  // namespace gnstor::demo
