// memory_pages.cpp: populates pages (Linux 5.14: MADV_POPULATE_WRITE; on an older kernel the first store to
// each page faults it in), and the helper thread that populates ahead of use.
#include "ssd/flash/memory/memory_pages.hpp"

#include <gnstor/base/log.hpp>

#include "base/large_pages.hpp"

#include <pthread.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

namespace gnstor::ssd {
namespace {

constexpr std::uint32_t kAheadShare = 2;  ///< the helper runs ahead by a half of the opened units
constexpr std::uint32_t kGivingThreads = 8;
constexpr std::uint32_t kFreeShare = 8;  ///< of the machine's memory, an eighth, must be free

#if defined(MADV_POPULATE_WRITE)
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;  // the kernel's value, for older headers of the C library
#endif

std::uintptr_t round_up(std::uintptr_t at, std::size_t to) {
    return (at + to - 1) / to * to;
}

/// Makes [at, at + bytes) readable and writable without a page fault; contents stay. False: no memory.
bool populate(std::byte* at, std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(at) / page * page;
    const std::uintptr_t end = round_up(reinterpret_cast<std::uintptr_t>(at) + bytes, page);
    // Any other error: the kernel lacks MADV_POPULATE_WRITE. Stores then fault pages in, one at a time.
    return ::madvise(reinterpret_cast<void*>(begin), end - begin, kPopulate) == 0 || errno != ENOMEM;
}

/// Memory that the machine can give without taking it from processes; no limit if unknown. A process that
/// asks for more gets no error: the kernel kills it.
std::uint64_t bytes_available() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    for (std::uint64_t kib = 0; file >> name >> kib; std::getline(file, unit))
        if (name == "MemAvailable:") return kib << 10;
    return std::numeric_limits<std::uint64_t>::max();
}

bool memory_is_plenty() {
    struct sysinfo now {};
    return ::sysinfo(&now) == 0 && now.freeram >= now.totalram / kFreeShare;
}

}  // namespace

MemoryPages::MemoryPages(Mapping mapping, deengine::FlashGeometry geometry)
    : mapping_(std::move(mapping)),
      geometry_(geometry),
      unit_bytes_(std::size_t{geometry.pages_per_unit} * nvme::kBlockBytes),
      data_(reinterpret_cast<std::byte*>(
          round_up(reinterpret_cast<std::uintptr_t>(mapping_.data()), kLargePageBytes))),
      records_(reinterpret_cast<std::byte*>(
          round_up(reinterpret_cast<std::uintptr_t>(data_) + geometry.units * unit_bytes_, kLargePageBytes))),
      has_pages_(geometry.units) {
    // A random read misses the TLB for its page and for the page's record, and each small page costs a fault;
    // large pages reduce both.
    advise_large_pages(data_, geometry.units * unit_bytes_);
    advise_large_pages(records_, geometry.pages() * sizeof(deengine::PageOob));
}

MemoryPages::~MemoryPages() {
    {
        const std::lock_guard lock(mutex_);
        stopping_.store(true, std::memory_order_relaxed);
    }
    opened_some_.notify_all();
    if (helper_.joinable()) helper_.join();
}

Result<std::shared_ptr<MemoryPages>> MemoryPages::map(deengine::FlashGeometry geometry) {
    const std::size_t bytes = geometry.pages() * (nvme::kBlockBytes + sizeof(deengine::PageOob));
    const std::size_t slack = 2 * kLargePageBytes;  // data and records begin at large-page boundaries
    void* at = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return error(Errc::kNoSpace,
                     "cannot map {} bytes of memory for a drive: {}; choose a smaller capacity or a file",
                     bytes, std::strerror(errno));
    }
    return std::shared_ptr<MemoryPages>(new MemoryPages(Mapping(at, bytes + slack), geometry));
}

MemoryPages::Range& MemoryPages::add_range(UnitRange units) {
    const std::lock_guard lock(mutex_);
    ranges_.push_back(std::make_unique<Range>(units));
    return *ranges_.back();
}

