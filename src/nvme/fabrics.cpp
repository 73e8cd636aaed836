#include <gnstor/nvme/fabrics.hpp>

namespace gnstor::nvme {

const char* rdma_reject_name(RdmaRejectStatus s) noexcept {
    switch (s) {
        case RdmaRejectStatus::kInvalidLength:
            return "invalid private data length";
        case RdmaRejectStatus::kInvalidRecordFormat:
            return "invalid record format";
        case RdmaRejectStatus::kInvalidQueueId:
            return "invalid queue id";
        case RdmaRejectStatus::kInvalidHostSendQueueSize:
            return "invalid host send queue size";
        case RdmaRejectStatus::kInvalidHostReceiveQueueSize:
            return "invalid host receive queue size";
        case RdmaRejectStatus::kNoResources:
            return "no resources";
        case RdmaRejectStatus::kInvalidIrd:
            return "invalid IRD";
        case RdmaRejectStatus::kInvalidOrd:
            return "invalid ORD";
    }
    return "unknown reason";
}

}  // namespace gnstor::nvme
