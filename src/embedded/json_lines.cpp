// json_lines.cpp: takes nlohmann's parser events, and derives the line of each from the stream's position.
#include "embedded/json_lines.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace gnstor::embedded {

namespace {

constexpr std::size_t kDeepest = 16;

class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
  public:
    TreeBuilder(std::istringstream& stream, std::string_view text) : stream_(stream), text_(text) {}

    bool null() override { return put({}); }
    bool boolean(bool) override { return put({}); }
    bool number_integer(number_integer_t v) override { return put_number(static_cast<double>(v)); }
    bool number_unsigned(number_unsigned_t v) override { return put_number(static_cast<double>(v)); }
    bool number_float(number_float_t v, const string_t&) override { return put_number(v); }
    bool string(string_t& v) override {
        JsonValue value;
        value.kind = JsonValue::Kind::kString;
        value.string = v;
        return put(std::move(value));
    }
    bool binary(binary_t&) override { return put({}); }
    bool start_object(std::size_t) override { return open(JsonValue::Kind::kObject); }
    bool start_array(std::size_t) override { return open(JsonValue::Kind::kArray); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        const auto& members = open_.back()->members;
        if (std::ranges::any_of(members, [&](const auto& m) { return m.name == name; }))
            return fail(fmt::format("\"{}\" is given twice", name));
        key_ = name;
        return true;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::json::exception& why) override {
        line_ = line_of(position == 0 ? 0 : position - 1);
        const std::string text = why.what();
        const auto from = text.find(": ");
        return fail("not JSON: " + (from == std::string::npos ? text : text.substr(from + 2)), false);
    }

    JsonValue root;
    [[nodiscard]] const std::string& wrong() const { return wrong_; }
    [[nodiscard]] std::uint32_t line() const { return line_; }

  private:
    [[nodiscard]] std::uint32_t line_of(std::size_t offset) const {
        const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
        return 1 + static_cast<std::uint32_t>(std::ranges::count(before, '\n'));
    }
    /// Line of the token just read; the parser has read one character beyond a number.
    [[nodiscard]] std::uint32_t line_now() const {
        const auto at = stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
        return line_of(at > 0 ? static_cast<std::size_t>(at) - 1 : text_.size());
    }
    bool fail(std::string why, bool here = true) {
        if (here) line_ = line_now();
        wrong_ = std::move(why);
        return false;
    }
    JsonValue* add(JsonValue value) {
        value.line = line_now();
        if (open_.empty()) {
            root = std::move(value);
            return &root;
        }
        open_.back()->members.push_back(JsonMember{std::move(key_), std::move(value)});
        key_.clear();
        return &open_.back()->members.back().value;
    }
    bool put(JsonValue value) {
        add(std::move(value));
        return true;
    }
    bool put_number(double number) {
        JsonValue value;
        value.kind = JsonValue::Kind::kNumber;
        value.number = number;
        return put(std::move(value));
    }
    bool open(JsonValue::Kind kind) {
        if (open_.size() == kDeepest) return fail(fmt::format("nested deeper than {}", kDeepest));
        JsonValue value;
        value.kind = kind;
        // The pointer stays valid while the container is open: its parent gets no other member until then.
        open_.push_back(add(std::move(value)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    std::istringstream& stream_;
    const std::string_view text_;
    std::vector<JsonValue*> open_;
    std::string key_;
    std::string wrong_;
    std::uint32_t line_ = 0;
};

}  // namespace

Result<JsonValue> parse_json_lines(std::string_view text, const std::string& file) {
    std::istringstream stream{std::string(text)};
    TreeBuilder tree(stream, text);
    if (nlohmann::json::sax_parse(stream, &tree, nlohmann::json::input_format_t::json, true, true))
        return std::move(tree.root);
    return error(Errc::kInvalidArgument, "{}:{}: {}", file, tree.line(), tree.wrong());
}

}  // namespace gnstor::embedded
