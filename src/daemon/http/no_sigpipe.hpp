// no_sigpipe.hpp: requests of httplib without SIGPIPE. Any thread, each for itself.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace gnstor::daemon {

/// Blocks SIGPIPE in this thread: httplib sends without MSG_NOSIGNAL, and a server that closes its connection
/// must not kill the client's process. The process's own handling of SIGPIPE is left alone.
class NoSigpipe {
  public:
    NoSigpipe() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~NoSigpipe() {
        const timespec at_once{};
        if (::sigismember(&before_, SIGPIPE) == 0)  // if it was blocked before, a pending one may not be ours
            while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
            }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;

  private:
    sigset_t pipe_{}, before_{};
};

}  // namespace gnstor::daemon
