// sections.js: the sections of the page, each from what gnstord says. What is not known is shown as a dash, and
// what is missing is said.
import { byId, element, row, setAttribute, setCells, setClass, setFill, setText, show, sync } from "./elements.js";
import { NONE, bytes, count, duration, megabytes, percent, percentText, plural, throughput, when } from "./format.js";

/** Of the states of SSDs: how they are coloured. */
const KINDS = { in: "good", rebuilding: "busy", joining: "busy", out: "warn", stale: "bad", down: "bad", missing: "bad", spare: "idle" };
// As GNS_NEARFULL and GNS_FULL.
const NEARLY_FULL = 85, FULL = 95;
const VOLUMES_SHOWN = 500;  // a page with all of many thousand would be slow

const kindOf = (ssd) => (ssd.slot !== undefined && ssd.state === "in" && !ssd.serves ? "bad" : KINDS[ssd.state] ?? "warn");
const kindOfUse = (value) => (value >= FULL ? "bad" : value >= NEARLY_FULL ? "warn" : "");
/** "in" of the map, but silent, is not what a reader takes for "in". */
const stateOf = (ssd) => (ssd.slot !== undefined && ssd.state === "in" && !ssd.serves ? "in, silent" : ssd.state);
const usedOf = (ssd) => (ssd.used_bytes === undefined ? null : percent(ssd.used_bytes, ssd.capacity_bytes));

/** Says why a section has no data, or nothing; returns whether it has. */
export function admit(name, answer) {
  const node = byId(`${name}-refused`);
  show(node, answer.data === undefined);
  if (answer.data === undefined) setText(node, `gnstord refuses this: ${answer.message}`);
  return answer.data !== undefined;
}

export function showHealth(health, status) {
  const findings = health?.findings ?? [];
  show(byId("health-line"), health !== undefined);
  if (health) setText(byId("health-line"), findings.length === 0 ? "Every SSD of the map serves. Nothing is to be done." : plural(findings.length, "finding") + ":");
  sync(byId("findings"), findings, (f) => f.code, makeFinding, updateFinding);
  // A client is not told the findings, and yet has to know these two.
  const instead = health ? [] : [status.superseded, status.read_only].filter((text) => text !== "");
  const warnings = [...instead, ...status.warnings];
  show(byId("warnings"), warnings.length > 0);
  setText(byId("warnings").firstElementChild, `${plural(warnings.length, "warning")} of gnstord`);
  sync(byId("warnings").lastElementChild, warnings.map((text, i) => ({ text, i })), (w) => w.i, () => element("li"), (li, w) => setText(li, w.text));
}

function makeFinding() {
  return element("li", { class: "finding" },
    element("p", { class: "what" }, element("code"), " ", element("span")),
    element("dl", {}, element("dt", {}, "It means"), element("dd"), element("dt", {}, "To do"), element("dd")),
    element("details", {}, element("summary"), element("ul")));
}

function updateFinding(li, finding) {
  setClass(li, `finding ${finding.severity === "error" ? "bad" : "warn"}`);
  const [what, texts, details] = li.children;
  setText(what.firstElementChild, finding.code);
  setText(what.lastElementChild, `${finding.severity}: ${finding.summary}`);
  setText(texts.children[1], finding.meaning);
  setText(texts.children[3], finding.action);
  show(details, finding.details.length > 0);
  setText(details.firstElementChild, plural(finding.details.length, "detail"));
  sync(details.lastElementChild, finding.details.map((text, i) => ({ text, i })), (d) => d.i, () => element("li"), (node, d) => setText(node, d.text));
}

/** `worst`: ok, warning or error; null: nothing is known. */
export function showPill(worst, stale) {
  const pill = byId("pill");
  setClass(pill, `pill ${stale || !worst ? "idle" : { ok: "good", warning: "warn", error: "bad" }[worst] ?? "warn"}`);
  setText(pill, !worst ? "no data" : stale ? `stale (was ${worst})` : worst);
}

/** The row of figures below the health. */
export function showFigures(view) {
  const { status, ssds, volumes, capacity, rate } = view;
  const slots = ssds?.filter((ssd) => ssd.slot !== undefined);
  const serving = slots?.filter((ssd) => ssd.serves).length;
  const used = slots && slots.every((ssd) => ssd.used_bytes !== undefined) ? slots.reduce((sum, ssd) => sum + ssd.used_bytes, 0) : undefined;
  const room = capacity?.room.find((one) => one.replicas === 2) ?? capacity?.room.at(-1);
  const figures = [
    ["SSDs that serve", slots ? `${serving} of ${slots.length}` : NONE, ssds ? plural(ssds.length - slots.length, "spare") : ""],
    ["Used", used === undefined ? NONE : bytes(used), slots ? `of ${bytes(status.capacity_bytes)} raw` : ""],
    [`Room, ${plural(room?.replicas ?? 2, "replica")}`, bytes(room?.bytes), `${bytes(status.provisioned_bytes)} provisioned`],
    ["Volumes", volumes ? String(volumes.length) : NONE, `${status.leases.length} open for writing`],
    ["Reads", rate ? `${count(rate.reads)}/s` : NONE, rate ? throughput(rate.bytesRead) : ""],
    ["Writes", rate ? `${count(rate.writes)}/s` : NONE, rate ? throughput(rate.bytesWritten) : ""],
  ];
  sync(byId("figures"), figures, (f) => f[0].split(",")[0], () => element("div", {}, element("dt"), element("dd"), element("dd", { class: "muted" })),
    (node, figure) => figure.forEach((text, i) => setText(node.children[i], text)));
}

