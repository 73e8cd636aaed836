// json_schema.hpp: the part of JSON Schema that openapi.json uses, and bounded parsing of JSON from outside.
// Pure.
//
// Understood: $ref into the document, type, properties, required, additionalProperties, items, enum, minimum,
// maximum, minLength, maxLength. A number with a fraction or an exponent is no integer.
#pragma once

#include <gnstor/base/result.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxJsonDepth = 16;

/// Parses JSON text; kInvalidArgument with the place of what is wrong, also where it nests deeper than
/// kMaxJsonDepth.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text);

/// Whether `value` is as `schema` (of `document`) says; the error names the field. `where`: how to call the
/// value itself.
[[nodiscard]] Result<void> check_schema(const nlohmann::json& document, const nlohmann::json& schema,
                                        const nlohmann::json& value, const std::string& where);

}  // namespace gnstor::daemon
