// two_threads.cpp: a program that is declared ONE_THREAD and is not; test one_thread_guard wants it to be
// found out.
#include <cstdio>
#include <thread>

int main() {
    std::thread other([] {});
    other.join();
    std::puts("nobody noticed");
}