export function showSsds(ssds, rates) {
  const slots = ssds.filter((ssd) => ssd.slot !== undefined);
  const ordered = [...slots].sort((a, b) => a.slot - b.slot).concat(ssds.filter((ssd) => ssd.slot === undefined));
  const nodes = new Map();
  for (const ssd of ordered) {
    const name = ssd.nic_address || "no address";
    if (!nodes.has(name)) nodes.set(name, []);
    nodes.get(name).push(ssd);
  }
  const spares = ssds.length - slots.length;
  setText(byId("array-sum"), `${plural(slots.length, "slot")}, ${plural(nodes.size, "node")}${spares ? `, ${plural(spares, "spare")}` : ""}`);
  sync(byId("nodes"), [...nodes], ([name]) => name, () => element("li", {}, element("span", { class: "node-name" }), element("ul")), updateNode);
  const columns = ["n", "", "", "", "n", "", "n", "n", "n"];
  const key = (ssd) => ssd.slot ?? ssd.uuid;
  const rows = ordered.flatMap((ssd) => (ssd.trouble ? [{ ssd }, { ssd, isTrouble: true }] : [{ ssd }]));
  sync(byId("ssds").tBodies[0], rows, (one) => `${key(one.ssd)}${one.isTrouble ? " trouble" : ""}`,
    (one) => (one.isTrouble ? element("tr", { class: "more" }, element("td"), element("td", { colspan: String(columns.length - 1) })) : makeSsd(columns)),
    (tr, { ssd, isTrouble }) => (isTrouble ? setText(tr.lastElementChild, ssd.trouble) : updateSsd(tr, ssd, rates.get(ssd.uuid))));
}

function updateNode(li, [name, ssds]) {
  setText(li.firstElementChild, name);
  sync(li.lastElementChild, ssds, (ssd) => ssd.slot ?? ssd.uuid,
    () => element("li", {}, element("span"), element("span", { class: "bar" }, element("span", { class: "fill" }))), (tile, ssd) => {
      const used = usedOf(ssd);
      setClass(tile, `tile ${kindOf(ssd)}`);
      setText(tile.firstElementChild, ssd.slot === undefined ? "S" : String(ssd.slot));
      setFill(tile.lastElementChild, used ?? 0, kindOfUse(used));
      setAttribute(tile, "title", `${ssd.slot === undefined ? "spare" : `slot ${ssd.slot}: ${stateOf(ssd)}`}${used === null ? "" : `, ${percentText(used)} used`}${ssd.trouble ? `; ${ssd.trouble}` : ""}`);
    });
}

function makeSsd(columns) {
  const tr = row(columns);
  tr.children[1].append(element("span", { class: "state" }));
  tr.children[2].className = "mono";
  tr.children[5].className = "used";
  tr.children[5].append(element("span", { class: "bar" }, element("span", { class: "fill" })), element("span", { class: "use" }));
  return tr;
}

function updateSsd(tr, ssd, rate) {
  setCells(tr, [ssd.slot === undefined ? "spare" : String(ssd.slot), null, ssd.serial || ssd.uuid, ssd.nic_address || NONE,
    ssd.domain === undefined ? NONE : String(ssd.domain), null, rate ? count(rate.reads) : NONE, rate ? count(rate.writes) : NONE,
    rate ? megabytes(rate.bytesRead + rate.bytesWritten) : NONE]);
  setAttribute(tr.children[2], "title", `UUID ${ssd.uuid}${ssd.firmware ? `, version ${ssd.firmware}` : ""}`);
  const state = tr.children[1].firstElementChild;
  setClass(state, `state ${kindOf(ssd)}`);
  setText(state, stateOf(ssd));
  const used = usedOf(ssd), [bar, use] = tr.children[5].children;
  setFill(bar, used ?? 0, kindOfUse(used));
  setText(use, `${bytes(ssd.used_bytes)} of ${bytes(ssd.capacity_bytes)}`);
}

