// drive_rig.hpp: a drive on its own reactor, and a host thread's way to talk to it through its NVMe queues.
#pragma once

#include <gnstor/nvme/fencing.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "scratch.hpp"
#include "ssd/drive/drive.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace gnstor::ssd::testing {

using nvme::Command;
using nvme::Completion;
using nvme::IoFields;
using nvme::IoOpcode;
using nvme::SglDescriptor;
using nvme::Status;

inline constexpr nvme::ClientId kWriter = 7;
inline constexpr nvme::VolumeId kVolume = 3;

inline SglDescriptor sgl(const void* at, std::size_t bytes) {
    return SglDescriptor::unkeyed(nvme::kSglDataBlockAddress, reinterpret_cast<std::uint64_t>(at),
                                  static_cast<std::uint32_t>(bytes));
}

/// Waits (bounded) for the next completion of a queue.
inline bool reap(NvmeQueue& queue, Reactor& reactor, Completion& completion) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!queue.reap(completion)) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        reactor.wake();
        std::this_thread::yield();
    }
    return true;
}

/// Submits one command and waits for its answer.
inline Completion call(NvmeQueue& queue, Reactor& reactor, Command command) {
    static thread_local std::uint16_t next_id = 0;
    command.command_id = ++next_id;
    Completion c{};
    EXPECT_TRUE(queue.submit(command));
    EXPECT_TRUE(reap(queue, reactor, c)) << "no completion in 30 s";
    EXPECT_EQ(c.command_id, command.command_id);
    return c;
}

inline nvme::VolumeRecord record_of(nvme::VolumeId vid, nvme::ClientId writer, std::uint64_t blocks) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = r.birth_epoch = 1;
    r.geometry = {0x1234u + vid, blocks, vid, 4, 1, 0};
    r.owner = r.writer = writer;
    std::snprintf(r.name, sizeof r.name, "volume-%u", vid);
    std::snprintf(r.owner_name, sizeof r.owner_name, "client-%u", writer);
    return r;
}

class DriveRig {
  public:
    explicit DriveRig(DriveOptions o) : options(std::move(o)) {
        reactor = Reactor::start("test-drive").value();
        mount();
    }
    ~DriveRig() {
        if (drive != nullptr) unmount();
    }
    DriveRig(const DriveRig&) = delete;
    DriveRig& operator=(const DriveRig&) = delete;

    void mount() {
        drive = Drive::open(options, *reactor).value();
        admin = drive->create_queue(0, 16, 0, Priority::kUrgent, true).value();
        io = drive->create_queue(1, 64, kWriter, Priority::kMedium, false).value();
    }
    void unmount() {
        EXPECT_TRUE(drive->delete_queue(io).ok());
        EXPECT_TRUE(drive->delete_queue(admin).ok());
        drive.reset();
    }
    void remount() {
        unmount();
        mount();
        grant();
    }

    Status vendor(nvme::AdminOpcode op, const void* data, std::size_t bytes, std::uint32_t cdw10 = 0) {
        return complete_vendor(op, data, bytes, cdw10).result();
    }
    Completion complete_vendor(nvme::AdminOpcode op, const void* data, std::size_t bytes,
                               std::uint32_t cdw10 = 0) {
        Command c{};
        c.opcode = static_cast<std::uint8_t>(op);
        c.flags = nvme::kFlagsSgl;
        c.cdw10 = cdw10;
        c.cdw14 = 1;  // term
        c.data = sgl(data, bytes);
        return call(*admin, *reactor, c);
    }
    /// A map of this drive alone.
    [[nodiscard]] nvme::MapSet map(std::uint32_t version = 1) const {
        nvme::MapSet set{};
        set.map.version = version;
        set.map.slot_count = 1;
        set.map.slots[0].state = placement::SlotState::kIn;
        set.map.slots[0].weight = 1;
        std::memcpy(set.map.slots[0].ssd_uuid, drive->uuid().data(), 16);
        return set;
    }
    /// In force for `ms`; 0: without end.
    void grant(std::uint32_t version = 1, std::uint32_t ms = 0) {
        nvme::MapSet set = map(version);
        set.grant_ms = ms;
        const std::uint32_t nonce = ms == 0 ? 0 : complete_vendor(nvme::kGrantAsk, nullptr, 0).dw0;
        ASSERT_EQ(vendor(nvme::AdminOpcode::kMapSet, &set, sizeof set, nonce), Status::kSuccess);
        map_version = version;
    }
    void add_volume(nvme::VolumeId vid = kVolume, std::uint64_t blocks = 4096) {
        const nvme::VolumeRecord r = record_of(vid, kWriter, blocks);
        ASSERT_EQ(vendor(nvme::AdminOpcode::kVolumeAdd, &r, sizeof r), Status::kSuccess);
    }
    [[nodiscard]] IoFields fields(nvme::BlockAddress block, std::uint32_t blocks) const {
        IoFields f;
        f.volume = kVolume;
        f.client = kWriter;
        f.block = block;
        f.blocks = blocks;
        f.epoch = 1;
        f.map_version = map_version;
        return f;
    }
    Status write(nvme::BlockAddress block, std::span<const std::byte> data, bool fua = false) {
        IoFields f = fields(block, static_cast<std::uint32_t>(data.size() / nvme::kBlockBytes));
        f.sequence = ++sequence;
        f.fua = fua;
        Command c = nvme::encode_io(IoOpcode::kWrite, f);
        c.data = sgl(data.data(), data.size());
        return call(*io, *reactor, c).result();
    }
    Status read(nvme::BlockAddress block, std::span<std::byte> data) {
        Command c = nvme::encode_io(
            IoOpcode::kRead, fields(block, static_cast<std::uint32_t>(data.size() / nvme::kBlockBytes)));
        c.data = sgl(data.data(), data.size());
        return call(*io, *reactor, c).result();
    }

    DriveOptions options;
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Drive> drive;
    NvmeQueue* admin = nullptr;
    NvmeQueue* io = nullptr;
    std::uint32_t map_version = 0;
    std::uint64_t sequence = 0;
};

}  // namespace gnstor::ssd::testing
