// doctor_firewall.cpp: finds out from the listings of nft and iptables what happens to packets to UDP port
// 4791.
//
// Walks the chains as the kernel does: the first rule that matches decides, a jump returns to its caller, a
// base chain ends with its policy. Matches are approximated: a rule matches if it names the port (alone, in a
// list or a range) or applies to all packets. Other conditions (an interface, a state, a named set) are
// ignored in a rule that names the port; a rule with only such conditions is skipped.
#include "cli/doctor.hpp"

#include "rdma/wire/udp/udp_wire.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace gnstor::cli {
namespace {

constexpr int kJumpsMost = 16;  // the kernel's own limit

bool has(std::string_view line, std::string_view word) {
    return line.find(word) != std::string_view::npos;
}
bool begins(std::string_view line, std::string_view with) {
    return line.substr(0, with.size()) == with;
}

std::vector<std::string> words_of(std::string_view line) {
    std::istringstream in{std::string(line)};
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

bool number(std::string_view text, std::uint32_t& value) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failed == std::errc() && end == text.data() + text.size();
}

/// Whether "53", "4000-5000", "4000:5000" or several of these, with commas and braces, hold the port.
bool holds_port(std::string_view list) {
    for (std::size_t at = 0; at < list.size();) {
        const std::size_t end = std::min(list.find_first_of(",{} ", at), list.size());
        const std::string_view one = list.substr(at, end - at);
        at = end + 1;
        const std::size_t dash = one.find_first_of("-:");
        std::uint32_t first = 0, last = 0;
        if (!number(one.substr(0, dash), first)) continue;
        last = first;
        if (dash != std::string_view::npos && !number(one.substr(dash + 1), last)) last = 65535;
        if (first <= rdma::kRocePort && rdma::kRocePort <= last) return true;
    }
    return false;
}

enum class About : std::uint8_t { kOther, kPort, kAll };
enum class Action : std::uint8_t { kNone, kAccept, kDrop, kJump, kGoto, kReturn };
struct Rule {
    About about = About::kOther;
    Action action = Action::kNone;
    std::string target;  ///< chain that a jump or goto names
};
struct Chain {
    bool is_input = false, policy_drops = false;
    std::vector<Rule> rules;
};
using Chains = std::map<std::string, Chain>;

/// What a chain decides; kNothing: the calling chain continues. `through`: what the jump to this chain
/// matches.
FirewallWord walk(const Chains& chains, const Chain& chain, About through, int depth) {
    for (const Rule& rule : chain.rules) {
        const bool fits =
            rule.about == About::kPort || (rule.about == About::kAll && through != About::kOther);
        switch (rule.action) {
            case Action::kAccept:
                if (fits) return FirewallWord::kAccept;
                break;
            case Action::kDrop:
                if (fits)
                    return rule.about == About::kPort || through == About::kPort ? FirewallWord::kDropRule
                                                                                 : FirewallWord::kDropPolicy;
                break;
            case Action::kReturn:
                if (fits) return FirewallWord::kNothing;
                break;
            case Action::kJump:
            case Action::kGoto: {
                const auto to = chains.find(rule.target);
                if (to == chains.end() || depth == 0) break;
                // Packets that reach the target: to the port, all, or of an unknown kind.
                const About inner = rule.about == About::kAll ? through : rule.about;
                const FirewallWord word = walk(chains, to->second, inner, depth - 1);
                if (word != FirewallWord::kNothing) return word;
                if (rule.action == Action::kGoto && fits) return FirewallWord::kNothing;
                break;
            }
            case Action::kNone:
                break;
        }
    }
    return FirewallWord::kNothing;
}

FirewallWord judge(const Chains& chains) {
    FirewallWord all = FirewallWord::kNothing;
    for (const auto& [name, chain] : chains) {
        if (!chain.is_input) continue;
        FirewallWord word = walk(chains, chain, About::kAll, kJumpsMost);
        if (word == FirewallWord::kNothing && chain.policy_drops) word = FirewallWord::kDropPolicy;
        all = std::max(all, word);  // every base chain sees the packet: the strictest decides
    }
    return all;
}

std::string trimmed(const std::string& line) {
    const auto from = line.find_first_not_of(" \t"), to = line.find_last_not_of(" \t\r");
    return from == std::string::npos ? std::string() : line.substr(from, to - from + 1);
}

/// What a rule matches, by the word or the set in braces after "dport".
About nft_about(std::string_view line) {
    const bool tcp_alone = has(line, "tcp dport") || has(line, "l4proto tcp") || has(line, "protocol tcp");
    for (const std::string_view key : {"udp dport ", "th dport "}) {
        const std::size_t at = line.find(key);
        if (at == std::string_view::npos || (key[0] == 't' && tcp_alone)) continue;
        const std::string_view rest = line.substr(at + key.size());
        if (begins(rest, "!=") || begins(rest, "@")) return About::kOther;
        const std::size_t end = rest.front() == '{' ? rest.find('}') : rest.find(' ');
        return holds_port(rest.substr(0, end)) ? About::kPort : About::kOther;
    }
    for (const std::string_view all : {"accept", "drop", "reject", "counter", "jump ", "goto ", "return",
                                       "meta l4proto udp ", "ip protocol udp "})
        if (begins(line, all)) return About::kAll;
    return About::kOther;
}

Rule nft_rule(std::string_view line) {
    Rule rule;
    rule.about = nft_about(line);
    const std::vector<std::string> words = words_of(line);
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& w = words[i];
        if (w == "comment") break;  // free text follows
        if (w == "accept") rule.action = Action::kAccept;
        if (w == "drop" || w == "reject") rule.action = Action::kDrop;
        if (w == "return") rule.action = Action::kReturn;
        if ((w == "jump" || w == "goto") && i + 1 < words.size()) {
            rule.action = w == "jump" ? Action::kJump : Action::kGoto;
            rule.target = words[i + 1];
        }
        if (rule.action != Action::kNone) break;
    }
    return rule;
}

