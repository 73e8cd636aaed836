#include "daemon/decisions/in_process.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

namespace gnstor::daemon {

namespace {

/// A rebuild holds the mutex for about so long, and for at least so many commands, then leaves it to requests.
constexpr std::chrono::milliseconds kCopyBurst{20};
constexpr std::uint32_t kCopyCommands = 4;
constexpr std::chrono::microseconds kCopyPause{500};
constexpr std::chrono::seconds kOpeningWaits{5};

/// How often SSDs that serve are asked for their readings to find events, whether anybody inspects the array or not.
constexpr std::uint64_t kReadingsEveryMs = 60'000;

}  // namespace

std::uint64_t boottime_ms() {
    timespec t{};
    ::clock_gettime(CLOCK_BOOTTIME, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000 + static_cast<std::uint64_t>(t.tv_nsec) / 1'000'000;
}

std::uint64_t unix_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

struct InProcessControlPlane::Impl {
    std::unique_ptr<RecordStore> store;
    InProcessOptions options;
    mutable std::mutex mutex;  // guards everything below
    std::unique_ptr<Manager> manager;
    bool suspended = false;
    bool stopping = false;
    EventRecorder events;
    std::uint64_t readings_ms = 0;  // when SSDs were last asked for events
    std::string told;               // the trouble logged last: why no change can be stored
    std::condition_variable wake;   // wakes the ticking thread
    std::thread ticker;

    [[nodiscard]] std::uint64_t now() const { return options.now_ms(); }

    /// Runs `work` on the manager with the mutex held; an error while the daemon is suspended.
    template <class Work>
    auto with(Work work) -> decltype(work(*manager)) {
        const std::scoped_lock lock(mutex);
        if (suspended) return error(Errc::kState, "the daemon is suspended; resume it first");
        return work(*manager);
    }

    /// The same for what may change the array.
    template <class Work>
    auto change(Work work) -> decltype(work(*manager)) {
        return with([&](Manager& m) {
            auto done = work(m);
            events.observe(m.info(now()), Observed::kCall, false, options.wall_ms());
            return done;
        });
    }

    /// Asks an SSD that may answer.
    void read(SsdInfo& ssd) const {
        if (options.ssd_readings && ssd.slot != kSpareSlot && ssd.state != "missing" && ssd.state != "stale")
            static_cast<SsdReadings&>(ssd) = options.ssd_readings(ssd);
    }

    void observe_tick() {
        ArrayInfo info = manager->info(now());
        const bool asks = now() - readings_ms >= kReadingsEveryMs;
        if (asks) {
            readings_ms = now();
            for (SsdInfo& ssd : info.ssds)
                if (ssd.serves) read(ssd);  // a silent one would cost its deadline
        }
        events.observe(info, Observed::kTick, asks, options.wall_ms());
    }

    TickReport tick() {
        const TickReport report = manager->tick(now());
        observe_tick();
        std::string trouble = manager->read_only();
        if (trouble != told) {
            if (trouble.empty())
                log_warn("changes can be stored again; term {}", manager->term());
            else
                log_error("{}", trouble);
            told = std::move(trouble);
        }
        return report;
    }
    /// True: there is more to copy at once.
    bool copy_burst() {
        const auto until = std::chrono::steady_clock::now() + kCopyBurst;
        bool more = true;
        while (more && std::chrono::steady_clock::now() < until) more = manager->copy_some(kCopyCommands);
        return more;
    }
    void run_ticker() {
        std::unique_lock lock(mutex);
        auto next = std::chrono::steady_clock::now() + options.tick;
        while (!stopping) {
            const bool copies = !suspended && copy_burst();
            const auto until = copies ? std::chrono::steady_clock::now() + kCopyPause : next;
            wake.wait_until(lock, std::min(until, next), [this] { return stopping; });
            if (std::chrono::steady_clock::now() < next) continue;
            if (!stopping && !suspended) tick();
            next = std::chrono::steady_clock::now() + options.tick;
        }
    }
};

InProcessControlPlane::InProcessControlPlane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<InProcessControlPlane>> InProcessControlPlane::start(
    std::unique_ptr<RecordStore> store, std::vector<SsdPort*> ports, InProcessOptions options) {
    auto impl = std::make_unique<Impl>();
    impl->store = std::move(store);
    impl->options = std::move(options);
    // The ticking thread renews grants at a third of their time, so its period must be shorter than that.
    if (const std::uint32_t grant_ms = impl->options.manager.grant_ms; grant_ms != 0)
        impl->options.tick =
            std::min(impl->options.tick, std::chrono::milliseconds(std::max(1u, grant_ms / 6)));
    GN_ASSIGN(impl->manager,
              Manager::start(*impl->store, std::move(ports), impl->options.manager, impl->now()));
    impl->readings_ms = impl->now();
    impl->events.observe(impl->manager->info(impl->now()), Observed::kTick, false, impl->options.wall_ms());
    if (impl->told = impl->manager->read_only(); !impl->told.empty()) log_error("{}", impl->told);
    if (impl->options.tick.count() > 0) impl->ticker = std::thread([raw = impl.get()] { raw->run_ticker(); });
    return std::unique_ptr<InProcessControlPlane>(new InProcessControlPlane(std::move(impl)));
}

InProcessControlPlane::~InProcessControlPlane() {
    {
        const std::scoped_lock lock(impl_->mutex);
        impl_->stopping = true;
    }
    impl_->wake.notify_all();
    if (impl_->ticker.joinable()) impl_->ticker.join();
}

Result<client::ClientIdentity> InProcessControlPlane::register_client(const std::string& name) {
    return impl_->change([&](Manager& m) { return m.register_client(name); });
}

Result<client::ClientAccess> InProcessControlPlane::add_client(const std::string& name) {
    return impl_->change([&](Manager& m) { return m.add_client(name); });
}

Result<client::ClientAccess> InProcessControlPlane::rotate_client(const std::string& name) {
    return impl_->change([&](Manager& m) { return m.rotate_client(name, impl_->now()); });
}

Result<void> InProcessControlPlane::remove_client(const std::string& name) {
    return impl_->change([&](Manager& m) { return m.remove_client(name, impl_->now()); });
}

Result<std::vector<client::SsdKeys>> InProcessControlPlane::ssd_keys(nvme::ClientId client) {
    return impl_->with([&](Manager& m) { return m.ssd_keys(client); });
}

std::optional<ClientInfo> InProcessControlPlane::client_of(nvme::ClientId client) {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->manager->client_of(client);
}

Result<client::ArrayView> InProcessControlPlane::array() {
    return impl_->with([&](Manager& m) { return m.array(); });
}

Result<nvme::VolumeRecord> InProcessControlPlane::create_volume(nvme::ClientId client,
                                                                const client::CreateVolume& request) {
    return impl_->change([&](Manager& m) { return m.create_volume(client, request); });
}

Result<client::OpenedVolume> InProcessControlPlane::open_volume(nvme::ClientId client,
                                                                const std::string& name,
                                                                client::OpenMode mode) {
    // The replicas of a volume whose writer was lost are compared in slices, so that grants and other requests go on.
    const auto until = std::chrono::steady_clock::now() + kOpeningWaits;
    for (;;) {
        bool continues = false;
        Result<client::OpenedVolume> opened = impl_->change([&](Manager& m) {
            Result<client::OpenedVolume> answer = m.open_volume(client, name, mode, impl_->now());
            continues = !answer.ok() && m.is_comparing(name);
            return answer;
        });
        if (opened.ok() || !continues || std::chrono::steady_clock::now() > until) return opened;
        std::this_thread::sleep_for(kCopyPause);
    }
}

Result<std::uint64_t> InProcessControlPlane::renew_lease(nvme::ClientId client, nvme::VolumeId volume,
                                                         nvme::Epoch epoch) {
    return impl_->with([&](Manager& m) { return m.renew_lease(client, volume, epoch, impl_->now()); });
}

Result<void> InProcessControlPlane::release_volume(nvme::ClientId client, nvme::VolumeId volume,
                                                   nvme::Epoch epoch, std::uint64_t byte_length) {
    return impl_->change([&](Manager& m) { return m.release_volume(client, volume, epoch, byte_length); });
}

Result<void> InProcessControlPlane::share_volume(nvme::ClientId owner, const std::string& name,
                                                 nvme::ClientId reader) {
    return impl_->with([&](Manager& m) { return m.share_volume(owner, name, reader); });
}

Result<void> InProcessControlPlane::unshare_volume(nvme::ClientId owner, const std::string& name,
                                                   nvme::ClientId reader) {
    return impl_->with([&](Manager& m) { return m.unshare_volume(owner, name, reader); });
}

Result<void> InProcessControlPlane::delete_volume(nvme::ClientId owner, const std::string& name) {
    return impl_->change([&](Manager& m) { return m.delete_volume(owner, name, impl_->now()); });
}

Result<std::vector<nvme::VolumeRecord>> InProcessControlPlane::list_volumes() {
    return impl_->with([&](Manager& m) { return Result<std::vector<nvme::VolumeRecord>>(m.list_volumes()); });
}

Result<void> InProcessControlPlane::check_none_missing(const std::string& refused) {
    return impl_->with([&](Manager& m) { return m.check_none_missing(refused); });
}

Result<void> InProcessControlPlane::replace_ssd(std::uint32_t slot) {
    return impl_->change([&](Manager& m) { return m.replace_ssd(slot, impl_->now()); });
}

Result<void> InProcessControlPlane::start_scrub() {
    return impl_->with([&](Manager& m) { return m.start_scrub(impl_->now()); });
}

Result<void> InProcessControlPlane::add_spare(SsdPort& port) {
    return impl_->change([&](Manager& m) { return m.add_spare(port, impl_->now()); });
}

bool InProcessControlPlane::copy_some(std::uint32_t commands) {
    const std::scoped_lock lock(impl_->mutex);
    return !impl_->suspended && impl_->manager->copy_some(commands);
}

ArrayInfo InProcessControlPlane::inspect() {
    const std::scoped_lock lock(impl_->mutex);
    ArrayInfo info = impl_->manager->info(impl_->now());
    for (SsdInfo& ssd : info.ssds) impl_->read(ssd);
    if (impl_->options.ssd_firmware)
        for (SsdInfo& ssd : info.ssds) ssd.firmware = impl_->options.ssd_firmware(ssd);
    if (!impl_->suspended) impl_->events.observe(info, Observed::kCall, true, impl_->options.wall_ms());
    return info;
}

EventPage InProcessControlPlane::events_since(std::uint64_t number) {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->events.since(number);
}

TickReport InProcessControlPlane::tick() {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->suspended ? TickReport{} : impl_->tick();
}

void InProcessControlPlane::suspend() {
    const std::scoped_lock lock(impl_->mutex);
    impl_->suspended = true;
}

void InProcessControlPlane::resume() {
    const std::scoped_lock lock(impl_->mutex);
    impl_->suspended = false;
}

bool InProcessControlPlane::suspended() const {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->suspended;
}

StartReport InProcessControlPlane::start_report() const {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->manager->start_report();
}

}  // namespace gnstor::daemon
