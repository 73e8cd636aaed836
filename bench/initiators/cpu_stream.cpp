// cpu_stream.cpp: the stages of a request that a CPU initiates.
#include "bench/initiators/cpu_stream.hpp"

#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kStreamStallNs = 20'000'000'000;  // nothing came back for so long: give up
constexpr std::uint32_t kAnswersAStep = 32;
constexpr std::uint16_t kNoFlight = 0xFFFF;  // of an entry that nobody waits for

}  // namespace

CpuStream::CpuStream(const StreamParts& parts, const Load& load, const Plan& plan)
    : parts_(parts),
      load_(load),
      recorder_(plan, parts.rank),
      draw_(load, parts.member, parts.members, parts.rank),
      flights_(parts.depth),
      boxes_(parts.mailboxes.size()) {
    for (std::uint32_t i = parts.depth; i-- > 0;) empty_.push_back(static_cast<std::uint16_t>(i));
    // Mailboxes live longer than streams: their counts go on.
    for (std::size_t b = 0; b < boxes_.size(); ++b)
        boxes_[b].posted = boxes_[b].taken =
            simt::load_relaxed<simt::Scope::kSystem>(&parts.mailboxes[b].posted);
}

void CpuStream::begin() {
    recorder_.begin();
    idle_since_ns_ = simt::now_ns();
    timer_.begin_run();
}
void CpuStream::end() {
    recorder_.end();
}

bool CpuStream::step() {
    now_ns_ = simt::now_ns();
    timer_.begin_round();
    bool progress = take_mail();
    timer_.charge_if(progress, Stage::kHandOver);
    progress = take_answers() || progress;
    if (parts_.copier != nullptr) progress = take_copies() || progress;
    const bool fresh = start_fresh();
    timer_.charge_if(fresh, Stage::kHandOver);
    const bool posted = post_ready();
    timer_.charge_if(posted, Stage::kSubmit);
    progress = fresh || posted || progress;
    if (parts_.copier != nullptr) {
        parts_.copier->seal();
        timer_.charge_if(progress, Stage::kCopy);
    }
    if (progress) {
        idle_since_ns_ = now_ns_;
    } else if (empty_.size() == flights_.size()) {
        // Nothing under way. In an open loop there may be nothing to begin yet.
        done_ = draw_.exhausted(load_) || !recorder_.wants_more(now_ns_);
        idle_since_ns_ = now_ns_;
    } else if (now_ns_ - idle_since_ns_ > kStreamStallNs) {
        give_up();
    }
    return progress;
}

void CpuStream::give_up() {
    for (const Flight& f : flights_)
        if (f.stage != FlightStage::kEmpty) recorder_.failure(nvme::Status::kTimedOut, f.drawn.offset);
    done_ = true;
}

bool CpuStream::start_fresh() {
    bool progress = false;
    while (!empty_.empty() && !draw_.exhausted(load_) && recorder_.wants_more(now_ns_) &&
           recorder_.due(now_ns_)) {
        const std::uint16_t at = empty_.back();
        empty_.pop_back();
        Flight& f = flights_[at];
        f.drawn = draw_.next(load_);
        f.intended_ns = recorder_.take_intended(now_ns_);
        recorder_.issued();
        progress = true;
        const bool finishes = f.owes_word;
        f.owes_word = false;
        if (f.drawn.write) {
            mail(at, load_.pass == Pass::kFill ? Errand::kFill0 : Errand::kFill1, finishes);
        } else {
            if (finishes) put(at, Errand::kDone, true);
            f.stage = FlightStage::kToPost;
            to_post_.push_back(at);
        }
    }
    // Nothing more is to come that would tell the lanes.
    for (const std::uint16_t at : empty_) {
        if (!flights_[at].owes_word) continue;
        flights_[at].owes_word = false;
        put(at, Errand::kDone, true);
    }
    return progress;
}

bool CpuStream::post_ready() {
    bool progress = false;
    while (!to_post_.empty()) {
        Flight& f = flights_[to_post_.front()];
        if (!parts_.port->post(request_of(to_post_.front()))) break;
        f.stage = FlightStage::kPosted;
        f.stage_ns = now_ns_;
        to_post_.pop_front();
        progress = true;
    }
    parts_.port->flush();
    return progress;
}

Request CpuStream::request_of(std::uint32_t flight) const {
    const Flight& f = flights_[flight];
    Request r;
    r.block = static_cast<nvme::BlockAddress>(f.drawn.offset / nvme::kBlockBytes);
    r.write = f.drawn.write;
    r.tag = flight;
    r.buffer = landing(flight);
    if (load_.bytes >= nvme::kBlockBytes) {
        r.blocks = static_cast<std::uint16_t>(load_.bytes / nvme::kBlockBytes);
        return r;
    }
    r.first_sector = static_cast<std::uint8_t>(f.drawn.offset % nvme::kBlockBytes / nvme::kSectorBytes);
    r.sectors = static_cast<std::uint8_t>(load_.bytes / nvme::kSectorBytes);
    return r;
}