export function showRebuild(rebuild, estimate, ssds) {
  const waiting = (ssds ?? []).filter((ssd) => ssd.state === "rebuilding" && ssd.slot !== rebuild?.slot).map((ssd) => ssd.slot);
  const also = waiting.length ? `Slots that wait to be filled: ${waiting.join(", ")}.` : "";
  const bar = byId("rebuild-bar");
  show(bar, rebuild !== undefined);
  show(byId("rebuild-more"), rebuild !== undefined);
  if (!rebuild) {
    setText(byId("rebuild-line"), waiting.length ? also : "No slot is being filled.");
    return;
  }
  const done = percent(rebuild.blocks_done, rebuild.blocks_total);
  const left = rebuild.blocks_total === 0 ? "the copy has not begun" : estimate ? `about ${duration(estimate.leftMs)} left` : "time left: not known yet";
  setText(byId("rebuild-line"), `Slot ${rebuild.slot} is being filled from the other replicas: ${percentText(done)}, ${left}`);
  setFill(bar, done, rebuild.ranges_stuck > 0 ? "bad" : "busy");
  setAttribute(bar, "aria-valuenow", String(Math.floor(done)));
  const stuck = rebuild.ranges_stuck > 0 ? ` ${plural(rebuild.ranges_stuck, "range")} cannot be copied yet, and will be tried again.` : "";
  const refusal = rebuild.refusal ? ` Last refusal: ${rebuild.refusal}.` : "";
  const speed = estimate ? `, ${count(estimate.perSecond)} a second` : "";
  setText(byId("rebuild-more"), `${count(rebuild.blocks_done)} of ${count(rebuild.blocks_total)} blocks compared or copied${speed}.${stuck}${refusal} ${also}`);
}

export function showCapacity(capacity) {
  const used = capacity.used_bytes, share = percent(used ?? 0, capacity.capacity_bytes);
  setText(byId("capacity-line"), used === undefined
    ? `${bytes(capacity.capacity_bytes)} raw. How much is used is not known: an SSD cannot be asked now.`
    : `${bytes(used)} of ${bytes(capacity.capacity_bytes)} raw are used (${percentText(share)}); volumes may grow to ${bytes(capacity.provisioned_bytes)} with their replicas.`);
  const bar = byId("capacity-bar");
  setFill(bar, share, kindOfUse(share));
  setAttribute(bar, "aria-label", `${percentText(share)} used`);
  const of = (list, replicas) => bytes(list.find((one) => one.replicas === replicas)?.bytes);
  const replicas = [...new Set([...capacity.usable, ...capacity.room].map((one) => one.replicas))].sort();
  sync(byId("capacity").tBodies[0], replicas, (n) => n, () => row(["", "n", "n"]),
    (tr, n) => setCells(tr, [plural(n, "replica"), of(capacity.usable, n), of(capacity.room, n)]));
  const gap = capacity.usable.length === 0 ? "The capacity of an SSD is not known: it was not found when gnstord started. "
    : capacity.room.length === 0 ? "The room is not known: an SSD cannot be asked now. " : "";
  setText(byId("capacity-gap"), `${gap}Room: until the first SSD is full.`);
}

export function showVolumes(volumes, status, clients) {
  const names = new Map((clients ?? []).map((client) => [client.id, client.name]));
  const nameOf = (id) => names.get(id) || `client ${id}`;
  const leases = new Map(status.leases.map((lease) => [lease.volume, lease]));
  const byName = [...volumes].sort((a, b) => a.name.localeCompare(b.name));
  const shown = new Set([...byName.filter((v) => leases.has(v.id)), ...byName].slice(0, VOLUMES_SHOWN));
  const ordered = byName.filter((v) => shown.has(v));
  const leftOut = volumes.length > ordered.length ? `; ${ordered.length} of them are listed` : "";
  setText(byId("volumes-sum"), `${volumes.length}, ${status.leases.length} open for writing${leftOut}`);
  sync(byId("volumes").tBodies[0], ordered, (v) => v.id, () => row(["name", "n", "n", "n", "", "", "", "n"]), (tr, volume) => {
    const lease = leases.get(volume.id);
    const writer = lease ? lease.client_name || nameOf(lease.client) : volume.any_writer ? "any client may" : NONE;
    const readers = volume.world_readable ? "all clients" : volume.readers.map(nameOf).join(", ") || NONE;
    setCells(tr, [volume.name, bytes(volume.capacity_bytes), bytes(volume.byte_length), String(volume.replicas),
      volume.owner_name || nameOf(volume.owner), readers, writer, lease ? duration(lease.remaining_ms) : NONE]);
    setClass(tr.children[6], lease ? "strong" : "muted");
    setAttribute(tr.children[0], "title", `VID ${volume.id}, epoch ${volume.epoch}, chunks of ${bytes(volume.chunk_bytes)}`);
  });
}

const KINDS_OF_EVENTS = { SSD_SILENT: "bad", SSD_OUT: "warn", SSD_BACK: "good", SSD_FILLED: "good", SSD_REPLACED: "busy", LEASE_EXPIRED: "warn", HEALTH_FOUND: "warn", HEALTH_GONE: "good" };

/** `events`: newest first. */
export function showEvents(events, started) {
  const now = new Date();
  setText(byId("events-sum"), `since gnstord started, ${when(new Date(started), now)}`);
  sync(byId("events").tBodies[0], events, (event) => event.number, () => row(["time", "mono", ""]), (tr, event) => {
    setCells(tr, [when(new Date(event.time), now), event.code, event.text]);
    setClass(tr.children[1], `mono ${KINDS_OF_EVENTS[event.code] ?? ""}`);
    setAttribute(tr.children[0], "title", event.time);
  });
}
