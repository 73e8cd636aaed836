// chaos.hpp: seeded faults for drives and stores of a simulation: refusals, lost answers, crashes before and
// after every operation.
#pragma once

#include "daemon/model_ssd.hpp"
#include "daemon/records/records.hpp"

#include <gnstor/base/hash.hpp>

namespace gnstor::daemon::test {

struct Crash {};

/// Where faults come from: a seeded chance at each operation, and one crash that was planned.
struct Chaos {
    explicit Chaos(std::uint64_t seed) : random(seed) {}
    SplitMix64 random;
    bool on = true;
    std::uint64_t operations = 0, crashes = 0, refused = 0, lost = 0;

    Fault at(bool after) {
        ++operations;
        if (!on) return Fault::kNone;
        const auto dice = random.below(1000);
        if (dice < 6) {
            ++crashes;
            throw Crash{};
        }
        if (!after && dice < 30) return ++refused, Fault::kRefuse;
        if (after && dice < 30) return ++lost, Fault::kLoseAnswer;
        return Fault::kNone;
    }
};

class ChaosStore final : public RecordStore {
  public:
    ChaosStore(MemoryRecordStore& inner, Chaos& chaos) : inner_(inner), chaos_(chaos) {}
    Result<Records> load() override {
        if (chaos_.at(false) == Fault::kRefuse) return error(Errc::kIo, "the disk is told not to be read");
        return inner_.load();
    }
    Result<void> save(const Change& change) override {
        if (chaos_.at(false) == Fault::kRefuse) return error(Errc::kIo, "the disk is told to fail");
        GN_TRY(inner_.save(change));
        if (chaos_.at(true) == Fault::kLoseAnswer)
            return error(Errc::kIo, "the disk is told to fail after the commit");
        return {};
    }

  private:
    MemoryRecordStore& inner_;
    Chaos& chaos_;
};

}  // namespace gnstor::daemon::test
