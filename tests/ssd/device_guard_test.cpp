// Nothing that belongs to somebody is formatted by mistake: signatures are found wherever libblkid finds
// them, use is what the kernel says, and force alone opens no device.
#include "ssd/tools/device_guard.hpp"

#include "loop_device.hpp"
#include "scratch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace gnstor::ssd {
namespace {

namespace fs = std::filesystem;
using testing::LoopDevice;
using testing::Scratch;

constexpr std::uint64_t kImageBytes = 8u << 20;

void put(const fs::path& path, std::uint64_t at, const std::string& bytes) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good());
}

fs::path image(const Scratch& scratch, const std::string& name) {
    const fs::path path = scratch / name;
    std::ofstream(path).put('\0');
    fs::resize_file(path, 0);
    fs::resize_file(path, kImageBytes);
    return path;
}

/// Linux swap area, version 1: mkswap(8).
void make_swap(const fs::path& path) {
    put(path, 1024, std::string("\x01\0\0\0\xff\x07\0\0", 8));
    put(path, 4086, "SWAPSPACE2");
}

/// A master boot record with one Linux partition.
void make_mbr(const fs::path& path) {
    put(path, 0x1BE, std::string("\0\0\x02\0\x83\0\x10\0\0\x08\0\0\0\x08\0\0", 16));
    put(path, 0x1FE, "\x55\xAA");
}

/// LUKS, version 1: the head of an encrypted volume.
void make_luks(const fs::path& path) {
    put(path, 0, std::string("LUKS\xba\xbe\0\x01", 8));
}

struct Signature {
    const char* name;
    void (*make)(const fs::path&);
    const char* says;
};
constexpr Signature kSignatures[] = {
    {"swap", make_swap, "swap"}, {"mbr", make_mbr, "partition table (dos)"}, {"luks", make_luks, "LUKS"}};

DeviceFacts facts_of(const fs::path& path, const KernelView& kernel = {}) {
    auto facts = inspect_device(path, kernel);
    EXPECT_TRUE(facts.ok()) << (facts.ok() ? "" : facts.error().message);
    return facts.ok() ? *facts : DeviceFacts{};
}

TEST(DeviceGuard, FindsSignaturesAndWipesAllOfThem) {
    if (!knows_signatures()) GTEST_SKIP() << "built without libblkid";
    const Scratch scratch;
    for (const Signature& s : kSignatures) {
        const fs::path path = image(scratch, s.name);
        EXPECT_TRUE(facts_of(path).signatures.empty()) << s.name;
        s.make(path);
        const DeviceFacts facts = facts_of(path);
        ASSERT_EQ(facts.signatures.size(), 1u) << s.name;
        EXPECT_NE(facts.signatures[0].find(s.says), std::string::npos) << facts.signatures[0];
        const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        const auto wiped = wipe_signatures(fd.get(), path);
        ASSERT_TRUE(wiped.ok()) << wiped.error().message;
        EXPECT_EQ(*wiped, 1u) << s.name;
        EXPECT_TRUE(facts_of(path).signatures.empty()) << s.name;
    }
}

TEST(DeviceGuard, SeveralSignaturesAtOnceAreAllNamed) {
    if (!knows_signatures()) GTEST_SKIP() << "built without libblkid";
    const Scratch scratch;
    const fs::path path = image(scratch, "many");
    make_swap(path);
    make_mbr(path);
    EXPECT_EQ(facts_of(path).signatures.size(), 2u);
}

TEST(DeviceGuard, AStoreIsASignatureToo) {
    const Scratch scratch;
    const fs::path path = scratch / "store";
    ASSERT_TRUE(
        FileStore::create(
            path, {.geometry = {8, 8}, .capacity_bytes = 4096 * 16, .metadata_bytes = 65536, .serial = ""})
            .ok());
    const DeviceFacts facts = facts_of(path);
    ASSERT_EQ(facts.signatures.size(), 1u);
    EXPECT_EQ(facts.signatures[0], "a GNStor store");
    EXPECT_FALSE(facts.block_device);
}