bool CpuStream::take_answers() {
    Answer answers[kAnswersAStep];
    const std::uint32_t n = parts_.port->poll(answers);
    for (std::uint32_t i = 0; i < n; ++i) {
        Flight& f = flights_[answers[i].tag];
        times_.array_ns += now_ns_ - f.stage_ns;
        ++times_.array_count;
        if (f.drawn.write || !nvme::ok(answers[i].status)) {
            finish(answers[i].tag, answers[i].status);
        } else if (parts_.copier != nullptr) {
            timer_.charge(Stage::kPoll);
            copy(answers[i].tag);
            timer_.charge(Stage::kCopy);
        } else {
            timer_.charge(Stage::kPoll);
            mail(answers[i].tag, recorder_.chooses_to_check() ? Errand::kCheck : Errand::kLook, true);
            timer_.charge(Stage::kHandOver);
        }
    }
    timer_.charge_if(n != 0, Stage::kPoll);
    return n != 0;
}

void CpuStream::copy(std::uint32_t flight) {
    Flight& f = flights_[flight];
    f.stage = FlightStage::kCopying;
    f.stage_ns = now_ns_;
    std::byte* const host = landing(flight);
    std::byte* const lanes = lane_buffer(flight);
    if (f.drawn.write)
        parts_.copier->begin(flight, host, lanes, load_.bytes);
    else
        parts_.copier->begin(flight, lanes, host, load_.bytes);
}

bool CpuStream::take_copies() {
    parts_.copier->seal();
    std::uint32_t tags[kAnswersAStep];
    const std::uint32_t n = parts_.copier->poll(tags);
    timer_.charge_if(n != 0, Stage::kCopy);
    if (n == 0) return false;
    const std::uint64_t now = simt::now_ns();  // a copy on this very thread took time since the step began
    for (std::uint32_t i = 0; i < n; ++i) {
        Flight& f = flights_[tags[i]];
        const std::uint64_t took = now > f.stage_ns ? now - f.stage_ns : 0;
        times_.copy_ns += took;
        ++times_.copy_count;
        if (f.drawn.write) {
            f.stage = FlightStage::kToPost;
            to_post_.push_back(static_cast<std::uint16_t>(tags[i]));
        } else {
            mail(tags[i], recorder_.chooses_to_check() ? Errand::kCheck : Errand::kLook, true);
        }
    }
    timer_.charge(Stage::kHandOver);
    return true;
}

/// An errand that the flight waits for.
void CpuStream::mail(std::uint32_t flight, Errand errand, bool finishes) {
    flights_[flight].stage = FlightStage::kMailed;
    flights_[flight].stage_ns = now_ns_;
    put(flight, errand, finishes);
}

void CpuStream::put(std::uint32_t flight, Errand errand, bool finishes) {
    const std::size_t index = flight % boxes_.size();
    Box& box = boxes_[index];
    Mailbox& shared = parts_.mailboxes[index];
    const auto own = static_cast<std::uint16_t>(flight);
    shared.entries[box.posted % Mailbox::kEntries] =
        MailEntry{flights_[flight].drawn.offset,
                  reinterpret_cast<std::uintptr_t>(lane_buffer(flight)),
                  load_.bytes,
                  errand,
                  own,
                  0,
                  finishes ? 1u : 0u};
    box.flights[box.posted % Mailbox::kEntries] = errand == Errand::kDone ? kNoFlight : own;
    ++box.posted;
    // Pairs with the acquire in ConsumerJob::serve: the entry and the data it names are whole. What the NIC
    // wrote was acquired with its completion.
    simt::store_release<simt::Scope::kSystem>(&shared.posted, box.posted);
}

bool CpuStream::take_mail() {
    bool progress = false;
    for (std::size_t b = 0; b < boxes_.size(); ++b) {
        Box& box = boxes_[b];
        if (box.taken == box.posted) continue;
        // Pairs with the warp's release of `taken`: it is done with entry and buffer.
        const std::uint64_t taken = simt::load_acquire<simt::Scope::kSystem>(&parts_.mailboxes[b].taken);
        for (; box.taken < taken; ++box.taken) {
            const std::uint32_t flight = box.flights[box.taken % Mailbox::kEntries];
            if (flight == kNoFlight) continue;
            Flight& f = flights_[flight];
            times_.handover_ns += now_ns_ > f.stage_ns ? now_ns_ - f.stage_ns : 0;
            ++times_.handover_count;
            progress = true;
            if (!f.drawn.write) {
                finish(flight, nvme::Status::kSuccess);
            } else if (parts_.copier != nullptr) {
                timer_.charge(Stage::kHandOver);
                copy(flight);
                timer_.charge(Stage::kCopy);
            } else {
                f.stage = FlightStage::kToPost;
                to_post_.push_back(static_cast<std::uint16_t>(flight));
            }
        }
    }
    return progress;
}

void CpuStream::finish(std::uint32_t flight, nvme::Status status) {
    Flight& f = flights_[flight];
    if (nvme::ok(status)) {
        // In a closed loop the lanes took its time.
        recorder_.success(load_.interval_ps != 0 ? simt::now_ns() - f.intended_ns : 0);
        f.owes_word = f.drawn.write;
        if (!f.drawn.write) ++reads_;
        if (f.drawn.write && load_.pass == Pass::kMeasure) {
            const auto first = static_cast<std::uint32_t>(f.drawn.offset / nvme::kBlockBytes);
            const std::uint32_t blocks = load_.bytes / nvme::kBlockBytes;  // 1 .. 16, never across a word
            simt::fetch_or<simt::Scope::kSystem>(&parts_.written[first / 32], ((1u << blocks) - 1)
                                                                                  << (first % 32));
        }
    } else {
        recorder_.failure(status, f.drawn.offset);
    }
    f.stage = FlightStage::kEmpty;
    empty_.push_back(static_cast<std::uint16_t>(flight));
}

}  // namespace gnstor::bench
