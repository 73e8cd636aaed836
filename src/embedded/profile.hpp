// profile.hpp: named sets of figures for drives and network: what `--profile` chooses. Pure but for
// load_profile().
//
// A profile is JSON with comments (share/profiles/*.json; docs/operations.md has the keys). Whatever is wrong
// in one is an error that names file, line and key; an unknown key is wrong. Cross-checks of figures are
// those of the models (ssd/drive/timing_model.hpp, rdma/nic/link_model.hpp).
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/nic/link_model.hpp"
#include "ssd/drive/timing_model.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace gnstor::embedded {

struct Profile {
    std::string name;
    ssd::DriveTiming drive;    ///< none: drives are not timed
    rdma::LinkTiming network;  ///< none: nor is the network
};

/// `file` is what errors call it.
Result<Profile> parse_profile(std::string_view text, const std::string& file);

/// One that is built in, by its name; or, of a word with a slash or ending in .json, that file.
Result<Profile> load_profile(const std::string& name_or_file);

struct BuiltInProfile {
    std::string_view name, text;
};
/// share/profiles as it was when this program was built, in order of name.
const std::vector<BuiltInProfile>& built_in_profiles();

}  // namespace gnstor::embedded
