// fuzz_command.cpp: bytes become raw 64-byte I/O and admin commands, data, mounts and time on one engine over
// a small flash.
//
// Nothing crashes, every command is answered exactly once, NAND's rules hold, and no client but number 2 ever
// reads the secret that client 2 keeps in volume 2: not through a read of any shape, nor through a later life
// of the VID.
#include <gnstor/nvme/fencing.hpp>

#include "deengine/front/engine.hpp"
#include "deengine/ram_flash.hpp"

#include <cstdlib>
#include <memory>

namespace gnstor::deengine::test {
namespace {

using nvme::AdminOpcode;
using nvme::IoOpcode;

constexpr std::uint64_t kSecret = 0x5EC12E75EC12E75Eull;
constexpr nvme::VolumeId kPublic = 1, kSecretVolume = 2;
constexpr std::size_t kFaults = 6;

void require(bool condition) {
    if (!condition) std::abort();
}

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    [[nodiscard]] bool empty() const { return left_ == 0; }
    std::uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *data_++;
    }
    template <class T>
    T item() {
        T out{};
        auto* to = reinterpret_cast<std::uint8_t*>(&out);
        for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = byte();
        return out;
    }

  private:
    const std::uint8_t* data_;
    std::size_t left_;
};

class Counter : public CompletionSink {
  public:
    void on_complete(std::uint64_t, nvme::Status status, std::uint64_t result) override {
        ++count;
        last = status;
        last_dw0 = static_cast<std::uint32_t>(result);
    }
    std::uint64_t count = 0;
    std::uint32_t last_dw0 = 0;
    nvme::Status last = nvme::Status::kAborted;
};

nvme::VolumeRecord make_record(nvme::VolumeId vid, nvme::ClientId owner) {
    nvme::VolumeRecord r{};
    r.record_version = nvme::kVolumeRecordVersion;
    r.epoch = r.birth_epoch = 1;
    r.geometry = {7, 40, vid, 1, 1, 0};
    r.owner = r.writer = owner;
    r.name[0] = static_cast<char>('a' + vid % 26);
    return r;
}

class Target {
  public:
    Target() : flash_(32, 16) {
        options_.max_volumes = 4;
        options_.mdts_blocks = 8;
        options_.ssd_uuid[0] = 1;
        mount();
        for (const auto& r : {make_record(kPublic, 1), make_record(kSecretVolume, 2)})
            require(ok(admin(AdminOpcode::kVolumeAdd, r)));
        map_.map.version = 3;
        map_.map.slot_count = 2;
        for (std::uint16_t s = 0; s < 2; ++s)
            map_.map.slots[s] = {placement::SlotState::kIn, 0, s, 1, {static_cast<std::uint8_t>(s + 1)}};
        set_map(0);
        for (nvme::BlockAddress b = 0; b < 40; ++b) {
            nvme::IoFields f = nearly_right(kSecretVolume, 2);
            f.block = b;
            f.sequence = 1;
            io(nvme::encode_io(IoOpcode::kWrite, f), 2, 4096);
        }
    }

    /// The same state again, without the work.
    Target(const Target& ready)
        : flash_(ready.flash_), metadata_(ready.metadata_), options_(ready.options_), map_(ready.map_) {
        mount_and_grant();
    }

    void step(Input& in) {
        switch (in.byte() % 16) {
            case 0:
                return mount_and_grant();
            case 1:
                return any_admin(in);
            case 2:
                return volume_admin(in);
            case 3:
                now_ += in.item<std::uint32_t>();
                return;
            case 4:
                return set_map(in.byte());
            case 5:
                // So many that no drive would go on are no news.
                if (flash_.program_faults.size() < kFaults)
                    flash_.program_faults[flash_.programs + 1 + in.byte() % 4] = RamFlash::Fault::kBadData;
                return;
            default:
                return any_io(in);
        }
    }

