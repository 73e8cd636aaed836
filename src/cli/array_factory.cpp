// array_factory.cpp: where the programs are joined to the embedded array (gnstor/embedded_array.hpp).
#include "cli/array_factory.hpp"

namespace gnstor::cli {
namespace {

Error not_joined(const std::filesystem::path& directory) {
    return error(Errc::kUnsupported,
                 "this build holds no embedded array to open in {}; build the embedded layer",
                 directory.string());
}

}  // namespace

Result<std::unique_ptr<ServedArray>> make_array(const ArrayOptions& options,
                                                std::unique_ptr<daemon::RecordStore>) {
    return not_joined(options.directory);
}

Result<std::unique_ptr<ObjectStore>> open_object_store(const ArrayOptions& options, bool) {
    return not_joined(options.directory);
}

}  // namespace gnstor::cli
