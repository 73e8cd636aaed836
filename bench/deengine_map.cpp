// deengine_map.cpp: the block map beside std::unordered_map and a flat page table: the same keys, the same
// order, the same run.
//
// Keys are the blocks of four volumes, written from end to end; a flat table that is full of them is the best
// a flat table can be (a drive holds only some chunks of a volume, and its table would have holes for the
// others). Every order is random over all keys, so that nearly every access misses every cache.
#include "deengine.hpp"
#include "deengine/map/block_map.hpp"

#include <gnstor/base/hash.hpp>

#include <malloc.h>

#include <numeric>
#include <unordered_map>

namespace gnstor::bench::deengine_bench {
namespace {

using deengine::BlockKey;
using deengine::BlockMap;
using deengine::make_key;
using deengine::PageNumber;

constexpr std::uint64_t kVolumes = 4;
constexpr std::uint64_t kLookups = 1u << 20;
constexpr std::uint64_t kChanges = 1u << 16;
constexpr std::uint64_t kSlice = 2048;
constexpr PageNumber kAbsent = ~PageNumber{0};

BlockKey key_at(std::uint64_t index) {
    return make_key(static_cast<nvme::VolumeId>(1 + index % kVolumes),
                    static_cast<nvme::BlockAddress>(index / kVolumes));
}

/// Allocator that counts what the heap really gives, its own header included (glibc).
template <class T>
struct Counting {
    using value_type = T;
    explicit Counting(std::uint64_t& counted) : bytes(&counted) {}
    template <class U>
    Counting(const Counting<U>& other) : bytes(other.bytes) {}
    T* allocate(std::size_t n) {
        T* p = std::allocator<T>().allocate(n);
        *bytes += malloc_usable_size(p) + sizeof(std::size_t);
        return p;
    }
    void deallocate(T* p, std::size_t n) {
        *bytes -= malloc_usable_size(p) + sizeof(std::size_t);
        std::allocator<T>().deallocate(p, n);
    }
    template <class U>
    bool operator==(const Counting<U>& other) const {
        return bytes == other.bytes;
    }
    std::uint64_t* bytes;
};

struct ExactCuckoo {
    static constexpr const char* kName = "block map";
    static constexpr bool kPrefetches = true;
    explicit ExactCuckoo(std::uint64_t slots)
        : map(slots, static_cast<std::uint32_t>(slots / BlockMap::kSlotsPerBucket)) {}
    [[nodiscard]] PageNumber find(BlockKey key) const {
        const auto entry = map.find(key);
        return entry ? entry->page : kAbsent;
    }
    bool insert(BlockKey key, PageNumber page) {
        const auto ticket = map.reserve(key);
        if (ticket) map.commit(*ticket, {page, false});
        return ticket.has_value();
    }
    bool update(BlockKey key, PageNumber page) { return map.update(key, {page, false}); }
    bool erase(BlockKey key) { return map.erase(key); }
    void prefetch(BlockKey key) const { map.prefetch(key); }
    [[nodiscard]] std::uint64_t bytes() const { return map.memory_bytes(); }
    BlockMap map;
};

struct NodeMap {
    static constexpr const char* kName = "std::unordered_map";
    static constexpr bool kPrefetches = false;
    explicit NodeMap(std::uint64_t slots) : map(Allocator(counted)) { map.reserve(slots); }
    NodeMap(const NodeMap&) = delete;
    NodeMap& operator=(const NodeMap&) = delete;
    [[nodiscard]] PageNumber find(BlockKey key) const {
        const auto at = map.find(key);
        return at == map.end() ? kAbsent : at->second;
    }
    bool insert(BlockKey key, PageNumber page) { return map.emplace(key, page).second; }
    bool update(BlockKey key, PageNumber page) {
        const auto at = map.find(key);
        if (at == map.end()) return false;
        at->second = page;
        return true;
    }
    bool erase(BlockKey key) { return map.erase(key) != 0; }
    void prefetch(BlockKey) const {}
    [[nodiscard]] std::uint64_t bytes() const { return counted; }

