#include "daemon/standby/role_service.hpp"

#include <nlohmann/json.hpp>

#include <mutex>

namespace gnstor::daemon {
namespace {

Response with_error(int status, std::string_view code, std::string_view message) {
    Response response;
    response.status = status;
    const nlohmann::json body{{"error", {{"code", std::string(code)}, {"message", std::string(message)}}}};
    response.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    return response;
}

}  // namespace

Response RoleService::standby() const {
    return with_error(503, kStandbyCode, "this gnstord is a standby: " + who_leads_());
}

Response RoleService::handle(const Request& request, std::string_view token) {
    const std::shared_lock lock(mutex_);
    return api_ != nullptr ? api_->handle(request, token) : standby();
}

Response RoleService::refuse(int status, std::string_view code, std::string_view message) {
    const std::shared_lock lock(mutex_);
    return api_ != nullptr ? api_->refuse(status, code, message) : with_error(status, code, message);
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
