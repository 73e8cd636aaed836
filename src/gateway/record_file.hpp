// record_file.hpp: the file of a gateway's loss record: locked while it is open, written in place.
//
// In place, so that a full disk refuses no write: a record that is torn by a cut is as good as "unknown". One
// thread at a time.
#pragma once

#include "gateway/loss_record.hpp"

#include <filesystem>
#include <memory>
#include <optional>

namespace gnstor::gateway {

class RecordFile {
  public:
    /// Makes it where there is none, with room for a record. kBusy: another gateway has it.
    static Result<std::unique_ptr<RecordFile>> open(const std::filesystem::path& path);
    ~RecordFile();
    RecordFile(const RecordFile&) = delete;
    RecordFile& operator=(const RecordFile&) = delete;

    /// Nothing: it was made just now, or never written.
    [[nodiscard]] Result<std::optional<LossRecord>> read() const;
    /// Stable when it comes back.
    Result<void> write(const LossRecord& record);

  private:
    RecordFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
    const std::filesystem::path path_;
    const int fd_;
};

}  // namespace gnstor::gateway
