// connection.cpp: dispatch, alternation, and the common end.
#include "rdma/roce/connection.hpp"

#include <algorithm>

namespace gnstor::rdma::roce {

void Connection::on_packet(TimeNs now, const Packet& packet) {
    const OpcodeTraits& is = traits(packet.opcode);
    if (is.deth) return;  // datagrams are for queue pair 1 only
    if (is.request) {
        responder_.on_request(now, packet);
    } else {
        requester_.on_response(now, packet);
    }
    end_both();
}

// The halves alternate, so that neither starves the other: a peer that reads all the time does not hold
// our requests back.
bool Connection::next_packet(TimeNs now, Packet& packet, bool requests) {
    if (!requests) {
        const bool any = responder_.next_packet(now, packet);
        end_both();
        return any;
    }
    requests_first_ = !requests_first_;
    const bool any = requests_first_
                         ? requester_.next_packet(now, packet) || responder_.next_packet(now, packet)
                         : responder_.next_packet(now, packet) || requester_.next_packet(now, packet);
    end_both();
    return any;
}

void Connection::on_time(TimeNs now) {
    requester_.on_time(now);
    end_both();
}

TimeNs Connection::next_deadline() const noexcept {
    return std::min(requester_.next_deadline(), responder_.next_deadline());
}

void Connection::flush() {
    if (failure_ == mlx5::kSyndromeNone) failure_ = mlx5::kFlushed;
    requester_.flush();
    responder_.flush();
}

void Connection::give_up() {
    requester_.give_up();
    end_both();
}

void Connection::end_both() {
    if (!failed() || failure_ != mlx5::kSyndromeNone) return;
    failure_ = requester_.failed() ? requester_.failure() : responder_.failure();
    requester_.flush();
    if (!responder_.failed()) responder_.flush();
}

}  // namespace gnstor::rdma::roce
