// main.cpp: the main() of every GoogleTest program. One program holds several entries of ctest, each of them
// the tests of some of its sources: --files=a_test.cpp,b_test.cpp runs the tests that those sources define.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kFiles = "--files=";

std::set<std::string, std::less<>> split(std::string_view list) {
    std::set<std::string, std::less<>> names;
    while (!list.empty()) {
        const std::size_t end = list.find(',');
        names.emplace(list.substr(0, end));
        list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    }
    return names;
}

std::string_view name_of(std::string_view path) {
    return path.substr(path.find_last_of('/') + 1);
}

/// A filter of GoogleTest that runs the tests of `files`. Empty: one of them defines no test, said on
/// standard error.
std::string filter_of(const std::set<std::string, std::less<>>& files) {
    std::string filter;
    std::set<std::string, std::less<>> without = files;
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    for (int s = 0; s < all.total_test_suite_count(); ++s) {
        const ::testing::TestSuite& suite = *all.GetTestSuite(s);
        for (int t = 0; t < suite.total_test_count(); ++t) {
            const ::testing::TestInfo& test = *suite.GetTestInfo(t);
            const std::string_view file = name_of(test.file());
            if (!file.ends_with("_test.cpp")) {
                std::fprintf(stderr, "--files: test %s.%s is defined in %s, which no entry of ctest names\n",
                             suite.name(), test.name(), test.file());
                return {};
            }
            if (!files.contains(file)) continue;
            without.erase(std::string(file));
            filter += std::string(filter.empty() ? "" : ":") + suite.name() + '.' + test.name();
        }
    }
    for (const std::string& file : without) {
        std::fprintf(stderr, "--files: no test of this program is defined in %s\n", file.c_str());
    }
    return without.empty() ? filter : std::string();
}

}  // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (!argument.starts_with(kFiles)) {
            continue;
        }
        const std::string filter = filter_of(split(argument.substr(kFiles.size())));
        if (filter.empty()) {
            return 2;
        }
        if (::testing::GTEST_FLAG(filter) == "*") {
            ::testing::GTEST_FLAG(filter) = filter;
        }
    }
    return RUN_ALL_TESTS();
}
