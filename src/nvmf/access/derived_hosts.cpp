#include "nvmf/access/derived_hosts.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <gnstor/nvme/fencing.hpp>

#include <utility>

namespace gnstor::nvmf {

using nvme::Status;

std::optional<std::uint32_t> DerivedHosts::generation(std::string_view host_nqn) const {
    if (host_nqn == admin_host_nqn_) return 0;
    const std::optional<nvme::ClientId> client = client_of_host_nqn(host_nqn);
    if (!client) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto listed = generations_.find(*client);
    return listed == generations_.end() ? std::nullopt : std::optional(listed->second);
}

std::optional<std::uint64_t> DerivedHosts::stamp(std::string_view host_nqn) const {
    return generation(host_nqn);
}

std::optional<HostRegistry::Host> DerivedHosts::find(std::string_view host_nqn) const {
    const std::optional<std::uint32_t> valid = generation(host_nqn);
    if (!valid) return std::nullopt;
    Result<auth::DhchapKeys> keys = auth::derive_keys(node_key_, host_nqn, *valid);
    if (!keys.ok()) return std::nullopt;
    return Host{std::move(keys).value(), *valid};
}

std::uint64_t DerivedHosts::version() const {
    const std::lock_guard lock(mutex_);
    return version_;
}

nvme::Status DerivedHosts::set(const nvme::HostSetPage& page) {
    if (page.record_version != nvme::kHostSetVersion || page.count > nvme::kHostSetEntriesMax ||
        page.total > 0xFFFF || page.first > page.total || page.count > page.total - page.first ||
        (page.count == 0 && page.total != 0))
        return Status::kInvalidField;
    const std::lock_guard lock(mutex_);
    if (page.term < term_) return Status::kStaleTerm;
    // As a drive does with terms: no wrong one puts the list out of every later daemon's reach.
    if (term_ != 0 && !nvme::is_plausible_term(page.term, term_)) return Status::kCommandSequenceError;
    if (page.term == term_ && page.version == list_version_) return Status::kSuccess;
    if (page.term == term_ && page.version < list_version_) return Status::kInvalidField;
    if (page.first == 0) {
        arriving_.clear();
        arriving_term_ = page.term;
        arriving_version_ = page.version;
        arriving_total_ = page.total;
    }
    if (const Status taken = take_entries(page); !nvme::ok(taken)) {
        arriving_.clear();
        arriving_total_ = 0;
        arriving_version_ = 0;
        return taken;
    }
    if (arriving_.size() < arriving_total_) return Status::kSuccess;
    generations_ = std::exchange(arriving_, {});
    term_ = arriving_term_;
    list_version_ = std::exchange(arriving_version_, 0);
    ++version_;
    return Status::kSuccess;
}

/// Under the mutex.
nvme::Status DerivedHosts::take_entries(const nvme::HostSetPage& page) {
    if (page.term != arriving_term_ || page.version != arriving_version_ || page.total != arriving_total_ ||
        page.first != arriving_.size())
        return Status::kInvalidField;
    for (std::uint32_t i = 0; i < page.count; ++i) {
        const nvme::HostSetEntry& entry = page.entries[i];
        const bool ordered = arriving_.empty() || arriving_.rbegin()->first < entry.client;
        if (entry.client == 0 || entry.generation == 0 || !ordered) return Status::kInvalidField;
        arriving_.emplace_hint(arriving_.end(), entry.client, entry.generation);
    }
    return Status::kSuccess;
}

}  // namespace gnstor::nvmf
