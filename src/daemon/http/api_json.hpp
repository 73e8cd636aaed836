// api_json.hpp: the values of the HTTP interface as JSON, both ways: server and client share them. Shapes:
// openapi.json. Pure.
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/inspector.hpp"

#include <nlohmann/json.hpp>

#include <string_view>

namespace gnstor::daemon {

nlohmann::json to_json(const nvme::VolumeRecord& record);
nlohmann::json to_json(const client::ClientIdentity& identity);
nlohmann::json to_json(const client::ArrayView& view);
nlohmann::json to_json(const SsdInfo& ssd);
nlohmann::json status_to_json(const ArrayInfo& info, std::size_t volumes);

// The other way: kCorrupt when the text came from something that is no gnstord.
Result<nvme::VolumeRecord> volume_from_json(const nlohmann::json& value);
Result<client::ClientIdentity> client_from_json(const nlohmann::json& value);
Result<client::ArrayView> array_from_json(const nlohmann::json& value);

/// "invalid_argument", "not_found", ... and back; unknown words are kInternal.
std::string_view errc_name(Errc code);
Errc errc_from_name(std::string_view name);
/// The HTTP status that an Errc is answered with.
int http_status(Errc code);

}  // namespace gnstor::daemon
