// doctor_firewall.cpp: what the listings of nft and iptables say about UDP port 4791, line by line.
//
// No evaluation of rule sets: a drop or reject that names the port, or a policy (or last rule) that drops
// what nothing accepts, while nothing accepts the port or everything of UDP. Jumps are not followed.
#include "cli/doctor.hpp"

#include <cctype>
#include <sstream>

namespace gnstor::cli {
namespace {

constexpr std::string_view kPort = "4791";

bool has(std::string_view line, std::string_view word) {
    return line.find(word) != std::string_view::npos;
}

/// Whether the port is named as a number of its own, not inside a longer one.
bool names_port(std::string_view line) {
    for (std::size_t at = line.find(kPort); at != std::string_view::npos; at = line.find(kPort, at + 1)) {
        const auto digit = [&](std::size_t i) {
            return i < line.size() && std::isdigit(static_cast<unsigned char>(line[i])) != 0;
        };
        if (!(at > 0 && digit(at - 1)) && !digit(at + kPort.size())) return true;
    }
    return false;
}

/// What the lines of one chain came to.
struct Chain {
    bool policy_drops = false, drops_rest = false, accepts = false, drops_port = false;
    void rule(std::string_view line, bool accept, bool drop, bool about_all) {
        if (names_port(line)) {
            // The first rule that fits decides.
            if (accept && !drops_port) accepts = true;
            if (drop && !accepts) drops_port = true;
        } else if (about_all) {
            if (accept && !drops_rest) accepts = true;
            if (drop && !accepts) drops_rest = true;
        }
    }
    [[nodiscard]] FirewallWord word() const {
        if (drops_port) return FirewallWord::kDropRule;
        if (accepts) return FirewallWord::kAccept;
        return drops_rest || policy_drops ? FirewallWord::kDropPolicy : FirewallWord::kNothing;
    }
};

FirewallWord worse(FirewallWord a, FirewallWord b) {
    return a > b ? a : b;
}

std::string trimmed(const std::string& line) {
    const auto from = line.find_first_not_of(" \t"), to = line.find_last_not_of(" \t\r");
    return from == std::string::npos ? std::string() : line.substr(from, to - from + 1);
}

}  // namespace

FirewallWord read_nft(std::string_view ruleset) {
    std::istringstream in{std::string(ruleset)};
    FirewallWord all = FirewallWord::kNothing;
    Chain chain;
    bool in_input = false;
    for (std::string raw; std::getline(in, raw);) {
        const std::string line = trimmed(raw);
        if (line.rfind("chain ", 0) == 0 || line == "}") {
            if (in_input) all = worse(all, chain.word());
            chain = {};
            in_input = false;
        } else if (has(line, "hook input")) {
            in_input = true;
            chain.policy_drops = has(line, "policy drop");
        } else if (in_input) {
            const bool accept = has(line, "accept"), drop = has(line, "drop") || has(line, "reject");
            const bool all_packets = line.rfind("accept", 0) == 0 || line.rfind("drop", 0) == 0 ||
                                     line.rfind("reject", 0) == 0 || line.rfind("counter", 0) == 0;
            chain.rule(line, accept, drop, all_packets);
        }
    }
    return in_input ? worse(all, chain.word()) : all;
}

FirewallWord read_iptables(std::string_view listing) {
    std::istringstream in{std::string(listing)};
    Chain chain;
    for (std::string raw; std::getline(in, raw);) {
        const std::string line = trimmed(raw);
        if (line == "-P INPUT DROP" || line == "-P INPUT REJECT") chain.policy_drops = true;
        if (line.rfind("-A INPUT", 0) != 0 || has(line, "-p tcp") || has(line, "-p icmp")) continue;
        const bool accept = has(line, "-j ACCEPT"), drop = has(line, "-j DROP") || has(line, "-j REJECT");
        const bool all_packets =
            line.rfind("-A INPUT -j ", 0) == 0 || line.rfind("-A INPUT -p udp -j ", 0) == 0;
        chain.rule(line, accept, drop, all_packets);
    }
    return chain.word();
}

}  // namespace gnstor::cli
