// loopback.hpp: addresses of this machine that no other test program uses at the same time: tests run side by
// side, and a port of the udp wire belongs to one program. Linux answers on all of 127.0.0.0/8, so that a
// process takes two bytes of it by its number.
#pragma once

#include <unistd.h>
#include <string>

namespace gnstor::test {

/// "127.a.b.HOST": a in [64, 127] and b from the process number; programs alike in it (16384 processes apart)
/// would share addresses.
inline std::string loopback_address(unsigned host) {
    const auto process = static_cast<unsigned>(::getpid());
    return "127." + std::to_string(64 + ((process >> 8) & 63)) + "." + std::to_string(process & 255) + "." +
           std::to_string(host);
}

}  // namespace gnstor::test
