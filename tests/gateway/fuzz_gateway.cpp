// fuzz_gateway.cpp: any bytes as commands in a gateway's queues, on a volume of an array in this process.
#include "gateway/raw_commands.hpp"
#include "gateway/serve.hpp"

#include <gnstor/embedded_array.hpp>

using namespace gnstor;

namespace {

/// Made once: an array of two SSDs, a client, a volume of 512 blocks behind a gateway.
struct World {
    World() {
        EmbeddedArrayOptions o;
        o.ssds = 2;
        o.ssd_capacity_bytes = 64u << 20;
        array = EmbeddedArray::open(o).value();
        client = array->connect(gateway::client_options("gateway")).value();
        client::CreateVolume request;
        request.name = "v";
        request.capacity_bytes = 512 * std::uint64_t{nvme::kBlockBytes};
        (void)client->create(request).value();
        gateway::GatewayOptions options;
        options.volume = "v";
        opened = gateway::Gateway::open(*client, options).value();
        raw = std::make_unique<test::RawCommands>(*opened, opened->reactor());
    }
    std::unique_ptr<EmbeddedArray> array;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<gateway::Gateway> opened;
    std::unique_ptr<test::RawCommands> raw;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static World world;
    world.raw->feed({data, size});
    return 0;
}
