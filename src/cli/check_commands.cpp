// check_commands.cpp: gnstor ssd check|recover: checks a store offline, and shows what its firmware would
// recover. Nothing is written without --write.
#include "cli/cli.hpp"

#include <gnstor/base/units.hpp>

#include "ssd/tools/store_check.hpp"
#include "ssd/tools/store_mount.hpp"

namespace gnstor::cli {
namespace {

using nlohmann::json;

json to_json(const deengine::RecoveryReport& r) {
    return {{"checkpoint", r.checkpoint},
            {"spare_checkpoint", r.spare_checkpoint},
            {"journal_pages", r.journal_pages},
            {"log_records", r.log_records},
            {"units_young", r.units_young},
            {"units_half_erased", r.units_half_erased},
            {"units_bad", r.units_bad},
            {"pages_scanned", r.pages_scanned},
            {"pages_mapped", r.pages_mapped},
            {"pages_torn", r.pages_torn},
            {"pages_outdated", r.pages_outdated},
            {"pages_unreadable", r.pages_unreadable},
            {"blocks_lost", r.blocks_lost},
            {"blocks_doubtful", r.blocks_doubtful},
            {"records_lost", r.records_lost},
            {"volumes_in_doubt", r.volumes_in_doubt.size()},
            {"tombstones", r.tombstones},
            {"volumes", r.volumes},
            {"memory_bytes", r.memory_bytes},
            {"findings", r.findings},
            {"findings_left_out", r.findings_left_out}};
}

json to_json(const ssd::StoreCheck& k) {
    json findings = json::array();
    for (const ssd::StoreFinding& f : k.findings)
        findings.push_back({{"severity", f.severity == ssd::Severity::kDamage ? "damage" : "note"},
                            {"offset", f.offset},
                            {"what", f.what}});
    return {{"damages", k.damages},
            {"notes", k.notes},
            {"findings", findings},
            {"mounted", k.mounted},
            {"bytes_read", k.bytes_read},
            {"seconds", k.seconds},
            {"blocks", k.blocks},
            {"records", k.records},
            {"pages",
             {{"data", k.data_pages},
              {"system", k.system_pages},
              {"lost", k.lost_pages},
              {"damaged_records", k.damaged_records},
              {"damaged_record_copies", k.damaged_record_copies},
              {"damaged", k.damaged_pages}}},
            {"recovery", to_json(k.recovery)}};
}

std::string describe(const ssd::StoreCheck& k) {
    std::string text;
    for (const ssd::StoreFinding& f : k.findings)
        text += fmt::format("{} at byte {}: {}\n", f.severity == ssd::Severity::kDamage ? "damage" : "note",
                            f.offset, f.what);
    const std::uint64_t left_out = k.damages + k.notes - k.findings.size();
    if (left_out != 0) text += fmt::format("... and {} more\n", left_out);
    text += fmt::format(
        "read {} in {:.3f} s: {} page records, {} pages of data, {} of the journal, {} lost; {} blocks hold "
        "data\n",
        format_bytes(k.bytes_read), k.seconds, format_count(k.records), format_count(k.data_pages),
        format_count(k.system_pages), format_count(k.lost_pages), format_count(k.blocks));
    const std::string damage = k.damages == 0 ? "no damage" : counted(k.damages, "damage");
    text += fmt::format("{}, {}\n", damage, k.notes == 0 ? "no notes" : counted(k.notes, "note"));
    return text;
}

Result<int> check(const Context& c, const std::string& path) {
    GN_ASSIGN(const std::unique_ptr<ssd::StoreView> view, ssd::StoreView::open(path));
    ssd::StoreCheck found;
    {
        ProgressLine progress(path, ssd::bytes_to_check(*view));
        found = ssd::check_store(*view, [&](std::uint64_t bytes) { progress.at(bytes); });
    }
    c.out.document(to_json(found));
    c.out.text(describe(found));
    if (found.damages == 0) return kOk;
    return c.out.fail(error(Errc::kCorrupt,
                            "the store {} is damaged in {}; blocks that are lost here can be read only from "
                            "replicas on other drives",
                            path, counted(found.damages, "place")));
}

struct RecoverOptions {
    std::string path;
    bool explain = false, dry_run = false, write = false, accept_loss = false;
};

std::string describe(const ssd::Recovered& r, const RecoverOptions& o, std::uint64_t flash_bytes) {
    const deengine::RecoveryReport& p = r.report;
    const double gib = static_cast<double>(flash_bytes) / (1u << 30);
    std::string text =
        fmt::format("{}: {}\n", o.path,
                    o.write ? "recovered and closed" : "what a recovery would do; nothing was written");
    text += p.checkpoint == 0 ? std::string("  began     with no checkpoint\n")
                              : fmt::format("  began     with checkpoint {}{}\n", p.checkpoint,
                                            p.spare_checkpoint ? ": the newest is damaged" : "");
    text += fmt::format(
        "  read      {} journal pages with {} records, {} erase units written after the journal, {} pages in "
        "all\n",
        format_count(p.journal_pages), format_count(p.log_records), format_count(p.units_young),
        format_count(p.pages_scanned));
    text += fmt::format("  found     {} blocks of {} volumes, {} trimmed ranges remembered\n",
                        format_count(r.mapped_blocks), p.volumes, format_count(p.tombstones));
    text += fmt::format("  dropped   {} torn pages, {} outdated pages, {} half-erased units, {} bad units\n",
                        format_count(p.pages_torn), format_count(p.pages_outdated),
                        format_count(p.units_half_erased), format_count(p.units_bad));
    text += fmt::format("  lost      {} blocks with an unreadable page, {} blocks whose page is missing\n",
                        format_count(p.pages_unreadable), format_count(p.blocks_lost));
    text += fmt::format("  in doubt  {} blocks, whose older versions are kept\n",
                        format_count(p.blocks_doubtful));
    if (p.records_lost != 0)
        text += fmt::format("            {} lost records, whose block addresses are not known\n",
                            format_count(p.records_lost));
    for (const auto& [volume, epoch] : p.volumes_in_doubt)
        text +=
            fmt::format("            and all blocks of volume {} that were written in epoch {} or earlier\n",
                        volume, epoch);
    text += fmt::format("  cost      {:.3f} s ({:.3f} s a GiB of flash), {} of memory ({} a GiB)\n",
                        r.seconds, r.seconds / gib, format_bytes(p.memory_bytes),
                        format_bytes(static_cast<std::uint64_t>(static_cast<double>(p.memory_bytes) / gib)));
    for (const std::string& lost : r.accepted_losses) text += "  gave up   " + lost + "\n";
    if (!o.explain) return text;
    for (const std::string& line : p.findings) text += "  - " + line + "\n";
    if (p.findings_left_out != 0) text += fmt::format("  - ... and {} more\n", p.findings_left_out);
    if (p.findings.empty() && r.accepted_losses.empty()) text += "  - nothing was dropped or repaired\n";
    return text;
}

Result<int> recover(const Context& c, const RecoverOptions& o) {
    std::uint64_t flash_bytes = 0;
    Result<ssd::Recovered> recovered = [&]() -> Result<ssd::Recovered> {
        GN_ASSIGN(const std::unique_ptr<ssd::StoreView> view, ssd::StoreView::open(o.path));
        flash_bytes = view->superblock().geometry().pages() * nvme::kBlockBytes;
        return ssd::recover_view(*view, o.accept_loss);
    }();
    // The store is recovered only if recovering a private view of it succeeded.
    if (recovered.ok() && o.write) recovered = ssd::recover_store(o.path, o.accept_loss);
    if (!recovered.ok()) return recovered.error();
    json document = to_json(recovered->report);
    document["path"] = o.path;
    document["written"] = o.write;
    document["seconds"] = recovered->seconds;
    document["blocks"] = recovered->mapped_blocks;
    document["flash_bytes"] = flash_bytes;
    document["accepted_losses"] = recovered->accepted_losses;
    c.out.document(document);
    c.out.text(describe(*recovered, o, flash_bytes));
    const std::uint64_t lost = recovered->report.blocks_lost + recovered->report.pages_unreadable;
    if (lost == 0) return kOk;
    return c.out.fail(error(Errc::kCorrupt,
                            "{} acknowledged blocks of the store {} cannot be read; they can be read only "
                            "from replicas on other drives",
                            lost, o.path));
}

}  // namespace

void add_check_commands(CLI::App& ssd, Context& context) {
    auto path = std::make_shared<std::string>();
    CLI::App* checking = ssd.add_subcommand("check", "read a whole store and report its damage");
    checking
        ->add_option("PATH", *path, "the store (a file or block device); no gnstord or node may have it open")
        ->required();
    checking->callback([&context, path] {
        context.action = [&context, path] { return finish(context, check(context, *path)); };
    });
    auto o = std::make_shared<RecoverOptions>();
    CLI::App* recovering =
        ssd.add_subcommand("recover", "show what a recovery finds and drops; writes nothing without --write");
    recovering
        ->add_option("PATH", o->path,
                     "the store (a file or block device); no gnstord or node may have it open")
        ->required();
    recovering->add_flag("--explain", o->explain,
                         "print a line with the reason for everything that is dropped or repaired");
    CLI::Option* dry = recovering->add_flag("--dry-run", o->dry_run, "write nothing (the default)");
    recovering->add_flag("--write", o->write, "recover the store on disk, and close it")->excludes(dry);
    recovering->add_flag(
        "--accept-loss", o->accept_loss,
        "recover even if blocks are lost whose addresses are not known, or from the older copy of the "
        "metadata, which undoes acknowledged changes made since; use it only if replicas hold the lost data");
    recovering->callback(
        [&context, o] { context.action = [&context, o] { return finish(context, recover(context, *o)); }; });
}

}  // namespace gnstor::cli