    using Allocator = Counting<std::pair<const std::uint64_t, std::uint32_t>>;
    std::uint64_t counted = 0;
    std::unordered_map<std::uint64_t, std::uint32_t, std::hash<std::uint64_t>, std::equal_to<>, Allocator>
        map;
};

struct FlatTable {
    static constexpr const char* kName = "flat page table";
    static constexpr bool kPrefetches = true;
    explicit FlatTable(std::uint64_t slots) : pages(kVolumes + 1) {
        for (std::uint64_t v = 1; v <= kVolumes; ++v)
            pages[v].assign((slots + kVolumes - 1) / kVolumes, kAbsent);
    }
    [[nodiscard]] PageNumber find(BlockKey key) const {
        return pages[deengine::key_volume(key)][deengine::key_block(key)];
    }
    bool insert(BlockKey key, PageNumber page) { return update(key, page); }
    bool update(BlockKey key, PageNumber page) {
        pages[deengine::key_volume(key)][deengine::key_block(key)] = page;
        return true;
    }
    bool erase(BlockKey key) { return update(key, kAbsent); }
    void prefetch(BlockKey key) const {
        __builtin_prefetch(&pages[deengine::key_volume(key)][deengine::key_block(key)]);
    }
    [[nodiscard]] std::uint64_t bytes() const {
        return std::accumulate(
            pages.begin(), pages.end(), std::uint64_t{0},
            [](std::uint64_t sum, const auto& p) { return sum + p.capacity() * sizeof(p[0]); });
    }
    std::vector<std::vector<std::uint32_t>> pages;
};

/// One structure with `present` of the keys in it, and the orders in which they are asked for.
template <class Table>
class MapBench {
  public:
    MapBench(std::uint64_t slots, std::uint64_t seed) : slots_(slots), table_(slots), random_(seed) {}

    Result<void> grow_to(double load) {
        load_ = load;
        const auto wanted = static_cast<std::uint64_t>(load * static_cast<double>(slots_));
        for (; present_ < wanted; ++present_)
            if (!table_.insert(key_at(present_), page_at(present_)))
                return error(Errc::kNoSpace, "the {} refused the next key at a load of {:.4f}", Table::kName,
                             static_cast<double>(present_) / static_cast<double>(slots_));
        return {};
    }

    void add_steps(std::vector<Step>& steps) {
        for (const bool batched : {false, true}) {
            if (batched && !Table::kPrefetches) continue;
            const auto add = [&](const char* operation, Result<Repeat> (MapBench::*run)(bool)) {
                steps.push_back({{{"operation", operation},
                                  {"load", load_},
                                  {"structure", Table::kName},
                                  {"way", batched ? "batches of 32" : "single"}},
                                 [this, run, batched] { return (this->*run)(batched); }});
            };
            add("lookup", &MapBench::lookup);
            add("lookup of absent keys", &MapBench::lookup_absent);
            add("update", &MapBench::update);
            add("delete", &MapBench::erase);
            add("insert", &MapBench::insert);
        }
    }

  private:
    static PageNumber page_at(std::uint64_t index) { return static_cast<PageNumber>(index); }

    /// Calls f(key) for all of `order_`; a batch is asked for ahead. Seconds of a slice.
    template <class F>
    double timed(bool batched, F&& f) {
        Slices slices;
        for (std::size_t begin = 0; begin < order_.size(); begin += kSlice) {
            const Stopwatch watch;
            for (std::size_t i = begin; i < begin + kSlice; i += kBatch) {
                if (batched)
                    for (std::size_t k = i; k < i + kBatch; ++k) table_.prefetch(order_[k]);
                for (std::size_t k = i; k < i + kBatch; ++k) f(order_[k]);
            }
            slices.add(watch.seconds());
        }
        return slices.middle();
    }
    Result<Repeat> done(double seconds, std::uint64_t failed, const char* what) {
        if (failed != 0)
            return error(Errc::kIo, "{} on the {} at load {:.2f} returned a wrong result {} times", what,
                         Table::kName, load_, failed);
        Repeat r = repeat_of(seconds, kSlice);
        r.bytes_a_block = static_cast<double>(table_.bytes()) / static_cast<double>(present_);
        return r;
    }
    void draw(std::uint64_t first, std::uint64_t end) {
        order_.resize(kLookups);
        for (BlockKey& key : order_) key = key_at(first + random_.below(end - first));
    }

