// request.hpp: a user's request to read or write, as it is handed to lanes. CPU and GPU lanes.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstdint>

namespace gnstor {

/// One of many independent requests (read_many, write_many, Batch).
struct IoRequest {
    nvme::BlockAddress block = 0;
    std::uint32_t blocks = 1;
    void* buffer = nullptr;
    std::uint8_t first_sector = 0;  ///< reads only, with `sectors`: part of one block
    std::uint8_t sectors = 0;       ///< 0: whole blocks
};

}  // namespace gnstor
