// fuzz_admin.cpp: any bytes as admin commands to a drive's controller and to a discovery controller
// (raw_admin.hpp).
#include "raw_admin.hpp"

using namespace gnstor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static nvmf::RawAdmin raw;
    raw.feed({data, size});
    return 0;
}
