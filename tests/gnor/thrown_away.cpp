// thrown_away.cpp: what lanes may not throw away: on each line marked "said" the compiler says so, and on no
// other. Read by thrown_away_test.py; never run.
#include <gnstor/gnor/batch.hpp>

namespace gnstor {
namespace {

[[maybe_unused]] void throw_away(const VolumeRef& volume, ChannelRef channel, Batch<32>& batch,
                                 const IoRequest& request, void* buffer, Deadline deadline) {
    const simt::Lane lane;
    const auto me = simt::self(lane);
    Status status;

    volume.read_async(lane, channel, 0, 1, buffer, deadline);   // said
    volume.write_async(lane, channel, 0, 1, buffer, deadline);  // said
    volume.try_read_async(lane, channel, 0, 1, buffer);         // said
    volume.try_write_async(lane, channel, 0, 1, buffer);        // said
    const Token token = volume.read_async(lane, channel, 0, 1, buffer, deadline);
    channel.poll(lane, token, status);                                         // said
    channel.wait(me, token, deadline);                                         // said
    channel.drop(token);                                                       // said
    channel.alloc(me, 4096);                                                   // said
    channel.alloc(me, 4096, deadline);                                         // said
    channel.alloc_each(me, true, 4096);                                        // said
    channel.free(me, buffer);                                                  // said
    batch.submit(me, lane, volume, channel, nvme::IoOpcode::kRead, &request);  // said
    batch.commit(me, lane, channel);
    batch.poll(me, channel);
    channel.poll(me);
}

}  // namespace
}  // namespace gnstor
