#include "nvmf/auth/dhchap_transaction.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace gnstor::nvmf::auth {

namespace {

template <class Id>
bool has(const std::vector<Id>& ids, Id id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}
template <class Id>
bool repeats(std::vector<Id> ids) {
    std::sort(ids.begin(), ids.end());
    return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

}  // namespace

Result<void> DhchapPolicy::check() const {
    if (hashes.empty() || all_groups().empty())
        return error(Errc::kInvalidArgument, "DH-HMAC-CHAP: a policy needs at least one hash and one group");
    if (repeats(hashes) || repeats(groups))
        return error(Errc::kInvalidArgument, "DH-HMAC-CHAP: a policy names a hash or a group twice");
    if (has(groups, GroupId::kNull))
        return error(Errc::kInvalidArgument,
                     "DH-HMAC-CHAP: a policy lists the NULL group; it is allowed by allow_null_group alone");
    return {};
}

std::vector<GroupId> DhchapPolicy::all_groups() const {
    std::vector<GroupId> all = groups;
    if (allow_null_group) all.push_back(GroupId::kNull);
    return all;
}

bool DhchapPolicy::allows(HashId hash) const {
    return has(hashes, hash);
}

bool DhchapPolicy::allows(GroupId group) const {
    return group == GroupId::kNull ? allow_null_group : has(groups, group);
}

std::optional<std::uint32_t> draw_sequence(const FillRandom& random) {
    std::array<std::byte, 4> bytes{};
    if (!random(bytes)) return std::nullopt;
    const auto drawn = std::bit_cast<std::uint32_t>(bytes);
    return drawn == 0 ? 1 : drawn;
}

}  // namespace gnstor::nvmf::auth