TEST(DeviceGuard, AFileIsOverwrittenOnlyWithForceAndAnEmptyOneAlways) {
    DeviceFacts file;
    EXPECT_TRUE(allow_format(file, "f", {}).ok());
    file.bytes = 5;
    EXPECT_EQ(allow_format(file, "f", {}).error().code, Errc::kExists);
    EXPECT_TRUE(allow_format(file, "f", {.force = true, .device_serial = ""}).ok());
    EXPECT_EQ(allow_format(file, "f", {.force = true, .device_serial = "S"}).error().code,
              Errc::kInvalidArgument)
        << "a serial number that is not compared must be refused";
    file.in_use = {"it is used as swap"};
    EXPECT_EQ(allow_format(file, "f", {.force = true, .device_serial = ""}).error().code, Errc::kBusy);
}

TEST(DeviceGuard, ADeviceWithContentsNeedsForceAndItsSerialNumber) {
    DeviceFacts device;
    device.block_device = true;
    device.bytes = kImageBytes;
    device.serial = "S1";
    device.serial_from = "/sys/block/sda/serial";
    const auto code = [&](bool force, const char* serial) {
        const Result<void> allowed = allow_format(device, "/dev/sda", {force, serial});
        // The serial number is not told: who wants it has to look at the device.
        if (!allowed.ok()) {
            EXPECT_EQ(allowed.error().message.find("S1"), std::string::npos);
            EXPECT_NE(allowed.error().message.find("/dev/sda"), std::string::npos);
        }
        return allowed.ok() ? std::string("allowed")
                            : (allowed.error().code == Errc::kExists ? "exists" : "wrong serial");
    };
    EXPECT_EQ(code(false, ""), "allowed");
    EXPECT_EQ(code(false, "S2"), "wrong serial")
        << "a wrong serial number is the wrong device, also when empty";
    device.signatures = {"a signature of ext4"};
    EXPECT_EQ(code(false, ""), "exists");
    EXPECT_EQ(code(false, "S1"), "exists");
    EXPECT_EQ(code(true, ""), "wrong serial");
    EXPECT_EQ(code(true, "S2"), "wrong serial");
    EXPECT_EQ(code(true, "S1"), "allowed");
    device.serial = device.serial_from = "";
    EXPECT_EQ(code(true, ""), "exists") << "no serial number, no force";
    device.signatures.clear();
    device.signatures_known = false;
    EXPECT_EQ(code(false, ""), "exists") << "contents of unknown kind need force";
    device.signatures_known = true;
    device.serial = "S1";
    device.in_use = {"it is mounted at /home"};
    EXPECT_EQ(allow_format(device, "/dev/sda", {true, "S1"}).error().code, Errc::kBusy)
        << "a device in use must not be opened";
}

TEST(DeviceGuard, APathThatIsNeitherFileNorBlockDeviceIsRefused) {
    EXPECT_EQ(inspect_device("/dev/null").error().code, Errc::kInvalidArgument);
    EXPECT_EQ(inspect_device("/").error().code, Errc::kInvalidArgument);
    EXPECT_EQ(inspect_device("/nonexistent/device").error().code, Errc::kNotFound);
}

