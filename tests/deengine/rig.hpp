// rig.hpp: one engine on a RamFlash with short ways to issue commands and to look at their answers.
#pragma once

#include <gtest/gtest.h>

#include <gnstor/nvme/fencing.hpp>

#include "deengine/front/engine.hpp"
#include "deengine/ram_flash.hpp"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::deengine::test {

using nvme::IoFields;
using nvme::IoOpcode;
using nvme::Status;
using Block = std::vector<std::byte>;

/// Contents that only `id` has; id 0: zeroes.
inline void fill_pattern(std::byte* to, std::uint64_t id) {
    for (std::uint32_t i = 0; i < nvme::kBlockBytes; i += 8) {
        const std::uint64_t word = id == 0 ? 0 : mix64(id * 512 + i / 8);
        std::memcpy(to + i, &word, 8);
    }
}
inline Block pattern(std::uint64_t id, std::uint32_t blocks = 1) {
    Block out(std::size_t{blocks} * nvme::kBlockBytes);
    for (std::uint32_t i = 0; i < blocks; ++i)
        fill_pattern(out.data() + std::size_t{i} * nvme::kBlockBytes, id + (id != 0 ? i : 0));
    return out;
}

/// By memcmp(): comparing vectors of std::byte takes far longer, and printing them as well.
inline bool same_bytes(const Block& a, const Block& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

struct Answer {
    Status status = Status::kAborted;
    std::uint32_t dw0 = 0;
    std::uint64_t result = 0;  ///< DW0 and DW1
};

class Answers : public CompletionSink {
  public:
    void on_complete(std::uint64_t tag, Status status, std::uint64_t result) override {
        ++count;
        last_tag = tag;
        last = Answer{status, static_cast<std::uint32_t>(result), result};
    }
    std::uint64_t count = 0;
    std::uint64_t last_tag = 0;
    Answer last;
};

inline constexpr std::uint8_t kUuid[16] = {0xD1, 2, 3};
inline constexpr Requester kAdmin{0, true};

inline EngineOptions default_options() {
    EngineOptions o;
    std::memcpy(o.ssd_uuid, kUuid, sizeof(kUuid));
    o.mdts_blocks = 32;
    o.max_volumes = 16;
    return o;
}

/// A record that every check accepts.
inline nvme::VolumeRecord make_record(nvme::VolumeId vid, nvme::ClientId writer, nvme::Epoch epoch = 1,
                                      std::uint64_t capacity = 64) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = epoch;
    r.birth_epoch = epoch;
    r.geometry = {0x1234u + vid, capacity, vid, 2, 1, 0};
    r.owner = writer;
    r.writer = writer;
    std::snprintf(r.name, sizeof(r.name), "volume-%u", vid);
    std::snprintf(r.owner_name, sizeof(r.owner_name), "client-%u", writer);
    return r;
}

/// `slots` slots in use, this drive in slot 0.
inline nvme::MapSet make_map(std::uint32_t version, std::uint32_t slots = 1, std::uint32_t grant_ms = 0) {
    nvme::MapSet set{};
    set.grant_ms = grant_ms;
    set.map.version = version;
    set.map.slot_count = slots;
    for (std::uint32_t i = 0; i < slots; ++i) {
        set.map.slots[i].state = placement::SlotState::kIn;
        set.map.slots[i].domain = static_cast<std::uint16_t>(i);
        set.map.slots[i].weight = 1;
        set.map.slots[i].ssd_uuid[0] = static_cast<std::uint8_t>(i + 1);
    }
    std::memcpy(set.map.slots[0].ssd_uuid, kUuid, sizeof(kUuid));
    return set;
}

class Rig {
  public:
    explicit Rig(std::uint32_t units = 16, std::uint32_t pages = 16, EngineOptions o = default_options())
        : flash(units, pages), options(o) {
        mount();
    }
    Rig(RamFlash image, RamMetadata store, EngineOptions o)
        : flash(std::move(image)), metadata(std::move(store)), options(o) {
        mount();
    }

    void mount() {
        engine.reset();
        auto mounted = Engine::mount(flash, metadata, options, answers, &report);
        ASSERT_TRUE(mounted.ok()) << mounted.error().message;
        engine = std::move(mounted).value();
    }

