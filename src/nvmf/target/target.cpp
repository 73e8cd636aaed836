#include "nvmf/target/target.hpp"

#include "nvmf/protocol/nqn.hpp"
#include "nvmf/target/connection.hpp"
#include "nvmf/target/target_control.hpp"

namespace gnstor::nvmf {

struct Target::Impl {
    std::unique_ptr<TargetControl> control;
};

Target::Target(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Target::~Target() = default;

Result<std::unique_ptr<Target>> Target::open(rdma::SoftNic& nic, std::span<const SubsystemConfig> subsystems,
                                             TargetOptions options) {
    auto impl = std::make_unique<Impl>();
    GN_ASSIGN(impl->control, TargetControl::open(nic, subsystems, std::move(options)));
    return std::unique_ptr<Target>(new Target(std::move(impl)));
}

void Target::check_time() {
    impl_->control->check_time();
}
Result<SubsystemCounters> Target::counters(const std::string& name) const {
    return impl_->control->counters(name);
}
std::size_t Target::subsystem_count() const {
    return impl_->control->subsystems().size();
}
const std::string& Target::subsystem_nqn(std::size_t index) const {
    return impl_->control->subsystems()[index]->config.nqn;
}
std::size_t Target::connections_open() const {
    return impl_->control->connections_open();
}

}  // namespace gnstor::nvmf
