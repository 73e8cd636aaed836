// record_file.hpp: the file of a gateway's loss record: locked while open, written in place.
//
// Written in place, so that a full disk cannot make a write fail. If a power cut tears the record, it counts
// as unreadable, which is safe. One thread at a time.
#pragma once

#include "gateway/loss_record.hpp"

#include <filesystem>
#include <memory>
#include <optional>

namespace gnstor::gateway {

class RecordFile {
  public:
    /// Creates the file, with the space for a record, if absent. kBusy: another gateway has it open.
    static Result<std::unique_ptr<RecordFile>> open(const std::filesystem::path& path);
    ~RecordFile();
    RecordFile(const RecordFile&) = delete;
    RecordFile& operator=(const RecordFile&) = delete;

    /// None: the file was just created, or never written.
    [[nodiscard]] Result<std::optional<LossRecord>> read() const;
    /// Stable on return.
    Result<void> write(const LossRecord& record);

  private:
    RecordFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
    const std::filesystem::path path_;
    const int fd_;
};

}  // namespace gnstor::gateway
