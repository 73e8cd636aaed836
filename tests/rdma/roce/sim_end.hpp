// sim_end.hpp: one end of a simulated connection: its memory, its receives, what it asks for, and the checks
// of what it gets. Everything comes from the seed; violations are kept as text, the first one counts.
#pragma once

#include <gnstor/base/hash.hpp>

#include "rdma/roce/connection.hpp"
#include "rdma/roce/pacer.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::rdma::roce::sim {

inline constexpr std::uint32_t kWriteKey = 0x1100, kReadKey = 0x2200;
inline constexpr std::uint64_t kWriteBase = 0x7000'0000'0000, kReadBase = 0x7100'0000'0000;
inline constexpr std::uint32_t kWriteWords = 2048, kReadBytes = 32768;

/// The first thing that went wrong in a run.
struct Violation {
    std::string text;
    void add(std::string what) {
        if (text.empty()) text = std::move(what);
    }
};

class End final : public MemoryPort {
  public:
    End(std::uint64_t seed, std::uint32_t mtu, std::uint32_t operations, bool trespass, Violation& violation);

    void connect(const RequesterOptions& requester, const ResponderOptions& responder, End& peer);
    Connection& connection() noexcept { return *connection_; }
    [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr; }

    /// The application's turn: perhaps posts a request or a receive.
    void act();
    void take_completions();
    /// After each packet: words that RDMA WRITE touched never go back to an older write.
    void check_writes();
    void check_untouched();
    [[nodiscard]] bool asked_all() const noexcept { return begun_ == operations_; }
    [[nodiscard]] bool finished() const noexcept { return asked_all() && completed_ == begun_; }
    [[nodiscard]] bool starved() const noexcept { return receives_.empty(); }
    [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }
    [[nodiscard]] std::uint64_t received_messages() const noexcept { return messages_in_; }

    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right right) override;
    bool invalidate(std::uint32_t rkey) override { return rkey == kWriteKey; }
    bool take_receive(ReceiveBuffer& receive) override;
    void received(const Received& received) override;

  private:
    /// What a request was, for the check of its completion.
    struct Asked {
        RequestKind kind;
        std::uint64_t number;  ///< of its kind, from 1
        std::uint64_t address;
        bool trespass;
        std::vector<std::byte> memory;
    };
    void ask();
    void fill_send(Asked& asked, Request& request);
    void check_completion(const Asked& asked, const Completion& completion);
    [[nodiscard]] std::uint32_t send_bytes(std::uint64_t number) const noexcept;
    [[nodiscard]] std::byte send_byte(std::uint64_t number, std::uint64_t at) const noexcept;

    const std::uint64_t seed_;
    const std::uint32_t mtu_, operations_;
    const bool trespass_;
    SplitMix64 dice_;
    Violation& violation_;
    Pacer pacer_{{.free_bytes = 1024, .rate_first = 20'000'000, .burst_bytes = 4096}};  ///< every other end's
    std::unique_ptr<Connection> connection_;
    End* peer_ = nullptr;

    std::vector<std::uint64_t> words_,
        shadow_;                     ///< RDMA WRITE lands here: each word is the number of a write
    std::vector<std::byte> source_;  ///< RDMA READ reads this
    std::vector<std::pair<std::uint32_t, std::uint32_t>> touched_;
    std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> receives_;
    std::pair<std::uint64_t, std::vector<std::byte>> receiving_;
    std::uint64_t receives_posted_ = 0, messages_in_ = 0;
    std::deque<Asked> asked_;
    std::uint32_t begun_ = 0;
    std::uint64_t completed_ = 0, sends_ = 0, writes_ = 0;
    bool flushed_ = false;
};

}  // namespace gnstor::rdma::roce::sim
