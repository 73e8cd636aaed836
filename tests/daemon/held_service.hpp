// held_service.hpp: an HttpService that answers when a test lets it. Any thread.
#pragma once

#include "daemon/http/http_service.hpp"
#include "daemon/http_peer.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnstor::daemon::test {

/// Answers once it is let, and remembers what it was asked for.
class HeldService final : public HttpService {
  public:
    Response handle(const Request& request, std::string_view) override {
        std::unique_lock lock(mutex_);
        asked_.push_back(request);
        changed_.notify_all();
        EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return !held_; }));
        return {200, "text/plain", body_};
    }
    Response refuse(int status, std::string_view code, std::string_view message) override {
        std::unique_lock lock(mutex_);
        const std::size_t mine = ++refused_;
        changed_.notify_all();
        EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return mine <= refusals_; }));
        return {status, "application/json", fmt::format(R"({{"code":"{}","message":"{}"}})", code, message)};
    }
    void hold(bool yes) {
        const std::scoped_lock lock(mutex_);
        held_ = yes;
        changed_.notify_all();
    }
    /// Waits until so many were asked.
    [[nodiscard]] bool asked(std::size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kAtOnce, [&] { return asked_.size() >= count; });
    }
    /// So many refusals come to an end; the thread that waits for everybody is held by the next one.
    void let_refuse(std::size_t count) {
        const std::scoped_lock lock(mutex_);
        refusals_ = count;
        changed_.notify_all();
    }
    /// Waits until so many have begun.
    [[nodiscard]] bool refused(std::size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kAtOnce, [&] { return refused_ >= count; });
    }
    [[nodiscard]] std::vector<Request> take_asked() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(asked_, {});
    }
    void set_body(std::string body) { body_ = std::move(body); }  // before it is served

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Request> asked_;
    std::string body_ = "served";
    std::size_t refused_ = 0, refusals_ = ~std::size_t{0};
    bool held_ = false;
};

}  // namespace gnstor::daemon::test
