// scopes_gate.cu: one kernel a compilation, by GATE, for scopes_test.py to read from PTX what sharing modes
// and views cost.
#include <gnstor/gnor/batch.hpp>

using gnstor::BasicChannelRef;
using gnstor::Deadline;
using gnstor::Sharing;
using gnstor::Status;
using gnstor::VolumeRef;

namespace {

struct Handler {
    std::uint64_t* done;
    __device__ __host__ void operator()(Status) const { *done += 1; }
};

template <class Channel>
__device__ void reads(VolumeRef volume, Channel channel, std::uint64_t* buffer) {
    gnstor::simt::Lane lane;
    lane.thread = threadIdx.x;
    lane.block = blockIdx.x;
    const auto me = gnstor::simt::self(lane);
    const Deadline deadline = Deadline::in_ns(1'000'000'000);
    if (!gnstor::nvme::ok(volume.read(me, channel, 0, 1, buffer, deadline))) buffer[0] = 1;
    if (!gnstor::nvme::ok(volume.read_async(lane, channel, 0, 1, buffer, Handler{buffer}, deadline)))
        buffer[1] = 1;
    channel.poll(me);
}

}  // namespace

#if GATE == 0
extern "C" __global__ void gate(VolumeRef volume, BasicChannelRef<Sharing::kLane> channel,
                                std::uint64_t* buffer) {
    reads(volume, channel.with<Handler>(), buffer);
}
#elif GATE == 1
extern "C" __global__ void gate(VolumeRef volume, BasicChannelRef<Sharing::kBlock> channel,
                                std::uint64_t* buffer) {
    reads(volume, channel.with<Handler>(), buffer);
}
#elif GATE == 2
extern "C" __global__ void gate(VolumeRef volume, BasicChannelRef<Sharing::kGrid> channel,
                                std::uint64_t* buffer) {
    reads(volume, channel.with<Handler>(), buffer);
}
#else
extern "C" __global__ void gate(VolumeRef volume, BasicChannelRef<Sharing::kGrid> channel,
                                std::uint64_t* buffer) {
    reads(volume, channel, buffer);
}
#endif