    Result<Repeat> lookup(bool batched) {
        draw(0, present_);
        std::uint64_t absent = 0;
        const double seconds = timed(batched, [&](BlockKey key) { absent += table_.find(key) == kAbsent; });
        return done(seconds, absent, "lookup");
    }
    /// Blocks of the same volumes that nobody wrote; a flat table has room for none behind its end.
    Result<Repeat> lookup_absent(bool batched) {
        draw(present_, slots_);
        std::uint64_t found = 0;
        const double seconds = timed(batched, [&](BlockKey key) { found += table_.find(key) != kAbsent; });
        return done(seconds, found, "lookup of absent keys");
    }
    Result<Repeat> update(bool batched) {
        draw(0, present_);
        std::uint64_t failed = 0;
        const auto page = static_cast<PageNumber>(random_.below(slots_));
        const double seconds = timed(batched, [&](BlockKey key) { failed += !table_.update(key, page); });
        return done(seconds, failed, "update");
    }
    /// Erases random keys; insert() brings them back after enough other accesses that no cache has their
    /// places.
    Result<Repeat> erase(bool batched) {
        const std::uint64_t begin = random_.below(present_);
        std::uint64_t stride = random_.below(present_ / 2) + present_ / 4;
        while (std::gcd(stride, present_) != 1) ++stride;
        order_.resize(kChanges);
        for (std::uint64_t i = 0; i < kChanges; ++i) order_[i] = key_at((begin + i * stride) % present_);
        std::uint64_t failed = 0;
        const double seconds = timed(batched, [&](BlockKey key) { failed += !table_.erase(key); });
        return done(seconds, failed, "delete");
    }
    Result<Repeat> insert(bool batched) {
        std::vector<BlockKey> erased = std::move(order_);
        draw(0, present_);
        timed(false, [&](BlockKey key) { keep_value(table_.find(key)); });
        order_ = std::move(erased);
        std::uint64_t failed = 0;
        const double seconds = timed(batched, [&](BlockKey key) { failed += !table_.insert(key, 1); });
        return done(seconds, failed, "insert");
    }

    const std::uint64_t slots_;
    Table table_;
    SplitMix64 random_;
    std::uint64_t present_ = 0;
    double load_ = 0;
    std::vector<BlockKey> order_;
};

}  // namespace

Result<std::vector<Case>> measure_map(const DeEngineOptions& options) {
    MapBench<ExactCuckoo> cuckoo(options.map_slots, options.seed);
    MapBench<NodeMap> nodes(options.map_slots, options.seed);
    MapBench<FlatTable> flat(options.map_slots, options.seed);
    std::vector<Case> cases;
    for (const double load : {0.5, 0.9, 0.97}) {
        GN_TRY(cuckoo.grow_to(load));
        GN_TRY(nodes.grow_to(load));
        GN_TRY(flat.grow_to(load));
        std::vector<Step> steps;
        cuckoo.add_steps(steps);
        nodes.add_steps(steps);
        flat.add_steps(steps);
        GN_ASSIGN(std::vector<Case> measured,
                  measure(fmt::format("map at load {}", load), options.repeats, steps));
        for (Case& c : measured) cases.push_back(std::move(c));
    }
    return cases;
}

}  // namespace gnstor::bench::deengine_bench