/// Kernel tables of this test's own, over a real loop device.
class Kernel {
  public:
    explicit Kernel(const Scratch& scratch, int loop) : number_("7:" + std::to_string(loop)) {
        view.sys = scratch / "sys";
        view.proc = scratch / "proc";
        disk = view.sys / "devices/virtual/block/disk0";
        fs::create_directories(disk / "holders");
        fs::create_directories(view.sys / "dev/block");
        fs::create_directory_symlink(disk, view.sys / "dev/block" / number_);
        fs::create_directories(view.proc / "self");
        write(view.proc / "self/mountinfo", "");
        write(view.proc / "swaps", "Filename Type Size Used Priority\n");
    }
    static void write(const fs::path& path, const std::string& text) {
        fs::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    void mount(const std::string& number, const std::string& point, const std::string& source) const {
        write(view.proc / "self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n30 27 " + number + " / " +
                                                point + " rw,relatime shared:1 - ext4 " + source + " rw\n");
    }
    [[nodiscard]] const std::string& number() const { return number_; }
    KernelView view;
    fs::path disk;

  private:
    std::string number_;
};

TEST(DeviceGuard, UsersOfADeviceThatTheKernelListsAreReported) {
    const Scratch scratch;
    const LoopDevice loop(scratch / "backing", kImageBytes);
    if (loop.path().empty()) GTEST_SKIP() << "this machine has no loop devices";
    const Kernel kernel(scratch, loop.number());
    const auto in_use = [&] {
        const DeviceFacts facts = facts_of(loop.path(), kernel.view);
        return facts.in_use.empty() ? std::string() : facts.in_use[0];
    };
    EXPECT_EQ(in_use(), "");
    kernel.mount(kernel.number(), "/mnt/a\\040b", "/dev/disk0");
    EXPECT_EQ(in_use(), "it is mounted at /mnt/a b");
    kernel.mount("0:44", "/mnt/btrfs", loop.path().string());
    EXPECT_EQ(in_use(), "it is mounted at /mnt/btrfs");
    Kernel::write(kernel.disk / "disk0p1/partition", "1\n");
    Kernel::write(kernel.disk / "disk0p1/dev", "259:3\n");
    kernel.mount("259:3", "/", "/dev/disk0p1");
    EXPECT_EQ(in_use(), "its partition disk0p1 is mounted at /");
    EXPECT_EQ(facts_of(loop.path(), kernel.view).signatures.at(0), "partitions (disk0p1)");
    kernel.mount("0:1", "/elsewhere", "none");
    Kernel::write(kernel.view.proc / "swaps",
                  "Filename Type Size Used Priority\n" + loop.path().string() + " partition 8 0 -2\n");
    EXPECT_EQ(in_use(), "it is used as swap");
    Kernel::write(kernel.view.proc / "swaps", "Filename\n");
    Kernel::write(kernel.disk / "disk0p1/holders/dm-0", "");
    EXPECT_EQ(in_use(), "it is a part of dm-0");
}

TEST(DeviceGuard, TheSerialNumberIsTheDisksAlsoForAPartition) {
    const Scratch scratch;
    const LoopDevice loop(scratch / "backing", kImageBytes);
    if (loop.path().empty()) GTEST_SKIP() << "this machine has no loop devices";
    Kernel kernel(scratch, loop.number());
    EXPECT_EQ(facts_of(loop.path(), kernel.view).serial, "");
    Kernel::write(kernel.disk / "wwid", "naa.5000\n");
    EXPECT_EQ(facts_of(loop.path(), kernel.view).serial, "naa.5000");
    Kernel::write(kernel.disk / "device/vpd_pg80", std::string("\0\x80\0\x08  SN42  ", 12));
    EXPECT_EQ(facts_of(loop.path(), kernel.view).serial, "SN42");
    Kernel::write(kernel.disk / "device/serial", "NVME-7   \n");
    EXPECT_EQ(facts_of(loop.path(), kernel.view).serial, "NVME-7");
    // The same device as a partition of another disk.
    Kernel::write(kernel.disk / "partition", "1\n");
    Kernel::write(kernel.disk.parent_path() / "serial", "PARENT\n");
    const DeviceFacts facts = facts_of(loop.path(), kernel.view);
    EXPECT_EQ(facts.serial, "PARENT");
    EXPECT_EQ(facts.serial_from, "/sys/block/block/serial");
}

TEST(DeviceGuard, ADeviceThatIsOpenExclusivelyIsInUse) {
    const Scratch scratch;
    const LoopDevice loop(scratch / "backing", kImageBytes);
    if (loop.path().empty()) GTEST_SKIP() << "this machine has no loop devices";
    const DeviceFacts before = facts_of(loop.path());
    EXPECT_TRUE(before.block_device);
    EXPECT_EQ(before.bytes, kImageBytes);
    EXPECT_EQ(before.name, "loop" + std::to_string(loop.number()));
    EXPECT_EQ(before.serial, (scratch / "backing").string()) << "a loop device is its file";
    EXPECT_TRUE(before.in_use.empty());
    const FileDescriptor holder(::open(loop.path().c_str(), O_RDWR | O_EXCL | O_CLOEXEC));
    ASSERT_GE(holder.get(), 0);
    const DeviceFacts held = facts_of(loop.path());
    ASSERT_EQ(held.in_use.size(), 1u);
    EXPECT_NE(held.in_use[0].find("exclusively"), std::string::npos);
}

}  // namespace
}  // namespace gnstor::ssd
