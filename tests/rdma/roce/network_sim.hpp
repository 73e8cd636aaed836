// network_sim.hpp: two connections over a network that loses, doubles, delays, reorders, changes and cuts, in
// virtual time. A run is a function of its seed: the same seed gives the same packets.
#pragma once

#include <cstdint>
#include <string>

namespace gnstor::rdma::roce::sim {

/// Of a thousand packets, so many; drawn from the seed.
struct Profile {
    std::uint32_t lose = 0, twice = 0, late = 0, change = 0;
    bool partition = false;
    bool gentle = false;    ///< at most 5 % of anything: the connection must not fail
    bool trespass = false;  ///< the last request is a WRITE without the right to
    std::uint32_t mtu = 1024;
    std::uint32_t start_psn[2] = {0, 0};
    std::uint32_t operations = 60;
};
Profile profile_of(std::uint64_t seed);

struct Report {
    std::string violation;  ///< empty: none
    bool failed = false;    ///< a connection ended with an error
    bool wrapped = false;   ///< sequence numbers passed 2^24
    std::uint64_t packets = 0, lost = 0, changed = 0, completions = 0, messages = 0;
    std::uint64_t retransmitted = 0, duplicates = 0, reads_repeated = 0, rnr_naks = 0, sequence_naks = 0;
    std::uint64_t silence_most = 0;  ///< nanoseconds without progress of a requester that has something to do
    std::uint64_t digest = 0;        ///< of everything that was delivered, and when
};
Report run(std::uint64_t seed);

}  // namespace gnstor::rdma::roce::sim
