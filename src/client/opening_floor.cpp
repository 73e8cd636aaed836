#include "client/opening_floor.hpp"

#include <fmt/core.h>

namespace gnstor::client {
namespace {

constexpr std::size_t kRingBytes = (gnor::kResolvedWords + 1) * sizeof(std::uint64_t);

std::size_t word_of(std::uint64_t sequence) {
    return sequence / gnor::kResolvedInWord % gnor::kResolvedWords * sizeof(std::uint64_t);
}

}  // namespace

Result<std::unique_ptr<OpeningFloor>> OpeningFloor::create(simt::LanesKind lanes) {
    std::unique_ptr<OpeningFloor> floor(new OpeningFloor);
    GN_ASSIGN(floor->lanes_, simt::DeviceMemory::allocate(kRing + kRingBytes, lanes));
    GN_TRY(floor->lanes_.upload(kRing, &gnor::kFirstResolvedWord, sizeof gnor::kFirstResolvedWord));
    if (lanes == simt::LanesKind::kGpu) {
        GN_ASSIGN(floor->host_, simt::DeviceMemory::allocate(sizeof(std::uint64_t), simt::LanesKind::kCpu));
    }
    return floor;
}

Result<void> OpeningFloor::resolve(std::uint64_t first, std::uint64_t count, bool in_doubt) {
    std::uint64_t word = 0;
    if (in_doubt) {
        GN_TRY(lanes_.download(kInDoubt, &word, sizeof word));
        word += count;
        return lanes_.upload(kInDoubt, &word, sizeof word);
    }
    for (; count != 0; ++first, --count) {
        GN_TRY(lanes_.download(kRing + word_of(first), &word, sizeof word));
        const std::uint64_t bit = std::uint64_t{1} << first % gnor::kResolvedInWord;
        word += (gnor::resolves_to_one(first) ? bit : 0 - bit) + (std::uint64_t{1} << 32);
        GN_TRY(lanes_.upload(kRing + word_of(first), &word, sizeof word));
    }
    return {};
}

Result<std::uint64_t> OpeningFloor::look() {
    GN_ASSIGN(const std::uint64_t floor,
              tracker_.advance([this](std::uint64_t& taken) { return lanes_.look(0, std::span(&taken, 1)); },
                               [this](std::uint64_t first, std::span<std::uint64_t> to) {
                                   return lanes_.look(kRing + first * sizeof(std::uint64_t), to);
                               }));
    std::uint64_t in_doubt = 0;
    GN_TRY(lanes_.look(kInDoubt, std::span(&in_doubt, 1)));
    in_doubt_.store(in_doubt, std::memory_order_relaxed);
    floor_.store(floor, std::memory_order_relaxed);
    return floor;
}

std::string OpeningFloor::why_it_stays(nvme::VolumeId volume) const {
    const std::uint64_t in_doubt = in_doubt_.load(std::memory_order_relaxed);
    if (in_doubt != 0)
        return fmt::format(
            "volume id {}: {} writes failed and may have been carried out on some SSDs only: the SSDs need "
            "space for each trim since then until the volume is renewed, or opened for writing again",
            volume, in_doubt);
    if (tracker_.overrun())
        return fmt::format(
            "volume id {}: more than {} writes were sent after a write that has not ended: the SSDs need "
            "space for each trim until that write has ended",
            volume, gnor::kResolvedBits);
    return fmt::format(
        "volume id {}: write {} of this opening has not ended for {} s (or no caller waits for it): the SSDs "
        "need space for each trim since then until that write has ended",
        volume, tracker_.floor() + 1, std::chrono::seconds(kStuck).count());
}

std::string OpeningFloor::look_at(Clock::time_point now, nvme::VolumeId volume) {
    const Result<std::uint64_t> floor = look();
    if (!floor.ok()) return {};
    if (*floor != moved_to_ || *floor == tracker_.taken() || moved_ == Clock::time_point{}) {
        moved_to_ = *floor;
        moved_ = now;
        complained_ = false;
    }
    if (complained_ || now - moved_ < kStuck) return {};
    complained_ = true;
    return why_it_stays(volume);
}

bool OpeningFloor::is_settled() {
    const Result<std::uint64_t> floor = look();
    return floor.ok() && *floor == tracker_.taken();
}

bool OpeningFloor::publish(Clock::time_point now, std::size_t sessions,
                           const std::function<std::uint64_t(std::size_t)>& association, const Tell& tell) {
    sessions_.resize(sessions);
    const std::uint64_t floor = floor_.load(std::memory_order_relaxed);
    if (now < next_) return true;
    bool many = false, told = false;
    for (std::size_t i = 0; i < sessions; ++i) {
        Session& session = sessions_[i];
        const std::uint64_t present = association(i);
        if (present != 0 && present != session.association) {
            session.association = present;
            session.told = 0;
        }
        if (session.told >= floor || now < session.next || present == 0) continue;
        const Result<nvme::Completion> answer = tell(i, floor);
        // Another opening has the volume; SSDs refuse this one's commands without further action.
        if (answer.ok() && answer->result() == nvme::Status::kStaleEpoch) return false;
        if (!answer.ok() || !nvme::ok(answer->result())) {
            session.next = now + kLeftAlone;  // the keep-alive logs the reason
            continue;
        }
        told = true;
        session.told = floor;
        many = many || answer->dw0 >= kManyTombstones;
    }
    if (told) next_ = now + (many ? std::chrono::milliseconds(kLook) : std::chrono::milliseconds(kPeriod));
    return true;
}

void OpeningFloor::publish_last(std::size_t sessions,
                                const std::function<std::uint64_t(std::size_t)>& association,
                                const Tell& tell) {
    if (!look().ok()) return;
    next_ = {};
    (void)publish(Clock::now(), sessions, association, tell);
}

Result<void> OpeningFloor::begin_next_epoch() {
    std::uint64_t taken = 0;
    GN_TRY(lanes_.download(0, &taken, sizeof taken));
    std::vector<std::uint64_t> words(gnor::kResolvedWords + 1);
    for (std::uint64_t w = 0; w < gnor::kResolvedWords; ++w) words[w] = gnor::all_resolved(w, taken);
    words[gnor::kInDoubtWord] = 0;
    GN_TRY(lanes_.upload(kRing, words.data(), words.size() * sizeof words[0]));
    tracker_.begin_at(taken);
    floor_.store(taken, std::memory_order_relaxed);
    in_doubt_.store(0, std::memory_order_relaxed);
    sessions_.clear();
    next_ = {};
    moved_to_ = 0;
    return {};
}

}  // namespace gnstor::client
