// drive.hpp: one boot of an engine on a medium, with short ways to ask it something and wait for the answer.
//
// What the simulated clients send goes through submit() and is answered to the handler; what the simulator
// itself asks (call()) has tags of its own and is answered at once, by polling as long as it takes (bounded).
#pragma once

#include <gnstor/nvme/fencing.hpp>

#include "deengine/front/engine.hpp"
#include "deengine/sim/medium.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::deengine::sim {

/// Replaced atomically and durably: a cut leaves the old blob or the new one.
class Metadata : public MetadataStore {
  public:
    [[nodiscard]] std::vector<std::byte> load() override { return blob; }
    [[nodiscard]] bool store(std::span<const std::byte> bytes) override {
        ++stores;
        if (on_store) on_store(fail ? std::span<const std::byte>() : bytes);
        if (fail) return false;
        blob.assign(bytes.begin(), bytes.end());
        return true;
    }
    [[nodiscard]] std::size_t capacity() const override { return std::size_t{1} << 20; }

    std::vector<std::byte> blob;
    std::function<void(std::span<const std::byte>)> on_store;  ///< before it takes effect; empty: it will not
    bool fail = false;
    std::uint64_t stores = 0;
};

struct Answer {
    bool answered = false;
    nvme::Status status = nvme::Status::kAborted;
    std::uint32_t dw0 = 0;
    std::uint64_t result = 0;  ///< DW0 and DW1
};

inline constexpr std::uint64_t kSecondNs = 1'000'000'000;

class Drive : public CompletionSink {
  public:
    using Handler = std::function<void(std::uint64_t tag, nvme::Status status, std::uint32_t dw0)>;
    Drive(Medium& medium, Metadata& metadata, const EngineOptions& options, Handler handler = {})
        : medium_(medium), metadata_(metadata), options_(options), handler_(std::move(handler)) {}

    /// Empty if it mounted, else why not.
    std::string mount();
    void accept_loss() { options_.accept_loss = true; }
    [[nodiscard]] Engine& engine() { return *engine_; }
    [[nodiscard]] const RecoveryReport& report() const { return report_; }
    [[nodiscard]] const Medium& medium() const { return medium_; }
    [[nodiscard]] const Metadata& metadata() const { return metadata_; }

    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;
    void submit(const nvme::Command& command, nvme::ClientId from, std::span<std::byte> data,
                std::uint64_t tag) {
        engine_->submit(command, Requester{from, false}, data, tag, now_ns);
    }
    void poll(std::uint64_t after_ns = kPollNs) {
        pass(after_ns, after_ns);
        engine_->poll(now_ns);
    }
    /// Time goes by on either clock, and the drive does nothing: both on a suspended host, and of a virtual
    /// machine that was paused the wall clock alone.
    void pass(std::uint64_t boot_ns, std::uint64_t wall) {
        now_ns += boot_ns;
        wall_ns += wall;
        engine_->observe({now_ns, wall_ns});
    }

    Answer call(const nvme::Command& command, nvme::ClientId from, std::span<std::byte> data);
    Answer call_admin(const nvme::Command& command, std::span<std::byte> data);
    template <class T>
    Answer call_admin_with(nvme::AdminOpcode opcode, const T& payload) {
        T copy = payload;
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        if constexpr (std::is_same_v<T, nvme::MapSet>)
            if (copy.grant_ms != 0) c.cdw10 = ask_grant();
        return call_admin(c, std::as_writable_bytes(std::span(&copy, 1)));
    }
    /// A nonce of this moment, for MAP SET.
    std::uint32_t ask_grant() {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::kGrantAsk);
        return call_admin(c, {}).dw0;
    }
    [[nodiscard]] std::vector<nvme::VolumeRecord> list();
    /// What disagrees within the drive; empty: nothing.
    [[nodiscard]] std::vector<std::string> audit();

    std::uint64_t now_ns = 1'000;  ///< counts suspended time
    std::uint64_t wall_ns = 1'000'000'000;
    std::uint64_t term = 1;  ///< of the daemon that asks
    bool privileged = true;  ///< whether call_admin() comes from one

  private:
    static constexpr std::uint64_t kOwnTags = std::uint64_t{1} << 62;
    static constexpr std::uint64_t kPollNs = 100'000;
    static constexpr std::uint32_t kPollsMax = 5000;

    Medium& medium_;
    Metadata& metadata_;
    EngineOptions options_;
    Handler handler_;
    RecoveryReport report_{};
    std::unique_ptr<Engine> engine_;
    std::uint64_t tags_ = kOwnTags;
    Answer last_;
};

inline std::string Drive::mount() {
    report_ = RecoveryReport{};
    const std::vector<Flash*> views = medium_.views();
    const auto mount_all = [&]<class E>(E* engine) {
        (void)engine;
        if constexpr (requires {
                          E::mount(std::span<Flash* const>(views), metadata_, options_, *this, &report_);
                      })
            return E::mount(std::span<Flash* const>(views), metadata_, options_, *this, &report_);
        else
            return E::mount(*views[0], metadata_, options_, *this, &report_);
    };
    auto mounted = mount_all(engine_.get());
    if (!mounted.ok()) return mounted.error().message;
    engine_ = std::move(mounted).value();
    pass(0, 0);  // it has seen its clocks before it is asked for anything
    return {};
}

inline void Drive::on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) {
    if (tag < kOwnTags) {
        if (handler_) handler_(tag, status, static_cast<std::uint32_t>(result));
        return;
    }
    if (tag == tags_) last_ = {true, status, static_cast<std::uint32_t>(result), result};
}

inline Answer Drive::call(const nvme::Command& command, nvme::ClientId from, std::span<std::byte> data) {
    last_ = {};
    ++tags_;
    submit(command, from, data, tags_);
    for (std::uint32_t i = 0; i < kPollsMax && !last_.answered; ++i) poll();
    return last_;
}

inline Answer Drive::call_admin(const nvme::Command& command, std::span<std::byte> data) {
    last_ = {};
    nvme::Command c = command;
    c.cdw14 = static_cast<std::uint32_t>(term);
    c.cdw15 = static_cast<std::uint32_t>(term >> 32);
    engine_->submit_admin(c, Requester{0, privileged}, data, ++tags_, now_ns);
    for (std::uint32_t i = 0; i < kPollsMax && !last_.answered; ++i) poll();
    return last_;
}

inline std::vector<std::string> Drive::audit() {
    const auto ask = [](auto& engine) -> std::vector<std::string> {
        if constexpr (requires { engine.audit(); }) return engine.audit();
        return {};
    };
    return ask(*engine_);
}

inline std::vector<nvme::VolumeRecord> Drive::list() {
    constexpr std::size_t kRecords = 64;
    std::vector<std::byte> data(sizeof(nvme::VolumeListHeader) + kRecords * sizeof(nvme::VolumeRecord));
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kVolumeList);
    c.cdw11 = static_cast<std::uint32_t>(data.size());
    if (!ok(call_admin(c, data).status)) return {};
    nvme::VolumeListHeader header{};
    std::memcpy(&header, data.data(), sizeof(header));
    std::vector<nvme::VolumeRecord> records(header.returned);
    if (!records.empty())
        std::memcpy(records.data(), data.data() + sizeof(header), records.size() * sizeof(records[0]));
    return records;
}

}  // namespace gnstor::deengine::sim