/// `words`: "-A INPUT -p udp -m udp --dport 4791 -j ACCEPT"; the first two are skipped.
Rule iptables_rule(const std::vector<std::string>& words) {
    Rule rule;
    bool port = false, other = false, tcp = false;
    for (std::size_t i = 2; i < words.size(); ++i) {
        const std::string& w = words[i];
        const std::string next = i + 1 < words.size() ? words[i + 1] : "";
        if (w == "-j" || w == "-g") {
            rule.action = next == "ACCEPT"                     ? Action::kAccept
                          : next == "DROP" || next == "REJECT" ? Action::kDrop
                          : next == "RETURN"                   ? Action::kReturn
                          : w == "-j"                          ? Action::kJump
                                                               : Action::kGoto;
            rule.target = next;
            break;  // options of the target follow
        }
        const bool negated = i > 2 && words[i - 1] == "!";
        if (w == "-p") {
            tcp = negated ? next == "udp" : next != "udp" && next != "all";
            ++i;
        } else if (w == "-m") {
            ++i;
        } else if (w == "--dport" || w == "--dports" || w == "--ports") {
            port = !negated && holds_port(next);
            other = other || !port;
            ++i;
        } else if (w != "!") {
            other = true;
        }
    }
    rule.about = tcp ? About::kOther : port ? About::kPort : other ? About::kOther : About::kAll;
    return rule;
}

}  // namespace

FirewallWord read_nft(std::string_view ruleset) {
    std::istringstream in{std::string(ruleset)};
    FirewallWord all = FirewallWord::kNothing;
    Chains chains;  // of one table: jumps do not leave it
    Chain* chain = nullptr;
    for (std::string raw; std::getline(in, raw);) {
        const std::string line = trimmed(raw);
        if (begins(line, "table ")) {
            all = std::max(all, judge(chains));
            chains.clear();
            chain = nullptr;
        } else if (begins(line, "chain ")) {
            const std::vector<std::string> words = words_of(line);
            chain = words.size() > 1 ? &chains[words[1]] : nullptr;
        } else if (line == "}") {
            chain = nullptr;
        } else if (chain != nullptr && has(line, "hook ")) {
            chain->is_input = has(line, "hook input");
            chain->policy_drops = has(line, "policy drop");
        } else if (chain != nullptr && !line.empty()) {
            chain->rules.push_back(nft_rule(line));
        }
    }
    return std::max(all, judge(chains));
}

FirewallWord read_iptables(std::string_view listing) {
    std::istringstream in{std::string(listing)};
    Chains chains;
    chains["INPUT"].is_input = true;
    for (std::string raw; std::getline(in, raw);) {
        const std::vector<std::string> words = words_of(raw);
        if (words.size() < 3) continue;
        if (words[0] == "-P" && words[1] == "INPUT")
            chains["INPUT"].policy_drops = words[2] == "DROP" || words[2] == "REJECT";
        if (words[0] == "-A") chains[words[1]].rules.push_back(iptables_rule(words));
    }
    return judge(chains);
}

}  // namespace gnstor::cli
