// turns.hpp: what the connections of one reactor share, and in which order: a budget, and whose its members
// are.
//
// The reactor's thread alone.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/target/fair_budget.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::nvmf {

class Connection;

/// One client may have half of it, and must be able to have the largest command.
inline constexpr std::uint64_t kStagingBytesMin = 4 * std::uint64_t{kTransferBytesMax};

/// What each subsystem has of the staging memory of all.
constexpr std::uint64_t staging_share(std::uint64_t bytes, std::size_t subsystems) {
    return std::max(bytes / std::max<std::size_t>(subsystems, 1), kStagingBytesMin);
}

struct Turns {
    explicit Turns(const FairBudgetOptions& options) : budget(options) {}
    FairBudget::Member join(Connection& connection, const std::string& client) {
        const FairBudget::Member member = budget.join(client);
        if (members.size() <= member) members.resize(member + std::size_t{1});
        members[member] = &connection;
        return member;
    }
    FairBudget budget;
    std::vector<Connection*> members;
};

/// Pages of memory that were used and are free. The budget bounds those that are not.
class StagingPages {
  public:
    using Page = std::unique_ptr<std::byte[]>;
    [[nodiscard]] Page take() {
        if (idle_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kInCapsuleBytes);
        Page page = std::move(idle_.back());
        idle_.pop_back();
        return page;
    }
    void give(Page page) {
        if (idle_.size() < kIdleMax) idle_.push_back(std::move(page));
    }

  private:
    static constexpr std::size_t kIdleMax = 1024;
    std::vector<Page> idle_;
};

}  // namespace gnstor::nvmf
