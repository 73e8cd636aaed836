// arbiter.hpp: which submission queue is served next: weighted round robin with urgent priority class.
//
// NVMe Base 2.0, 3.4.4.3 and 5.27.1.1 (Arbitration feature). Pure logic.
// Invariants
//   * urgent queues are served before any other, round robin among themselves;
//   * while every weighted class has work, commands are shared out by weight, whatever the budget of each
//     run: credits and the class in turn persist across runs;
//   * a class without work loses its credits, so that no class saves them up;
//   * queues of one class take turns of one burst; a burst cut short by a budget is finished first.
// Owned by one thread; allocates only when queues are added.
#pragma once

#include "ssd/queues/nvme_queue.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace gnstor::ssd {

/// Fields of the Arbitration feature. Weights count bursts.
struct ArbitrationWeights {
    std::uint32_t burst = 16;  ///< commands of one queue in a row; 2^AB
    std::uint32_t high = 8;
    std::uint32_t medium = 4;
    std::uint32_t low = 2;

    /// CDW11 of the feature: HPW 31:24, MPW 23:16, LPW 15:8 (0's based), AB 2:0 (111b: no limit).
    [[nodiscard]] std::uint32_t encode() const;
    static ArbitrationWeights decode(std::uint32_t cdw11);
    bool operator==(const ArbitrationWeights&) const = default;
};

class Arbiter {
  public:
    /// `queue`: an index that the caller chooses.
    void add(std::uint32_t queue, Priority priority);
    void remove(std::uint32_t queue);
    /// Takes effect with the next round.
    void set_weights(const ArbitrationWeights& weights) { weights_ = weights; }
    [[nodiscard]] const ArbitrationWeights& weights() const { return weights_; }

    /// Serves up to `budget` commands: fetch(queue, limit) fetches at most `limit` commands of a queue and
    /// returns how many; fewer than `limit` means that the queue has no more now. Returns how many were
    /// fetched.
    template <class Fetch>
    std::uint32_t run(std::uint32_t budget, Fetch&& fetch) {
        std::uint32_t left = budget;
        while (left > 0) {
            const std::uint32_t before = left;
            left -= serve(urgent_, left, fetch);
            if (left > 0 && !has_credit()) refill();
            for (std::uint32_t turns = 0; turns < kWeighted && left > 0; ++turns) {
                const std::uint32_t asked = std::min(left, credit_[turn_]);
                const std::uint32_t got = serve(weighted_[turn_], asked, fetch);
                left -= got;
                credit_[turn_] = got < asked ? 0 : credit_[turn_] - got;
                if (credit_[turn_] == 0) turn_ = (turn_ + 1) % kWeighted;
            }
            if (left == before) break;
        }
        return budget - left;
    }

  private:
    static constexpr std::uint32_t kWeighted = 3;
    /// Queues of one priority class, served round robin.
    struct Class {
        std::vector<std::uint32_t> queues;
        std::size_t at = 0;          ///< queue to be served next
        std::uint32_t of_burst = 0;  ///< commands fetched of its current burst
    };

    template <class Fetch>
    std::uint32_t serve(Class& cls, std::uint32_t limit, Fetch& fetch) {
        std::uint32_t fetched = 0;
        std::size_t idle = 0;  // queues in a row that had nothing
        while (fetched < limit && idle < cls.queues.size()) {
            const std::uint32_t asked =
                std::min(limit - fetched, weights_.burst - std::min(cls.of_burst, weights_.burst - 1));
            const std::uint32_t got = fetch(cls.queues[cls.at], asked);
            fetched += got;
            cls.of_burst += got;
            idle = got == 0 ? idle + 1 : 0;
            if (got < asked || cls.of_burst >= weights_.burst) {
                cls.at = cls.at + 1 < cls.queues.size() ? cls.at + 1 : 0;
                cls.of_burst = 0;
            }
        }
        return fetched;
    }
    [[nodiscard]] bool has_credit() const { return (credit_[0] | credit_[1] | credit_[2]) != 0; }
    void refill();

    ArbitrationWeights weights_;
    Class urgent_;
    std::array<Class, kWeighted> weighted_;  ///< high, medium, low
    std::array<std::uint32_t, kWeighted> credit_{};
    std::uint32_t turn_ = 0;
};

}  // namespace gnstor::ssd