  private:
    [[nodiscard]] nvme::IoFields nearly_right(nvme::VolumeId vid, nvme::ClientId client) const {
        nvme::IoFields f;
        f.volume = vid;
        f.client = client;
        f.epoch = 1;
        f.map_version = map_.map.version;
        return f;
    }
    void mount() {
        engine_.reset();
        auto mounted = Engine::mount(flash_, metadata_, options_, sink_);
        require(mounted.ok());
        engine_ = std::move(mounted).value();
    }
    void mount_and_grant() {
        mount();
        set_map(0);
    }
    void set_map(std::uint8_t grant_ms) {
        map_.grant_ms = grant_ms;
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::kGrantAsk);
        require(ok(admin_raw(c, {0, true}, {})) && sink_.last_dw0 != 0);
        c.opcode = static_cast<std::uint8_t>(AdminOpcode::kMapSet);
        c.cdw10 = sink_.last_dw0;
        require(ok(admin_raw(c, {0, true}, std::as_writable_bytes(std::span(&map_, 1)))));
    }
    template <class T>
    nvme::Status admin(AdminOpcode opcode, T payload) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        if (opcode == AdminOpcode::kVolumeDelete) std::memcpy(&c.cdw10, &payload, sizeof(c.cdw10));
        return admin_raw(c, {0, true}, std::as_writable_bytes(std::span(&payload, 1)));
    }
    nvme::Status admin_raw(const nvme::Command& c, Requester from, std::span<std::byte> data) {
        const std::uint64_t before = sink_.count;
        engine_->submit_admin(c, from, data, 0, now_);
        engine_->poll(now_);
        require(sink_.count == before + 1);
        return sink_.last;
    }
    /// Any bytes, from somebody who may not: nothing may change.
    void any_admin(Input& in) {
        auto c = in.item<nvme::Command>();
        std::vector<std::byte> data(in.byte() * 8u, std::byte{in.byte()});
        if (static_cast<AdminOpcode>(c.opcode) == AdminOpcode::kFloor) c.cdw10 = 0;
        require(!ok(admin_raw(c, {1, false}, data)));
        // The same from the daemon, where it cannot open the secret by right.
        const auto o = static_cast<AdminOpcode>(c.opcode);
        c.cdw14 = c.cdw15 = 0;
        if (o != AdminOpcode::kVolumeChmod && o != AdminOpcode::kVolumeDelete)
            (void)admin_raw(c, {0, true}, data);
    }
    /// Records with a few bytes changed; writers and owners are always client 1.
    void volume_admin(Input& in) {
        nvme::VolumeRecord r = make_record(1 + in.byte() % 4, 1);
        const std::uint8_t kind = in.byte() % 4;
        r.epoch = r.birth_epoch = 1 + in.byte() % 4;
        for (std::uint8_t i = in.byte() % 4; i > 0; --i) {
            const std::size_t at = in.item<std::uint16_t>() % sizeof(r);
            reinterpret_cast<std::uint8_t*>(&r)[at] = in.byte();
        }
        r.owner = r.writer = 1;
        const bool secret = r.geometry.volume == kSecretVolume;
        if (kind == 0) {
            const std::uint32_t vid = r.geometry.volume;
            if (ok(admin(AdminOpcode::kVolumeDelete, vid)) && secret) secret_alive_ = false;
        } else if (kind == 1 && !(secret && secret_alive_)) {
            (void)admin(AdminOpcode::kVolumeChmod, r);
        } else {
            const auto status = admin(AdminOpcode::kVolumeAdd, r);
            require(!(secret && secret_alive_ && ok(status)));
        }
    }
    void any_io(Input& in) {
        const std::uint8_t how = in.byte();
        const auto client = static_cast<nvme::ClientId>((how >> 1) % 4);
        auto c = in.item<nvme::Command>();
        if ((how & 1) != 0) {
            // As good as a client's own: the raw bytes decide the rest.
            constexpr IoOpcode kOpcodes[] = {IoOpcode::kRead, IoOpcode::kWrite, IoOpcode::kWriteZeroes,
                                             IoOpcode::kDatasetManagement};
            nvme::IoFields f = nearly_right(static_cast<nvme::VolumeId>(1 + c.command_id % 4), client);
            f.block = c.cdw10 % 42;
            f.blocks = 1 + c.cdw12 % 4;
            f.epoch = 1 + c.cdw2 % 4;
            f.sequence = c.cdw14 % 64;
            const IoOpcode o = kOpcodes[c.opcode % 4];
            c = o == IoOpcode::kDatasetManagement ? nvme::encode_trim(f, f.blocks) : nvme::encode_io(o, f);
        }
        const std::uint32_t exact = ((c.cdw12 & 0xFFFFu) + 1) * nvme::kBlockBytes;
        const std::uint8_t size = in.byte();
        const std::uint32_t bytes = (how & 0x80) == 0 && exact <= 8 * nvme::kBlockBytes ? exact : size * 64u;
        io(c, client, bytes);
    }
    void io(const nvme::Command& c, nvme::ClientId from, std::uint32_t bytes) {
        std::vector<std::byte> data(bytes, std::byte{static_cast<std::uint8_t>(0x10 + from)});
        const bool keeper = from == 2 && secret_alive_;
        for (std::size_t i = 0; keeper && i + 8 <= data.size(); i += 8)
            std::memcpy(data.data() + i, &kSecret, 8);
        const std::uint64_t before = sink_.count;
        engine_->submit(c, {from, false}, data, 0, now_);
        engine_->poll(now_);
        require(sink_.count == before + 1);
        require(flash_.violations == 0);
        if (from == 2) return;
        for (std::size_t i = 0; i + 8 <= data.size(); i += 8) {
            std::uint64_t word;
            std::memcpy(&word, data.data() + i, sizeof(word));
            require(word != kSecret);
        }
    }

    RamFlash flash_;
    RamMetadata metadata_;
    EngineOptions options_;
    Counter sink_;
    std::unique_ptr<Engine> engine_;
    nvme::MapSet map_{};
    std::uint64_t now_ = 1;
    bool secret_alive_ = true;
};

}  // namespace
}  // namespace gnstor::deengine::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    gnstor::deengine::test::Input input(data, size);
    static const gnstor::deengine::test::Target ready;
    gnstor::deengine::test::Target target(ready);
    for (int steps = 0; steps < 32 && !input.empty(); ++steps) target.step(input);
    return 0;
}
