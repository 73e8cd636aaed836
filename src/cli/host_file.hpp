// host_file.hpp: hosts.json in a gateway's folder: which hosts may use the gateway, and their keys.
//
//     {"version": 1, "hosts": [{"nqn": "nqn.…", "key": "DHHC-1:…", "controller_key": "DHHC-1:…"}]}
//
// "controller_key" may be missing; nothing else may be there. The file has mode 0600, and is replaced as a
// whole: readers see an old list or a new one.
// Invariants
//   * no Error and no log line holds a part of a key, or of a text that cannot be parsed;
//   * a file that is malformed, unreadable or open to other users changes nothing: the last good list
//     stays in force, and one line of the log says so;
//   * a file that is deleted after it was read changes nothing either; without a file no host is listed.
// Functions: any thread. HostFileWatch: one owner.
#pragma once

#include "nvmf/access/host_list.hpp"

#include <gnstor/base/result.hpp>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace gnstor::cli {

inline constexpr char kHostsFile[] = "hosts.json";
inline constexpr char kHostsLockFile[] = "hosts.lock";

using nvmf::ListedHost;

/// A key's text form, which is as secret as the key.
std::string key_text(const nvmf::auth::DhchapKey& key);

/// kCorrupt: what is wrong, and with which host.
Result<std::vector<ListedHost>> parse_hosts(std::string_view text);
/// The text that parse_hosts() reads; as secret as the keys.
std::string format_hosts(const std::vector<ListedHost>& hosts);

/// kNotFound: there is no such file. Others: read_private_file(), parse_hosts().
Result<std::vector<ListedHost>> read_hosts(const std::filesystem::path& file);

/// Reads the list (none: an empty one), changes it and writes it, unless `change` fails. Concurrent callers,
/// in this process and others, do so one after the other. kBusy: another one did not end within ten seconds.
Result<void> change_hosts(const std::filesystem::path& file,
                          const std::function<Result<void>(std::vector<ListedHost>&)>& change);

/// Reads the file again every half second, with a thread of its own, and gives what it lists to `list`.
class HostFileWatch {
  public:
    /// Reads it once; an Error if there is a file whose list cannot be taken.
    static Result<std::unique_ptr<HostFileWatch>> start(std::filesystem::path file,
                                                        std::shared_ptr<nvmf::HostList> list);
    ~HostFileWatch();
    HostFileWatch(const HostFileWatch&) = delete;
    HostFileWatch& operator=(const HostFileWatch&) = delete;

    /// What the thread does each time. Any thread.
    void look();
    /// Why the list in force is not that of the file; empty: it is.
    [[nodiscard]] std::string trouble() const;

  private:
    HostFileWatch(std::filesystem::path file, std::shared_ptr<nvmf::HostList> list)
        : file_(std::move(file)), list_(std::move(list)) {}
    Result<void> read();
    void run();

    const std::filesystem::path file_;
    const std::shared_ptr<nvmf::HostList> list_;
    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable ends_;
    bool ending_ = false;
    bool was_read_ = false;
    std::string trouble_;
    std::thread thread_;
};

}  // namespace gnstor::cli