    Answer io(const nvme::Command& c, nvme::ClientId from, std::span<std::byte> data) {
        const std::uint64_t before = answers.count;
        engine->submit(c, Requester{from, false}, data, ++tag, now_ns);
        if (answers.count == before) engine->poll(now_ns);
        EXPECT_EQ(answers.count, before + 1) << "every command is answered once";
        EXPECT_EQ(answers.last_tag, tag);
        return answers.last;
    }
    Answer admin(const nvme::Command& c, std::span<std::byte> data, Requester from = kAdmin) {
        const std::uint64_t before = answers.count;
        engine->submit_admin(c, from, data, ++tag, now_ns);
        EXPECT_EQ(answers.count, before + 1);
        return answers.last;
    }
    template <class T>
    Answer admin_with(nvme::AdminOpcode opcode, const T& payload, Requester from = kAdmin) {
        T copy = payload;
        return admin(admin_command(opcode), std::as_writable_bytes(std::span(&copy, 1)), from);
    }
    [[nodiscard]] nvme::Command admin_command(nvme::AdminOpcode opcode) const {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.cdw14 = static_cast<std::uint32_t>(term);
        c.cdw15 = static_cast<std::uint32_t>(term >> 32);
        return c;
    }
    Status add(const nvme::VolumeRecord& r) { return admin_with(nvme::AdminOpcode::kVolumeAdd, r).status; }
    Status chmod(const nvme::VolumeRecord& r) {
        return admin_with(nvme::AdminOpcode::kVolumeChmod, r).status;
    }
    Status remove(nvme::VolumeId vid) {
        nvme::Command c = admin_command(nvme::AdminOpcode::kVolumeDelete);
        c.cdw10 = vid;
        return admin(c, {}).status;
    }
    /// With a nonce of this moment, where the grant has an end.
    Status set_map(const nvme::MapSet& m) { return set_map(m, m.grant_ms == 0 ? 0 : ask_grant()); }
    Status set_map(const nvme::MapSet& m, std::uint32_t nonce) {
        nvme::MapSet copy = m;
        nvme::Command c = admin_command(nvme::AdminOpcode::kMapSet);
        c.cdw10 = nonce;
        return admin(c, std::as_writable_bytes(std::span(&copy, 1))).status;
    }
    std::uint32_t ask_grant() { return admin(admin_command(nvme::kGrantAsk), {}).dw0; }

    /// A command of `client` on `vid` under the map and epoch given at set-up.
    [[nodiscard]] IoFields fields(nvme::VolumeId vid, nvme::ClientId client, nvme::BlockAddress block,
                                  std::uint32_t blocks = 1) const {
        IoFields f;
        f.volume = vid;
        f.client = client;
        f.block = block;
        f.blocks = blocks;
        f.epoch = epoch;
        f.map_version = map_version;
        return f;
    }
    Answer write(IoFields f, std::uint64_t sequence, Block data) {
        f.sequence = sequence;
        return io(nvme::encode_io(IoOpcode::kWrite, f), f.client, data);
    }
    Answer zero(IoFields f, std::uint64_t sequence) {
        f.sequence = sequence;
        return io(nvme::encode_io(IoOpcode::kWriteZeroes, f), f.client, {});
    }
    Answer trim(IoFields f, std::uint64_t sequence, std::vector<nvme::DsmRange> ranges) {
        f.sequence = sequence;
        return io(nvme::encode_trim(f, static_cast<std::uint32_t>(ranges.size())), f.client,
                  std::as_writable_bytes(std::span(ranges)));
    }
    Answer read(IoFields f, Block& to) {
        to.assign(f.sectors != 0 ? std::size_t{f.sectors} * nvme::kSectorBytes
                                 : std::size_t{f.blocks} * nvme::kBlockBytes,
                  std::byte{0xEE});
        return io(nvme::encode_io(IoOpcode::kRead, f), f.client, to);
    }
    /// Whether the block reads, without error, as pattern `id` (0: zeroes).
    ::testing::AssertionResult holds(IoFields f, std::uint64_t id) {
        Block got;
        f.blocks = 1;
        const Answer a = read(f, got);
        if (!ok(a.status))
            return ::testing::AssertionFailure()
                   << "block " << f.block << ": " << nvme::status_name(a.status);
        if (!same_bytes(got, pattern(id)))
            return ::testing::AssertionFailure() << "block " << f.block << " is not pattern " << id;
        return ::testing::AssertionSuccess();
    }

    RamFlash flash;
    RamMetadata metadata;
    EngineOptions options;
    Answers answers;
    RecoveryReport report{};
    std::unique_ptr<Engine> engine;
    std::uint64_t tag = 0, now_ns = 1'000, term = 1;
    nvme::Epoch epoch = 1;
    nvme::MapVersion map_version = 1;
};

}  // namespace gnstor::deengine::test
