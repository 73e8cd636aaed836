// loop_device.hpp: a file as a block device, where this machine lets us; detached at the end.
#pragma once

#include "ssd/flash/file/file_store.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace gnstor::ssd::testing {

class LoopDevice {
  public:
    /// Attaches a new sparse file of `bytes` bytes. Empty path(): no loop devices here, or no right to use
    /// them.
    LoopDevice(const std::filesystem::path& file, std::uint64_t bytes) {
        const FileDescriptor backing(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (backing.get() < 0 || ::ftruncate(backing.get(), static_cast<off_t>(bytes)) != 0) return;
        const FileDescriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
        // Another process may take the number that we were told: then the next one.
        for (int attempt = 0; attempt < 16 && control.get() >= 0; ++attempt) {
            const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
            if (number < 0) return;
            const std::string path = "/dev/loop" + std::to_string(number);
            FileDescriptor device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
            if (device.get() < 0) return;
            if (::ioctl(device.get(), LOOP_SET_FD, backing.get()) != 0) continue;
            loop_info64 info{};
            const std::string name = file.string().substr(0, LO_NAME_SIZE - 1);
            name.copy(reinterpret_cast<char*>(info.lo_file_name), name.size());
            (void)::ioctl(device.get(), LOOP_SET_STATUS64, &info);
            path_ = path;
            number_ = number;
            return;
        }
    }
    ~LoopDevice() {
        if (path_.empty()) return;
        const FileDescriptor device(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        (void)::ioctl(device.get(), LOOP_CLR_FD);
    }
    LoopDevice(const LoopDevice&) = delete;
    LoopDevice& operator=(const LoopDevice&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] int number() const { return number_; }

  private:
    std::filesystem::path path_;
    int number_ = -1;
};

}  // namespace gnstor::ssd::testing
