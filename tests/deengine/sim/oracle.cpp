// oracle.cpp: versions and their bounds.
#include "deengine/sim/oracle.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace gnstor::deengine::sim {
namespace {

std::string text(const WriteOrder& o) {
    return fmt::format("({}, {}, {:08x})", o.epoch, o.sequence, o.crc);
}

}  // namespace

void BlockState::send(const WriteOrder& order, ContentId content) {
    for (Version& v : versions)
        if (v.order == order && v.content == content) {
            ++v.claims;
            return;
        }
    versions.push_back({order, content, 1});
}

void BlockState::refuse(const WriteOrder& order, ContentId content) {
    for (Version& v : versions)
        if (v.order == order && v.content == content && v.claims != 0) --v.claims;
    std::erase_if(versions, [](const Version& v) { return v.claims == 0; });
}

void BlockState::acknowledge(const WriteOrder& order, bool durable_now) {
    if (doubtful && order >= *doubtful) doubtful.reset();
    live = std::max(live, order);
    if (durable_now) make_durable(order);
}

void BlockState::make_durable(const WriteOrder& order) {
    if (order <= durable) return;
    durable = order;
    live = std::max(live, durable);
    prune();
}

void BlockState::prune() {
    std::erase_if(versions, [&](const Version& v) { return v.order < durable; });
}

const Version* BlockState::find(const std::byte* bytes, std::uint32_t first, std::uint32_t sectors,
                                bool after_cut) const {
    const WriteOrder& bound = after_cut ? durable : live;
    const Version* least = nullptr;
    for (const Version& v : versions)
        if (v.order >= bound && (least == nullptr || v.order < least->order) &&
            Pattern(v.content).matches(bytes, first, sectors))
            least = &v;
    return least;
}

void BlockState::see(const WriteOrder& order) {
    live = std::max(live, order);
}

bool BlockState::may_be_doubtful(const Version& shown) const {
    return doubtful || std::ranges::any_of(versions, [&](const Version& v) { return v.order > shown.order; });
}

bool BlockState::damage_may_be_doubtful() const {
    return !gone || doubtful ||
           std::ranges::any_of(versions, [&](const Version& v) { return v.order > *gone; });
}

void BlockState::settle(const Version& shown) {
    const Version least = shown;
    for (const Version& v : versions)
        if (v.order > least.order) doubtful = std::max(doubtful.value_or(WriteOrder{}), v.order);
    live = durable = least.order;
    std::erase_if(versions,
                  [&](const Version& v) { return v.content != least.content || v.order < least.order; });
}

VolumeState* Oracle::find(nvme::VolumeId vid, std::uint64_t life) {
    const auto it = volumes.find(vid);
    return it == volumes.end() || it->second.life != life ? nullptr : &it->second;
}

const BlockState* Oracle::find_block(nvme::VolumeId vid, nvme::BlockAddress vba) const {
    const auto volume = volumes.find(vid);
    if (volume == volumes.end()) return nullptr;
    const auto block = volume->second.blocks.find(vba);
    return block == volume->second.blocks.end() ? nullptr : &block->second;
}

std::string Oracle::check_records(const std::vector<nvme::VolumeRecord>& records, bool& took) const {
    const auto matches = [&](const Oracle& o) {
        if (records.size() != o.volumes.size()) return false;
        return std::ranges::equal(records, o.volumes, [](const auto& drive, const auto& mine) {
            return std::memcmp(&drive, &mine.second.record, sizeof(drive)) == 0;
        });
    };
    took = false;
    if (matches(*this)) return {};
    if (admin) {
        Oracle next;
        for (const auto& [vid, v] : volumes) next.volumes[vid].record = v.record;
        next.apply(*admin);
        took = true;
        if (matches(next)) return {};
    }
    return fmt::format("the drive knows {} volumes, {} are acknowledged (or their records differ)",
                       records.size(), volumes.size());
}

void Oracle::apply(const PendingAdmin& done) {
    const nvme::VolumeId vid = done.record.geometry.volume;
    if (done.kind == PendingAdmin::Kind::kDelete) {
        deleted[vid] = volumes[vid].record.epoch;
        volumes.erase(vid);
        return;
    }
    VolumeState& v = volumes[vid];
    if (done.kind == PendingAdmin::Kind::kChmod && done.record.epoch != v.record.epoch) {
        v.next_sequence = 1;
        v.floor = 0;
        v.unresolved.clear();
    }
    v.record = done.record;
}

std::uint64_t Oracle::blocks_held() const {
    std::uint64_t held = 0;
    for (const auto& [vid, v] : volumes)
        for (const auto& [vba, b] : v.blocks)
            held += std::ranges::any_of(b.versions, [](const Version& x) { return x.content != 0; }) ? 1 : 0;
    return held;
}

std::string describe(const BlockState& block, const std::byte* bytes, ContentId contents) {
    std::string what;
    ContentId before = ~ContentId{0};
    for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s) {
        ContentId id = 0;
        while (id <= contents && !Pattern(id).matches(bytes + std::size_t{s} * nvme::kSectorBytes, s, 1))
            ++id;
        if (id == before) continue;
        what += id > contents ? fmt::format("from sector {} garbage; ", s)
                : id == 0     ? fmt::format("from sector {} zeroes; ", s)
                              : fmt::format("from sector {} content {}; ", s, id);
        before = id;
    }
    std::string kept;
    for (const Version& v : block.versions)
        kept += fmt::format(" {}={}x{}", text(v.order), v.content, v.claims);
    return fmt::format("{}bounds: live {}, durable {}; versions:{}", what, text(block.live),
                       text(block.durable), kept);
}

}  // namespace gnstor::deengine::sim
