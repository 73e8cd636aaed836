// profile.hpp: named sets of timing parameters for drives and network, chosen by `--profile`. Pure but for
// load_profile().
//
// A profile is JSON with comments (share/profiles/*.json: each says where its values come from). Every error
// names file, line and key; an unknown key is an error. Parameters are cross-checked by the models
// themselves (ssd/options/timing_model.hpp, rdma/nic/link_model.hpp).
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/nic/link_model.hpp"
#include "ssd/options/timing_model.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace gnstor::embedded {

struct Profile {
    std::string name;
    ssd::DriveTiming drive;    ///< default: drives are not timed
    rdma::LinkTiming network;  ///< default: the network is not timed
};

/// `file`: its name in errors.
Result<Profile> parse_profile(std::string_view text, const std::string& file);

/// Loads a built-in profile by its name, or a file if the argument has a slash or ends in .json.
Result<Profile> load_profile(const std::string& name_or_file);

struct BuiltInProfile {
    std::string_view name, text;
};
/// The files of share/profiles when this program was built, in order of name.
const std::vector<BuiltInProfile>& built_in_profiles();

}  // namespace gnstor::embedded
