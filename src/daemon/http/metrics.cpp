#include "daemon/http/metrics.hpp"

#include "daemon/decisions/health.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

namespace gnstor::daemon {
namespace {

/// Help text of an SSD's counter.
const char* help_of(const std::string& counter) {
    static const std::map<std::string, const char*> kHelp = {
        {"reads", "Read commands that the SSD carried out."},
        {"writes", "Write commands."},
        {"flushes", "FLUSH commands."},
        {"trims", "Dataset management commands."},
        {"write_zeroes", "Write Zeroes commands."},
        {"refused", "Commands refused for permission, placement, map or epoch; some refusals are normal."},
        {"media_errors", "Reads that met a page which fails its checksums."},
        {"blocks_read", "Blocks of 4 KiB read by commands."},
        {"blocks_written", "Blocks of 4 KiB written by commands."},
        {"pages_programmed", "Flash pages programmed, for all reasons together."},
        {"gc_pages_copied", "Flash pages copied by garbage collection."},
        {"syncs", "Times that the SSD made its flash stable."},
        {"scrubbed_pages", "Flash pages read by the scrub."},
        {"scrub_bad_pages", "Flash pages that the scrub found bad."},
        {"bad_units", "Erase units taken out of use."},
        {"lost_blocks", "Blocks that recovery could not find whole."},
        {"doubtful_blocks", "Blocks whose newest version may be torn: they are read from another replica."},
        {"doubtful_volumes",
         "Volumes whose older blocks are all in doubt because records are lost; each service unit counts its "
         "own."},
        {"doubtful_reads", "Blocks read that were answered Doubtful."},
        {"young_units", "Service units with pages that a power cut could still put in doubt."},
        {"older_reads", "Blocks in doubt on every replica, read as their older version."},
        {"capsules", "Commands that arrived at the SSD's target, of all kinds."},
        {"connections_accepted", "Connections (admin and I/O queues) that the SSD's target took."},
        {"connections_refused",
         "Connections rejected before Connect: the request cannot be granted, or resources are missing."},
        {"connections_failed", "Connections ended after a protocol violation or a timeout."},
        {"connections_disconnected", "Connections closed normally, mostly by their hosts."},
        {"keep_alive_expired", "Controllers whose hosts exceeded their keep-alive timeout."},
    };
    const auto found = kHelp.find(counter);
    return found == kHelp.end() ? "Counter of the SSD since it was opened." : found->second;
}

}  // namespace

std::string prometheus_text(const ArrayInfo& info, const RequestCounts& counts) {
    PrometheusText text;
    text.one("gnstor_term", "gauge", "Term of this daemon.", info.term);
    text.one("gnstor_map_version", "gauge", "Version of the array map.", info.map_version);
    text.one("gnstor_map_in_force", "gauge", "1 when every SSD has the map.", info.map_in_force ? 1 : 0);
    text.one("gnstor_volumes", "gauge", "Volumes.", info.volumes);
    text.one("gnstor_clients", "gauge", "Registered clients.",
             static_cast<std::size_t>(std::ranges::count(info.clients, false, &ClientInfo::removed)));
    text.one("gnstor_leases", "gauge", "Volumes open for writing.", info.leases.size());
    text.one("gnstor_pending_changes", "gauge", "Changes that wait for an SSD.", info.pending_changes);
    text.one("gnstor_capacity_bytes", "gauge", "User bytes of all SSDs in slots.",
             info.capacity_blocks * 4096);
    text.one("gnstor_provisioned_bytes", "gauge", "Capacity of all volumes times replicas.",
             info.provisioned_blocks * 4096);
    text.family("gnstor_health", "gauge", "1 for each code that 'gnstor health' reports now, otherwise 0.");
    const std::vector<HealthFinding> findings = health_of(info);
    for (const HealthCode& code : health_codes())
        text.sample("gnstor_health",
                    fmt::format("code=\"{}\",severity=\"{}\"", code.name, name_of(code.severity)),
                    std::ranges::count(findings, &code, &HealthFinding::code));
    text.one("gnstor_scrub_blocks_compared_total", "counter",
             "Blocks of volumes whose replicas the scrub has compared.", info.scrub.blocks_compared);
    text.one("gnstor_scrub_blocks_mended_total", "counter",
             "Blocks that the scrub has put again on an SSD that could not read them.",
             info.scrub.blocks_mended);
    text.family("gnstor_ssd_used_bytes", "gauge", "Bytes of blocks that hold data, of an SSD that answers.");
    for (const SsdInfo& ssd : info.ssds)
        if (ssd.used_blocks)
            text.sample("gnstor_ssd_used_bytes",
                        fmt::format("slot=\"{}\",uuid=\"{}\"", ssd.slot, PrometheusText::label(ssd.uuid)),
                        *ssd.used_blocks * 4096);
    std::set<std::string> names;
    text.family("gnstor_ssd_up", "gauge",
                "1 for an SSD that is present and carried out the last command of gnstord.");
    for (const SsdInfo& ssd : info.ssds) {
        const std::string slot = ssd.slot == kSpareSlot ? "spare" : fmt::format("{}", ssd.slot);
        text.sample("gnstor_ssd_up",
                    fmt::format("slot=\"{}\",uuid=\"{}\",state=\"{}\"", slot, PrometheusText::label(ssd.uuid),
                                PrometheusText::label(ssd.state)),
                    ssd.trouble.empty() ? 1 : 0);
        for (const auto& [name, value] : ssd.counters) names.insert(name);
    }
    for (const std::string& name : names) {
        const std::string metric = fmt::format("gnstor_ssd_{}_total", name);
        text.family(metric.c_str(), "counter", help_of(name));
        for (const SsdInfo& ssd : info.ssds)
            for (const auto& [counter, value] : ssd.counters)
                if (counter == name)
                    text.sample(
                        metric,
                        fmt::format("slot=\"{}\",uuid=\"{}\"", ssd.slot, PrometheusText::label(ssd.uuid)),
                        value);
    }
    text.of_the_process("gnstord", counts);
    return text.take();
}

}  // namespace gnstor::daemon
