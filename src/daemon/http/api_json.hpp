// api_json.hpp: the values of the HTTP interface to and from JSON, shared by server and client. Shapes:
// openapi.json. Pure.
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/health.hpp"
#include "daemon/decisions/inspector.hpp"

#include <nlohmann/json.hpp>

#include <string_view>
#include <vector>

namespace gnstor::daemon {

nlohmann::json to_json(const nvme::VolumeRecord& record);
nlohmann::json to_json(const client::ClientIdentity& identity);
nlohmann::json to_json(const ClientInfo& client);
nlohmann::json to_json(const client::ClientAccess& access);
nlohmann::json to_json(const client::SsdKeys& keys);
nlohmann::json to_json(const client::ArrayView& view);
nlohmann::json to_json(const SsdInfo& ssd);
nlohmann::json to_json(const std::vector<HealthFinding>& findings);
nlohmann::json to_json(const RebuildInfo& rebuild);
nlohmann::json to_json(const ScrubInfo& scrub);
nlohmann::json to_json(const EventPage& page);
/// Capacity, use, room and volumes; `map` is the array's.
nlohmann::json capacity_to_json(const ArrayInfo& info, const placement::ArrayMap& map);
nlohmann::json status_to_json(const ArrayInfo& info, std::size_t volumes);

// From JSON. kCorrupt: the text did not come from a gnstord.
Result<nvme::VolumeRecord> volume_from_json(const nlohmann::json& value);
Result<client::ClientIdentity> client_from_json(const nlohmann::json& value);
Result<client::ClientAccess> client_access_from_json(const nlohmann::json& value);
Result<std::vector<client::SsdKeys>> ssd_keys_from_json(const nlohmann::json& value);
Result<client::ArrayView> array_from_json(const nlohmann::json& value);

/// "invalid_argument", "not_found", ... and back; unknown words are kInternal.
std::string_view errc_name(Errc code);
Errc errc_from_name(std::string_view name);
/// The HTTP status of a response that reports an Errc.
int http_status(Errc code);

}  // namespace gnstor::daemon
