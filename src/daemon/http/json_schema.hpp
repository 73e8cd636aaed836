// json_schema.hpp: the subset of JSON Schema that openapi.json uses, and bounded parsing of untrusted JSON.
// Pure.
//
// Supports: $ref within the document, type, properties, required, additionalProperties, items, enum, minimum,
// maximum, minLength, maxLength. A number with a fraction or an exponent is not an integer.
#pragma once

#include <gnstor/base/result.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxJsonDepth = 16;

/// Parses JSON text; kInvalidArgument with the position of the error, also if nesting exceeds kMaxJsonDepth.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text);

/// Checks `value` against `schema` (of `document`); the error names the field. `where`: name of the value in
/// errors.
[[nodiscard]] Result<void> check_schema(const nlohmann::json& document, const nlohmann::json& schema,
                                        const nlohmann::json& value, const std::string& where);

}  // namespace gnstor::daemon
