// progress.hpp: one line on a terminal that says where a long run is; nothing where output is no terminal.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace gnstor::bench {

class Progress {
  public:
    Progress() : shown_(isatty(STDERR_FILENO) != 0) {}
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(const std::string& line) const {
        if (!shown_) return;
        std::fprintf(stderr, "\r\033[K%s", line.c_str());
        std::fflush(stderr);
    }
    void clear() const { show(""); }

  private:
    const bool shown_;
};

}  // namespace gnstor::bench
