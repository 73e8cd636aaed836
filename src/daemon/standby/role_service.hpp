// role_service.hpp: what a gnstord answers that may be a standby: as the leader its Api, else 503 with the leader's address.
//
// Any thread may call handle(). lead() and stand_by() are called by one; stand_by() returns when every request has been
// answered that the Api had begun.
#pragma once

#include "daemon/http/http_service.hpp"

#include <functional>
#include <shared_mutex>
#include <string>

namespace gnstor::daemon {

class RoleService final : public HttpService {
  public:
    /// `who_leads`: the end of the message of a standby.
    explicit RoleService(std::function<std::string()> who_leads) : who_leads_(std::move(who_leads)) {}
    Response handle(const Request& request, std::string_view token = {}) override;
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message) override;
    /// `api` must outlive this leadership.
    void lead(HttpService& api);
    void stand_by();

  private:
    [[nodiscard]] Response standby() const;
    const std::function<std::string()> who_leads_;
    std::shared_mutex mutex_;  // guards what follows; shared while a request is served
    HttpService* api_ = nullptr;
};

}  // namespace gnstor::daemon
