#include "client/opening_floor.hpp"

#include <gnstor/base/log.hpp>

#include "client/ssd_session.hpp"

namespace gnstor::client {
namespace {

constexpr std::size_t kRingBytes = gnor::kResolvedWords * sizeof(std::uint64_t);

}  // namespace

Result<OpeningFloor> OpeningFloor::create(simt::LanesKind lanes) {
    OpeningFloor floor;
    GN_ASSIGN(floor.lanes_, simt::DeviceMemory::allocate(kRing + kRingBytes, lanes));
    GN_TRY(floor.lanes_.upload(kRing, &gnor::kFirstResolvedWord, sizeof gnor::kFirstResolvedWord));
    if (lanes == simt::LanesKind::kGpu) {
        GN_ASSIGN(floor.host_, simt::DeviceMemory::allocate(sizeof(std::uint64_t), simt::LanesKind::kCpu));
    }
    return floor;
}

Result<void> OpeningFloor::resolve(std::uint64_t first, std::uint64_t count) {
    for (; count != 0; ++first, --count) {
        const std::size_t at = kRing + first / 64 % gnor::kResolvedWords * sizeof(std::uint64_t);
        std::uint64_t word = 0;
        GN_TRY(lanes_.download(at, &word, sizeof word));
        word ^= std::uint64_t{1} << first % 64;
        GN_TRY(lanes_.upload(at, &word, sizeof word));
    }
    return {};
}

Result<std::uint64_t> OpeningFloor::look() {
    return tracker_.advance([this](std::uint64_t& taken) { return lanes_.look(0, std::span(&taken, 1)); },
                            [this](std::uint64_t first, std::span<std::uint64_t> to) {
                                return lanes_.look(kRing + first * sizeof(std::uint64_t), to);
                            });
}

bool OpeningFloor::publish(Clock::time_point now, nvme::VolumeId volume, nvme::Epoch epoch,
                           const std::vector<std::unique_ptr<SsdSession>>& sessions,
                           const std::function<bool(const SsdSession&)>& reachable) {
    told_.resize(sessions.size());
    const Result<std::uint64_t> floor = look();
    if (!floor.ok() || now < next_) return true;
    if (tracker_.overrun() && !std::exchange(complained_, true))
        log_warn(
            "volume id {}: a write of this opening failed and may still be under way, and {} were sent after "
            "it: trims take room on the SSDs until the volume is opened for writing again",
            volume, gnor::kResolvedBits);
    bool many = false, told = false;
    for (std::size_t i = 0; i < sessions.size(); ++i) {
        if (told_[i] >= *floor || !reachable(*sessions[i])) continue;
        const Result<nvme::Completion> answer = sessions[i]->tell_floor(volume, epoch, *floor);
        if (!answer.ok()) continue;  // the keep-alive says what there is to say
        // Another opening, or none: those commands are refused by themselves.
        if (answer->result() == nvme::Status::kStaleEpoch || answer->result() == nvme::Status::kAccessDenied)
            return false;
        if (!nvme::ok(answer->result())) continue;
        told = true;
        told_[i] = *floor;
        many = many || answer->dw0 >= kManyTombstones;
    }
    if (told) next_ = now + (many ? std::chrono::milliseconds(kLook) : std::chrono::milliseconds(kPeriod));
    return true;
}

}  // namespace gnstor::client
