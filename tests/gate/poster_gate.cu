// poster_gate.cu: the device poster, and the fast path's own order of the same stores, in kernels small
// enough that ptx_order_test.py can follow every path through them.
#include <gnstor/gnor/detail/paths/single_lane.hpp>
#include <gnstor/rdma/poster.hpp>

using gnstor::rdma::SendOutcome;
using gnstor::rdma::SendQueueRef;
using gnstor::rdma::SendTicket;

// One lane: reserves, fills, publishes, rings.
extern "C" __global__ void gate_one_lane(SendQueueRef queue, gnstor::rdma::mlx5::DataSegment data) {
    SendTicket ticket = queue.try_reserve();
    if (!ticket.granted()) return;
    queue.fill_send(ticket, data);
    queue.publish(ticket);
    queue.ring_bell();
}

// A warp: each lane fills its own entry, one lane rings for all.
extern "C" __global__ void gate_warp(SendQueueRef queue, gnstor::rdma::mlx5::DataSegment data) {
    gnstor::simt::Lane lane;
    lane.index_in_warp = threadIdx.x % gnstor::simt::kWarpLanes;
    lane.thread = threadIdx.x;
    lane.block = blockIdx.x;
    lane.block_threads = blockDim.x;
    lane.grid_blocks = gridDim.x;
    const auto group = gnstor::simt::warp(lane);
    SendTicket ticket = gnstor::rdma::try_reserve(group, queue, true);
    if (ticket.granted()) queue.fill_send(ticket, data);
    gnstor::rdma::publish_and_ring(group, queue, ticket);
}

using SingleLaneState = gnstor::gnor::SharedState<gnstor::Sharing::kLane, gnstor::gnor::AnyCallback>;
using SingleLaneFlight = gnstor::gnor::SingleLaneFlight<SingleLaneState, 1>;

// The fast path: one command to one drive, with the records of the completions of the call before.
extern "C" __global__ void gate_single_lane(SingleLaneState* channel, gnstor::gnor::CommandContext context,
                                            gnstor::nvme::MapVersion version,
                                            gnstor::gnor::OneCommand request, SingleLaneFlight flight,
                                            std::uint64_t owed) {
    flight.count = 1;
    gnstor::gnor::NoSingleLaneProbe probe;
    gnstor::gnor::send_single_lane(*channel, context, version, request, flight, owed, probe);
}
