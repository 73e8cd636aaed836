// one_thread.cpp: takes the place of pthread_create() in test programs that are declared ONE_THREAD
// (cmake/gnstor.cmake). Who makes a thread in one of them, in whichever library, ends it: ThreadSanitizer
// does not run these programs, so it would not see that thread.
#include <pthread.h>

#include <unistd.h>
#include <cstdlib>

extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
    constexpr char kSaid[] =
        "this program is declared ONE_THREAD and made a thread: take the declaration away (gn_test)\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
    std::_Exit(1);  // not abort(): ctest takes no message of a program that a signal ended (one_thread_guard)
}
