// remote_site.cpp: an array that other processes serve, found by its gnstord.
#include "site.hpp"

#include <gnstor/remote_array.hpp>

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace gnstor::demo {
namespace {

using Clock = std::chrono::steady_clock;

/// SSDs of nodes serve under grants of 10 s, renewed at a third: gnstord may be away for 6 s at least.
constexpr auto kAwayMax = std::chrono::seconds(5);

/// A process that stands still (SIGSTOP) for as long as this object lives, or kAwayMax.
class Halted {
  public:
    explicit Halted(pid_t pid) : pid_(pid), since_(Clock::now()) {
        ::kill(pid_, SIGSTOP);
        watch_ = std::thread([this] {
            std::unique_lock lock(mutex_);
            done_.wait_for(lock, kAwayMax, [this] { return over_; });
            ::kill(pid_, SIGCONT);
            until_ = Clock::now();
        });
    }
    ~Halted() { (void)end(); }
    Halted(const Halted&) = delete;
    Halted& operator=(const Halted&) = delete;
    /// For how long it stood, in seconds.
    double end() {
        {
            const std::scoped_lock lock(mutex_);
            over_ = true;
        }
        done_.notify_all();
        if (watch_.joinable()) watch_.join();
        return std::chrono::duration<double>(until_ - since_).count();
    }

  private:
    const pid_t pid_;
    const Clock::time_point since_;
    std::mutex mutex_;  // guards what follows, but for watch_
    std::condition_variable done_;
    bool over_ = false;
    Clock::time_point until_;
    std::thread watch_;
};

class RemoteSite final : public Site {
  public:
    RemoteSite(std::unique_ptr<RemoteArray> array, const Remote& remote)
        : array_(std::move(array)), remote_(remote) {}

    client::Array& array() override { return *array_; }
    [[nodiscard]] bool alone() const override { return remote_.own(); }
    Result<bool> suspend_daemon(std::string& why_not) override {
        if (!remote_.own()) {
            why_not = "the demo does not stop an array that it has not started";
            return false;
        }
        const auto serving = array_->serving_processes();
        if (std::any_of(serving.begin(), serving.end(),
                        [&](const ServingProcess& each) { return each.pid == remote_.gnstord; })) {
            why_not = "gnstord's process also serves the SSDs";
            return false;
        }
        if (::kill(remote_.gnstord, 0) != 0)
            return error(Errc::kState, "gnstord (process {}) cannot be suspended: {}", remote_.gnstord,
                         std::strerror(errno));
        halted_ = std::make_unique<Halted>(remote_.gnstord);
        return true;
    }
    Result<double> resume_daemon() override {
        if (halted_ == nullptr) return error(Errc::kState, "gnstord was not suspended");
        const double seconds = halted_->end();
        halted_.reset();
        return seconds;
    }
    [[nodiscard]] Hardware hardware() const override {
        Hardware h;
        for (const ServingProcess& process : array_->serving_processes()) {
            h.who += fmt::format("{}{} {}", h.who.empty() ? "processes " : ", ", process.name, process.pid);
            h.cpu_seconds += static_cast<double>(process.cpu_time_ns) / 1e9;
        }
        return h;
    }
    [[nodiscard]] std::string emulated() const override {
        const std::string wire = array_->wire();
        return fmt::format("NIC (software, {} wire), SSDs{}", wire.substr(0, wire.find_first_of(": ")),
                           remote_.own() ? " (mapped files)" : "");
    }
    [[nodiscard]] std::string not_tested() const override {
        return remote_.own() ? "ConnectX and real SSDs; another host" : "ConnectX and real SSDs";
    }

  private:
    const std::unique_ptr<RemoteArray> array_;
    const Remote remote_;
    std::unique_ptr<Halted> halted_;
};

}  // namespace

Result<std::unique_ptr<Site>> make_remote_site(const Options& options) {
    GN_ASSIGN(std::unique_ptr<RemoteArray> array,
              RemoteArray::open({.array = options.remote.array,
                                 .token_file = options.remote.token_file,
                                 .address = options.remote.address,
                                 .tls_ca = options.remote.tls_ca,
                                 .tls_fingerprint = options.remote.tls_fingerprint}));
    return std::unique_ptr<Site>(std::make_unique<RemoteSite>(std::move(array), options.remote));
}

}  // namespace gnstor::demo
