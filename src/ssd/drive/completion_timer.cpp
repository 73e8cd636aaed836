// completion_timer.cpp: which commands are timed.
#include "ssd/drive/completion_timer.hpp"

namespace gnstor::ssd {

bool CompletionTimer::request_of(const nvme::Command& command, TimingModel::Request& request) {
    const auto opcode = static_cast<nvme::IoOpcode>(command.opcode);
    if (opcode != nvme::IoOpcode::kRead && opcode != nvme::IoOpcode::kWrite) return false;
    const nvme::IoFields f = nvme::decode_io(command);
    request.block = (std::uint64_t{f.volume} << 32) | f.block;
    request.bytes = f.sectors != 0 ? f.sectors * nvme::kSectorBytes : f.blocks * nvme::kBlockBytes;
    request.write = opcode == nvme::IoOpcode::kWrite;
    return true;
}

}  // namespace gnstor::ssd
