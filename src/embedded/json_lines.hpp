// json_lines.hpp: parses JSON with comments into a tree whose values know their line number. Pure.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::embedded {

struct JsonMember;

struct JsonValue {
    enum class Kind : std::uint8_t { kOther, kNumber, kString, kArray, kObject };
    Kind kind = Kind::kOther;  ///< kOther: null, true, false
    std::uint32_t line = 0;
    double number = 0;
    std::string string;
    std::vector<JsonMember> members;  ///< of an object, in order; of an array, with empty names
};

struct JsonMember {
    std::string name;
    JsonValue value;
};

/// `file`: its name in errors. Duplicate names in an object and nesting deeper than 16 are errors.
Result<JsonValue> parse_json_lines(std::string_view text, const std::string& file);

}  // namespace gnstor::embedded
