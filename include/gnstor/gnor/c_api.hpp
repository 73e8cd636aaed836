// c_api.hpp: the calls under C names, for kernels written in that style. One lane makes each call; see
// volume_ref.hpp, channel_ref.hpp and batch.hpp for what they do and return. Status codes are the numbers of
// nvme::Status; 0 is success. Deadlines are nanoseconds from now. Callbacks are pointers to functions: given
// with the request, or by index in a table that the host set up (callback_table.hpp).
#pragma once

#include <gnstor/gnor/batch.hpp>
#include <gnstor/gnor/callback_table.hpp>

using gnstor_volume = gnstor::VolumeRef;
using gnstor_channel = gnstor::ChannelRef;
using gnstor_channels = gnstor::ChannelSet;
using gnstor_request = gnstor::IoRequest;
using gnstor_lane = gnstor::simt::Lane;
using gnstor_callback = gnstor::Callback;
using gnstor_callback_table = gnstor::CallbackTableRef;
template <std::uint32_t kThreads>
using gnstor_batch = gnstor::Batch<kThreads>;

GN_HD
inline int gnstor_status(gnstor::Status s) {
    return static_cast<int>(s);
}

GN_HD
inline void* gnstor_alloc(gnstor_lane lane, gnstor_channel channel, std::uint64_t bytes) {
    return channel.alloc(gnstor::simt::self(lane), bytes);
}
GN_HD
inline int gnstor_free(gnstor_lane lane, gnstor_channel channel, void* buffer) {
    return gnstor_status(channel.free(gnstor::simt::self(lane), buffer));
}
GN_HD
inline int gnstor_read(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                       std::uint32_t block, std::uint32_t blocks, void* buffer, std::uint64_t timeout_ns) {
    return gnstor_status(volume.read(gnstor::simt::self(lane), channel, block, blocks, buffer,
                                     gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_write(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                        std::uint32_t block, std::uint32_t blocks, const void* buffer,
                        std::uint64_t timeout_ns) {
    return gnstor_status(volume.write(gnstor::simt::self(lane), channel, block, blocks, buffer,
                                      gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_flush(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                        std::uint64_t timeout_ns) {
    return gnstor_status(
        volume.flush(gnstor::simt::self(lane), channel, gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_trim(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                       std::uint32_t block, std::uint32_t blocks, std::uint64_t timeout_ns) {
    return gnstor_status(
        volume.trim(gnstor::simt::self(lane), channel, block, blocks, gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_read_async(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                             std::uint32_t block, std::uint32_t blocks, void* buffer,
                             gnstor_callback callback, void* argument, std::uint64_t timeout_ns) {
    return gnstor_status(volume.read_async(lane, channel, block, blocks, buffer, callback, argument,
                                           gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_write_async(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                              std::uint32_t block, std::uint32_t blocks, const void* buffer,
                              gnstor_callback callback, void* argument, std::uint64_t timeout_ns) {
    return gnstor_status(volume.write_async(lane, channel, block, blocks, buffer, callback, argument,
                                            gnstor::Deadline::in_ns(timeout_ns)));
}

GN_HD
inline int gnstor_read_async_by_index(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                                      std::uint32_t block, std::uint32_t blocks, void* buffer,
                                      gnstor_callback_table table, std::uint32_t index, void* argument,
                                      std::uint64_t timeout_ns) {
    if (!table.has(index)) return gnstor_status(gnstor::Status::kBadArgument);
    return gnstor_status(volume.read_async(lane, channel, block, blocks, buffer, table.at(index, argument),
                                           gnstor::Deadline::in_ns(timeout_ns)));
}
GN_HD
inline int gnstor_write_async_by_index(gnstor_lane lane, const gnstor_volume& volume, gnstor_channel channel,
                                       std::uint32_t block, std::uint32_t blocks, const void* buffer,
                                       gnstor_callback_table table, std::uint32_t index, void* argument,
                                       std::uint64_t timeout_ns) {
    if (!table.has(index)) return gnstor_status(gnstor::Status::kBadArgument);
    return gnstor_status(volume.write_async(lane, channel, block, blocks, buffer, table.at(index, argument),
                                            gnstor::Deadline::in_ns(timeout_ns)));
}

// The steps of a batch: all live lanes of a warp call.
template <std::uint32_t kThreads>
GN_HD void gnstor_batch_init(gnstor_lane lane, gnstor_batch<kThreads>& batch) {
    batch.init(gnstor::simt::warp(lane), lane);
}
template <std::uint32_t kThreads>
GN_HD int gnstor_submit(gnstor_lane lane, gnstor_batch<kThreads>& batch, const gnstor_volume& volume,
                        gnstor_channel channel, bool is_write, const gnstor_request* request,
                        gnstor_callback callback = nullptr, void* argument = nullptr) {
    const auto opcode = is_write ? gnstor::nvme::IoOpcode::kWrite : gnstor::nvme::IoOpcode::kRead;
    return gnstor_status(
        batch.submit(gnstor::simt::warp(lane), lane, volume, channel, opcode, request, callback, argument));
}
template <std::uint32_t kThreads>
GN_HD void gnstor_commit(gnstor_lane lane, gnstor_batch<kThreads>& batch, gnstor_channel channel) {
    batch.commit(gnstor::simt::warp(lane), lane, channel);
}
template <std::uint32_t kThreads>
GN_HD std::uint32_t gnstor_poll(gnstor_lane lane, gnstor_batch<kThreads>& batch, gnstor_channel channel) {
    return batch.poll(gnstor::simt::warp(lane), channel);
}
template <std::uint32_t kThreads>
GN_HD gnstor::BatchResult gnstor_dispatch(gnstor_lane lane, gnstor_batch<kThreads>& batch,
                                          gnstor_channel channel) {
    return batch.dispatch(gnstor::simt::warp(lane), lane, channel);
}