/// Two threads may populate the same unit at once: the kernel allocates each page once.
bool MemoryPages::give(std::uint32_t unit) {
    if (!populate(data_ + unit * unit_bytes_, unit_bytes_)) return false;
    if (!populate(records_ + unit * record_bytes(), record_bytes())) return false;
    // Relaxed: only a shortcut past a repeated request.
    if (has_pages_[unit].exchange(1, std::memory_order_relaxed) == 0)
        units_given_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

bool MemoryPages::give_first(UnitRange units, std::uint64_t bytes) {
    const std::uint64_t wanted = bytes / unit_bytes_ + (bytes % unit_bytes_ != 0 ? 1 : 0);
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(units.units, wanted));
    std::uint64_t missing = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        missing += has_pages_[units.first + i].load(std::memory_order_relaxed) == 0 ? 1 : 0;
    if (missing > bytes_available() / (unit_bytes_ + record_bytes())) return false;
    std::atomic<std::uint32_t> next{0};
    std::atomic<bool> good{true};
    const auto work = [&] {
        // Relaxed: joining the threads orders their work.
        for (std::uint32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
            if (!give(units.first + i)) good.store(false, std::memory_order_relaxed);
    };
    {
        std::vector<std::jthread> threads;
        const std::uint32_t most = std::min(kGivingThreads, std::thread::hardware_concurrency());
        try {
            for (std::uint32_t i = 1; i < std::min(most, count); ++i) threads.emplace_back(work);
        } catch (const std::system_error&) {  // fewer threads take longer
        }
        work();
    }
    return good.load(std::memory_order_relaxed);
}

void MemoryPages::note_opened(Range& range, std::uint32_t unit) {
    const std::uint32_t opened = unit - range.units_.first + 1;
    range.opened_.store(opened, std::memory_order_relaxed);  // the lock below orders it
    if (opened < kAheadShare) return;
    std::call_once(started_, [this] {
        try {
            helper_ = std::thread([this] { run(); });
        } catch (const std::system_error& e) {
            log_warn(
                "cannot start the thread that allocates memory ahead of a drive's writes ({}): writes wait "
                "for their memory",
                e.what());
        }
    });
    {
        const std::lock_guard lock(mutex_);
        news_ = true;
    }
    opened_some_.notify_one();
}

void MemoryPages::run() {
    (void)pthread_setname_np(pthread_self(), "gn-pages");
    std::vector<Range*> ranges;
    std::unique_lock lock(mutex_);
    for (;;) {
        opened_some_.wait(lock, [this] { return news_ || stopping_.load(std::memory_order_relaxed); });
        news_ = false;
        ranges.clear();
        for (const auto& range : ranges_) ranges.push_back(range.get());
        lock.unlock();
        // Round robin: a range that opened few units so far may fill faster from now on.
        for (bool gave = true; gave;) {
            gave = false;
            for (Range* range : ranges) {
                if (stopping_.load(std::memory_order_relaxed)) return;
                gave = give_ahead(*range) || gave;
            }
        }
        lock.lock();
        if (stopping_.load(std::memory_order_relaxed)) return;
    }
}

/// Populates the next unit of the range that should have its pages and has none.
bool MemoryPages::give_ahead(Range& range) {
    const std::uint32_t opened = range.opened_.load(std::memory_order_relaxed);
    const auto most = static_cast<std::uint32_t>(kAheadBytes / unit_bytes_);
    const std::uint32_t ahead = std::min(opened / kAheadShare, most);
    const std::uint32_t end = std::min(range.units_.units, opened + ahead);
    for (range.given_ = std::max(range.given_, opened); range.given_ < end; ++range.given_) {
        const std::uint32_t unit = range.units_.first + range.given_;
        if (has_pages_[unit].load(std::memory_order_relaxed) != 0) continue;
        return memory_is_plenty() && give(unit);
    }
    return false;
}

}  // namespace gnstor::ssd
