// doctor_firewall_test.cpp: what listings of nft and iptables say about UDP port 4791 is read out of them.
#include "cli/doctor.hpp"

#include <gtest/gtest.h>

#include <string>

using namespace gnstor;
using namespace gnstor::cli;

namespace {

TEST(DoctorFirewall, ReadsListingsOfIptables) {
    using W = FirewallWord;
    EXPECT_EQ(read_iptables(""), W::kNothing);
    EXPECT_EQ(read_iptables("-P INPUT DROP\n"), W::kDropPolicy);
    EXPECT_EQ(read_iptables("-P INPUT DROP\n-A INPUT -p udp --dport 4791 -j ACCEPT\n"), W::kAccept);
    EXPECT_EQ(read_iptables("-P INPUT DROP\n-A INPUT -p tcp --dport 4791 -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(read_iptables("-P INPUT DROP\n-A INPUT -p udp --dport 47910 -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(read_iptables("-P INPUT ACCEPT\n-A INPUT -p udp --dport 4791 -j REJECT\n"), W::kDropRule);
    EXPECT_EQ(read_iptables("-A INPUT -p udp --dport 4791 -j ACCEPT\n-A INPUT -p udp --dport 4791 -j DROP\n"),
              W::kAccept);
    EXPECT_EQ(read_iptables("-A INPUT -i lo -j ACCEPT\n-A INPUT -j REJECT --reject-with x\n"),
              W::kDropPolicy);
    EXPECT_EQ(read_iptables("-P INPUT DROP\n-A INPUT -j ACCEPT\n"), W::kAccept);
    EXPECT_EQ(read_iptables("-P FORWARD DROP\n-A FORWARD -p udp --dport 4791 -j DROP\n"), W::kNothing);
}

TEST(DoctorFirewall, KnowsRangesListsAndJumpsOfIptables) {
    using W = FirewallWord;
    const auto drop = [](const std::string& rules) { return read_iptables("-P INPUT DROP\n" + rules); };
    EXPECT_EQ(drop("-A INPUT -p udp -m udp --dport 4000:5000 -j ACCEPT\n"), W::kAccept);
    EXPECT_EQ(drop("-A INPUT -p udp -m udp --dport 4792:5000 -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(drop("-A INPUT -p udp -m multiport --dports 53,4790:4800 -j ACCEPT\n"), W::kAccept);
    EXPECT_EQ(drop("-A INPUT -p udp ! --dport 4791 -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(drop("-A INPUT -p udp --sport 4791 -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(drop("-A INPUT -j ufw\n-A ufw -p udp --dport 4791 -j ACCEPT\n"), W::kAccept);
    EXPECT_EQ(drop("-A INPUT -j ufw\n-A ufw -p tcp -j ACCEPT\n-A ufw -j RETURN\n-A ufw -j ACCEPT\n"),
              W::kDropPolicy);
    EXPECT_EQ(drop("-A INPUT -g rest\n-A INPUT -j ACCEPT\n-A rest -p tcp -j ACCEPT\n"), W::kDropPolicy);
    EXPECT_EQ(
        drop("-A INPUT -p udp --dport 4791 -j roce\n-A roce -s 10.0.0.0/8 -j DROP\n-A roce -j ACCEPT\n"),
        W::kAccept);
    EXPECT_EQ(read_iptables("-A INPUT -p udp --dport 4000:5000 -j bad\n-A bad -j DROP\n"), W::kDropRule);
    EXPECT_EQ(
        read_iptables("-A INPUT -i eth0 -j zone\n-A zone -p udp --dport 4791 -j DROP\n-A zone -j DROP\n"),
        W::kDropRule);
    EXPECT_EQ(read_iptables("-A INPUT -i eth0 -j zone\n-A zone -j DROP\n"), W::kNothing)
        << "the rule does not match every packet";
    EXPECT_EQ(read_iptables("-A INPUT -j a\n-A a -j b\n-A b -j a\n"), W::kNothing)
        << "jumps in a circle must end";
}

TEST(DoctorFirewall, ReadsRulesetsOfNft) {
    using W = FirewallWord;
    const auto input = [](const std::string& policy, const std::string& rules) {
        return "table inet f {\n chain input {\n  type filter hook input priority 0; policy " + policy +
               ";\n" + rules +
               " }\n chain output {\n  type filter hook output priority 0; policy drop;\n  udp dport 4791 "
               "drop\n }\n}\n";
    };
    EXPECT_EQ(read_nft(""), W::kNothing);
    EXPECT_EQ(read_nft(input("accept", "")), W::kNothing);
    EXPECT_EQ(read_nft(input("drop", "")), W::kDropPolicy);
    EXPECT_EQ(read_nft(input("drop", "  udp dport { 53, 4791 } accept\n")), W::kAccept);
    EXPECT_EQ(read_nft(input("drop", "  iif lo accept\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft(input("drop", "  accept\n")), W::kAccept);
    EXPECT_EQ(read_nft(input("accept", "  udp dport 4791 reject\n")), W::kDropRule);
    EXPECT_EQ(read_nft(input("accept", "  udp dport 53 accept\n  drop\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft("chain x {"), W::kNothing);
    EXPECT_EQ(read_nft(input("drop", "  udp dport 4000-5000 accept\n")), W::kAccept);
    EXPECT_EQ(read_nft(input("drop", "  udp dport { 53, 4790-4800 } accept\n")), W::kAccept);
    EXPECT_EQ(read_nft(input("drop", "  udp dport != 4791 accept\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft(input("drop", "  tcp dport 4791 accept\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft(input("drop", "  udp sport 4791 accept\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft(input("accept", "  udp dport 53 accept comment \"not drop\"\n")), W::kNothing);
    const auto jumping = [&](const std::string& policy, const std::string& rules, const std::string& in) {
        return "table inet f {\n chain lan {\n" + in + " }\n" + input(policy, rules).substr(13);
    };
    EXPECT_EQ(read_nft(jumping("drop", "  jump lan\n", "  udp dport 4791 accept\n")), W::kAccept);
    EXPECT_EQ(read_nft(jumping("drop", "  jump lan\n", "  tcp dport 22 accept\n")), W::kDropPolicy);
    EXPECT_EQ(read_nft(jumping("accept", "  iifname \"eth0\" jump lan\n", "  udp dport 4791 drop\n")),
              W::kDropRule);
    EXPECT_EQ(read_nft(jumping("accept", "  udp dport 4000-5000 goto lan\n  drop\n", "  tcp dport 1 drop\n")),
              W::kNothing);
}

}  // namespace
