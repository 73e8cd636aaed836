// fuzz_connection.cpp: a fuzzer's bytes as the script of a hostile peer.
#include "hostile.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (!gnstor::rdma::roce::hostile::play({data, size}).sound) std::abort();
    return 0;
}
