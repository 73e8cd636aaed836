// child.hpp: processes that a test kills.
#pragma once

#include <gtest/gtest.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace gnstor::rdma::test {

/// A child process that does `work` and is killed; made before this process has threads.
class Child {
  public:
    template <class Work>
    explicit Child(Work work) {
        int go[2], ready[2];
        EXPECT_EQ(::pipe(go), 0);
        EXPECT_EQ(::pipe(ready), 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also of a test that is killed itself
            char byte = 0;
            if (::read(go[0], &byte, 1) != 1) ::_exit(3);
            work([&] { (void)!::write(ready[1], "r", 1); });
            ::_exit(0);
        }
        go_ = go[1];
        ready_ = ready[0];
        ::close(go[0]);
        ::close(ready[1]);
    }
    ~Child() {
        kill();
        ::close(go_);
        ::close(ready_);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    /// Lets it begin; waits until it says that it is at work.
    bool begin() const {
        char byte = 0;
        return ::write(go_, "g", 1) == 1 && ::read(ready_, &byte, 1) == 1;
    }
    /// It does nothing from here on, until it is killed.
    void stand_still() const {
        ::kill(pid_, SIGSTOP);
        int status = 0;
        ::waitpid(pid_, &status, WUNTRACED);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    /// Without waiting for its end.
    void strike() const { ::kill(pid_, SIGKILL); }
    void kill() {
        if (pid_ <= 0) return;
        strike();
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    pid_t pid_ = 0;
    int go_ = -1, ready_ = -1;
};

}  // namespace gnstor::rdma::test
