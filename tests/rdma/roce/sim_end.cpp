// sim_end.cpp: requests with contents that can be told, and the checks of completions, receives and memory.
#include "sim_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gnstor::rdma::roce::sim {

End::End(std::uint64_t seed, std::uint32_t mtu, std::uint32_t operations, bool trespass, Violation& violation)
    : seed_(seed),
      mtu_(mtu),
      operations_(operations),
      trespass_(trespass),
      dice_(seed),
      violation_(violation),
      words_(kWriteWords),
      shadow_(kWriteWords),
      source_(kReadBytes) {
    for (std::uint32_t i = 0; i < kReadBytes; ++i) source_[i] = static_cast<std::byte>(mix64(seed ^ i));
}

void End::connect(const RequesterOptions& requester, const ResponderOptions& responder, End& peer) {
    ResponderOptions mine = responder;
    if (seed_ % 2 == 0) mine.pacer = &pacer_;
    connection_ = std::make_unique<Connection>(requester, mine, *this);
    peer_ = &peer;
}

std::uint32_t End::send_bytes(std::uint64_t number) const noexcept {
    const std::uint64_t m = mix64(seed_ * 31 + number);
    return static_cast<std::uint32_t>(m % 3 == 0 ? (m >> 8) % (4 * mtu_) : (m >> 8) % 200);
}
std::byte End::send_byte(std::uint64_t number, std::uint64_t at) const noexcept {
    return static_cast<std::byte>(mix64(seed_ ^ (number << 20) ^ (at / 8)) >> (8 * (at % 8)));
}

void End::act() {
    if (dice_.below(3) != 0 && receives_.size() < 12 && !connection_->failed()) {
        receives_.emplace_back(receives_posted_++, std::vector<std::byte>(4 * mtu_));
    }
    for (std::uint64_t more = dice_.below(4); more > 0 && !asked_all() && asked_.size() < 16; --more) ask();
}

void End::fill_send(Asked& asked, Request& request) {
    asked.number = ++sends_;
    asked.memory.resize(send_bytes(asked.number));
    for (std::size_t i = 0; i < asked.memory.size(); ++i) asked.memory[i] = send_byte(asked.number, i);
    request.solicited = asked.number % 2 == 0;
    if (dice_.below(4) == 0) {
        request.kind = RequestKind::kSendInvalidate;
        request.invalidate_rkey = kWriteKey;
    }
}

void End::ask() {
    const std::uint64_t choice = dice_.below(3);
    Request request;
    Asked asked{RequestKind::kSend, 0, 0, false, {}};
    const bool trespass = trespass_ && begun_ + 1 == operations_;
    if (trespass || choice == 1) {
        request.kind = RequestKind::kWrite;
        asked.number = ++writes_;
        const auto words = static_cast<std::uint32_t>(dice_.below(dice_.below(2) == 0 ? mtu_ / 2 : 12));
        const auto at = dice_.below(kWriteWords - words);
        asked.memory.resize(words * 8 + (trespass ? 8u : 0u));
        for (std::size_t i = 0; i < asked.memory.size(); i += 8)
            std::memcpy(&asked.memory[i], &asked.number, 8);
        asked.trespass = trespass;
        request.address = (trespass ? kReadBase : kWriteBase) + at * 8;
        request.rkey = trespass ? kReadKey : kWriteKey;
    } else if (choice == 2) {
        request.kind = RequestKind::kRead;
        const auto bytes = static_cast<std::uint32_t>(dice_.below(dice_.below(2) == 0 ? 4 * mtu_ : 100));
        asked.memory.resize(bytes);
        request.address = kReadBase + dice_.below(kReadBytes - bytes);
        request.rkey = kReadKey;
    } else {
        fill_send(asked, request);
    }
    asked.kind = request.kind;
    asked.address = request.address;
    request.id = begun_++;
    asked_.push_back(std::move(asked));
    // In up to three pieces, cut anywhere.
    const std::span<std::byte> all(asked_.back().memory);
    const std::size_t a = dice_.below(all.size() + 1), b = a + dice_.below(all.size() - a + 1);
    request.pieces = {all.first(a), all.subspan(a, b - a), all.subspan(b)};
    request.count = 3;
    if (!connection_->post(request)) violation_.add("a request was refused though entries were free");
}

