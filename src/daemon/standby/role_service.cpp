#include "daemon/standby/role_service.hpp"

#include "daemon/http/error_response.hpp"

#include <mutex>

namespace gnstor::daemon {
Response RoleService::standby() const {
    return error_response(503, kStandbyCode, "this gnstord is a standby: " + who_leads_());
}

Response RoleService::handle(const Request& request, std::string_view token) {
    const std::shared_lock lock(mutex_);
    return api_ != nullptr ? api_->handle(request, token) : standby();
}

Response RoleService::refuse(int status, std::string_view code, std::string_view message) {
    const std::shared_lock lock(mutex_);
    return api_ != nullptr ? api_->refuse(status, code, message) : error_response(status, code, message);
}

void RoleService::lead(HttpService& api) {
    const std::unique_lock lock(mutex_);
    api_ = &api;
}

void RoleService::stand_by() {
    const std::unique_lock lock(mutex_);
    api_ = nullptr;
}

}  // namespace gnstor::daemon
