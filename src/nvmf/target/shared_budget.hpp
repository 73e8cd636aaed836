// shared_budget.hpp: budgets that the connections of one reactor share, round robin (fair_budget.hpp), and
// their pool of staging pages.
//
// The reactor's thread only.
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

class TargetConnection;

/// One client gets at most half of it, which must be enough for the largest command.
inline constexpr std::uint64_t kStagingBytesMin = 4 * std::uint64_t{kTransferBytesMax};

/// Staging memory of each subsystem, in bytes, when `bytes` are divided among `subsystems`.
constexpr std::uint64_t staging_share(std::uint64_t bytes, std::size_t subsystems) {
    return std::max(bytes / std::max<std::size_t>(subsystems, 1), kStagingBytesMin);
}

/// A budget, and the connection of each of its members.
struct SharedBudget {
    explicit SharedBudget(const FairBudgetOptions& options) : budget(options) {}
    FairBudget::Member join(TargetConnection& connection, const std::string& client) {
        const FairBudget::Member member = budget.join(client);
        if (members.size() <= member) members.resize(member + std::size_t{1});
        members[member] = &connection;
        return member;
    }
    FairBudget budget;
    std::vector<TargetConnection*> members;
};

/// Pool of free pages, kept for reuse. The budget limits the pages in use.
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