void End::take_completions() {
    Completion completion;
    while (connection_->next_completion(completion)) {
        if (asked_.empty() || completion.id != completed_) {
            return violation_.add(
                fmt::format("completion of {} where {} was next", completion.id, completed_));
        }
        check_completion(asked_.front(), completion);
        asked_.pop_front();
        ++completed_;
    }
}

void End::check_completion(const Asked& asked, const Completion& completion) {
    if (completion.status != mlx5::kSyndromeNone) {
        flushed_ = true;
        if (!connection_->failed()) violation_.add("an error completion on a connection that has not failed");
        return;
    }
    if (flushed_) violation_.add("a request completed after one that was flushed");
    if (asked.trespass) return violation_.add("a WRITE without the right to write completed");
    if (asked.kind == RequestKind::kRead) {
        const auto* from = peer_->source_.data() + (asked.address - kReadBase);
        if (!std::equal(asked.memory.begin(), asked.memory.end(), from))
            violation_.add("a READ brought other data");
    } else if (asked.kind == RequestKind::kWrite) {
        const auto at = (asked.address - kWriteBase) / 8;
        for (std::size_t i = 0; i < asked.memory.size() / 8; ++i) {
            if (peer_->words_[at + i] < asked.number)
                violation_.add("a WRITE completed that has not arrived");
        }
    } else if (peer_->messages_in_ < asked.number) {
        violation_.add("a SEND completed that has not arrived");
    }
}

std::byte* End::reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right right) {
    const bool write = right == Right::kRemoteWrite;
    // This region may be read too; the other one may not be written.
    if (rkey == kWriteKey && address >= kWriteBase && address - kWriteBase <= kWriteWords * 8 &&
        bytes <= kWriteWords * 8 - (address - kWriteBase)) {
        touched_.emplace_back((address - kWriteBase) / 8, (address - kWriteBase + bytes + 7) / 8);
        return reinterpret_cast<std::byte*>(words_.data()) + (address - kWriteBase);
    }
    if (rkey == kReadKey && !write && address >= kReadBase && address - kReadBase <= kReadBytes &&
        bytes <= kReadBytes - (address - kReadBase)) {
        return source_.data() + (address - kReadBase);
    }
    return nullptr;
}

void End::check_writes() {
    for (const auto& [from, to] : touched_) {
        for (std::uint32_t i = from; i < to; ++i) {
            if (words_[i] < shadow_[i]) violation_.add("an older WRITE came over a newer one");
            if (words_[i] > peer_->writes_) violation_.add("a WRITE of bytes that nobody sent");
            shadow_[i] = words_[i];
        }
    }
    touched_.clear();
}

void End::check_untouched() {
    for (std::uint32_t i = 0; i < kReadBytes; ++i) {
        if (source_[i] != static_cast<std::byte>(mix64(seed_ ^ i))) {
            return violation_.add("memory was written that no key allows to write");
        }
    }
    if (words_ != shadow_) violation_.add("memory was written that was not asked for");
}

bool End::take_receive(ReceiveBuffer& receive) {
    if (receives_.empty()) return false;
    receiving_ = std::move(receives_.front());
    receives_.pop_front();
    const std::span<std::byte> all(receiving_.second);
    receive.id = receiving_.first;
    receive.pieces = {all.first(7), all.subspan(7, mtu_), all.subspan(7 + mtu_)};
    receive.count = 3;
    return true;
}

void End::received(const Received& received) {
    if (received.id != receiving_.first) violation_.add("a receive completed that was not taken");
    if (received.status != mlx5::kSyndromeNone) return;
    const std::uint64_t number = ++messages_in_;
    if (number > peer_->sends_ || received.bytes != peer_->send_bytes(number)) {
        return violation_.add(
            fmt::format("message {} has {} bytes, which is not what was sent", number, received.bytes));
    }
    if (received.solicited != (number % 2 == 0)) violation_.add("the solicited event bit went lost");
    for (std::uint32_t i = 0; i < received.bytes; ++i) {
        if (receiving_.second[i] != peer_->send_byte(number, i)) {
            return violation_.add(fmt::format("message {} differs at byte {}", number, i));
        }
    }
}

}  // namespace gnstor::rdma::roce::sim
