#include "daemon/http/json_schema.hpp"

#include <algorithm>

namespace gnstor::daemon {
namespace {

using nlohmann::json;

/// The deepest nesting of brackets outside strings. Any result will do for invalid text: the parser refuses
/// it.
std::size_t depth_of(std::string_view text) {
    std::size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

bool is_type(const json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    return false;
}

Result<void> check_integer(const json& schema, const json& value, const std::string& where) {
    const bool negative = !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
    const auto number = negative ? 0 : value.get<std::uint64_t>();
    const std::uint64_t minimum = schema.value("minimum", std::uint64_t{0});
    if (negative || number < minimum)
        return error(Errc::kInvalidArgument, "{} is {}, below {}", where, value.dump(), minimum);
    if (schema.contains("maximum") && number > schema.at("maximum").get<std::uint64_t>())
        return error(Errc::kInvalidArgument, "{} is {}, above {}", where, value.dump(),
                     schema.at("maximum").dump());
    return {};
}

Result<void> check_object(const json& document, const json& schema, const json& value,
                          const std::string& where) {
    const json none = json::object();
    const json& properties = schema.contains("properties") ? schema.at("properties") : none;
    if (schema.contains("required"))
        for (const json& name : schema.at("required"))
            if (!value.contains(name.get<std::string>()))
                return error(Errc::kInvalidArgument, "{} lacks the field '{}'", where,
                             name.get<std::string>());
    for (const auto& [name, member] : value.items()) {
        const auto known = properties.find(name);
        if (known != properties.end()) {
            if (Result<void> good = check_schema(document, *known, member, "'" + name + "'"); !good.ok())
                return good;
        } else if (schema.contains("additionalProperties")) {
            const json& rest = schema.at("additionalProperties");
            if (rest.is_boolean() && !rest.get<bool>())
                return error(Errc::kInvalidArgument, "{} has the unknown field '{}'", where,
                             name.substr(0, 64));
            if (rest.is_object())
                if (Result<void> good = check_schema(document, rest, member, "'" + name + "'"); !good.ok())
                    return good;
        }
    }
    return {};
}

}  // namespace

Result<json> parse_json(std::string_view text) {
    if (depth_of(text) > kMaxJsonDepth)
        return error(Errc::kInvalidArgument, "the JSON nests deeper than {} levels", kMaxJsonDepth);
    try {
        return json::parse(text);
    } catch (const json::exception& e) {
        std::string what = e.what();
        if (const auto bracket = what.find("] "); bracket != std::string::npos) what.erase(0, bracket + 2);
        return error(Errc::kInvalidArgument, "this is not valid JSON: {}", what);
    }
}

Result<void> check_schema(const json& document, const json& schema, const json& value,
                          const std::string& where) {
    if (schema.contains("$ref")) {
        const std::string pointer = schema.at("$ref").get<std::string>().substr(1);
        return check_schema(document, document.at(json::json_pointer(pointer)), value, where);
    }
    const std::string type = schema.value("type", "");
    if (!is_type(value, type))
        return error(Errc::kInvalidArgument, "{} is a {}, not a {}", where, value.type_name(), type);
    if (type == "object") return check_object(document, schema, value, where);
    if (type == "integer") return check_integer(schema, value, where);
    if (type == "array")
        for (const json& item : value)
            if (Result<void> good = check_schema(document, schema.at("items"), item, where + "[]");
                !good.ok())
                return good;
    if (type == "string") {
        const auto& text = value.get_ref<const std::string&>();
        if (text.size() < schema.value("minLength", std::size_t{0}) ||
            text.size() > schema.value("maxLength", ~std::size_t{0}))
            return error(Errc::kInvalidArgument, "{} has {} characters; {} to {} are allowed", where,
                         text.size(), schema.value("minLength", std::size_t{0}),
                         schema.value("maxLength", ~std::size_t{0}));
        if (schema.contains("enum") &&
            std::find(schema.at("enum").begin(), schema.at("enum").end(), value) == schema.at("enum").end())
            return error(Errc::kInvalidArgument, "{} must be one of {}", where, schema.at("enum").dump());
    }
    return {};
}

}  // namespace gnstor::daemon
