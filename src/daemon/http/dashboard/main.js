// main.js: asks gnstord every two seconds, one request at a time, and shows the answers. Owns what the page
// knows: the last answers, the rates of the last minutes, the events, and since when gnstord has been silent.
import { Chart } from "./chart.js";
import { byId, setText, show } from "./elements.js";
import { duration, plural, throughput, count, timeOfDay } from "./format.js";
import { Estimate, History, SsdRates } from "./rates.js";
import { ask, hasToken, isToken, setToken } from "./requests.js";
import * as sections from "./sections.js";

const EVERY_MS = 2000;
const SELDOM = 5;  // what costs gnstord more, or rarely changes, is asked for in every fifth round, and after changes
const SILENT_MS = 3 * EVERY_MS;  // a request under way for so long counts as silence
const EVENTS_SHOWN = 200;

const fresh = () => ({ view: {}, rates: new SsdRates(), history: new History(), estimate: new Estimate(), events: [], lastEvent: 0, started: "", basis: "", round: 0 });
let known = fresh();
let answered = null;  // Date of the last answer of any kind
let shownFrom = null;  // Date of the figures on the page
let unanswered = false;  // the last request was not answered
let refusal = null;  // what gnstord refused the last request with; null: it did not
let forced = false;  // the form for the token was opened because gnstord takes one
let changes = 0;  // of the token; an answer to a request with an earlier one is dropped

const charts = [
  new Chart("Commands", [{ name: "reads", kind: "a", read: (p) => p.reads }, { name: "writes", kind: "b", read: (p) => p.writes }], (v) => `${count(v)}/s`, 10),
  new Chart("Throughput", [{ name: "read", kind: "a", read: (p) => p.bytesRead }, { name: "written", kind: "b", read: (p) => p.bytesWritten }], throughput, 1e6),
  new Chart("Answers of gnstord to this page", [{ name: "time", kind: "c", read: (p) => p.answerMs }], (v) => (v < 10 ? `${Number(v.toPrecision(2))} ms` : `${Math.round(v)} ms`), 5),
];
byId("charts").append(...charts.map((chart) => chart.node));

const drawCharts = () => charts.forEach((chart) => chart.draw(known.history.points, performance.now()));

function takeEvents(page) {
  // Numbers begin again when gnstord does.
  if (page.started !== known.started || page.last < known.lastEvent) {
    const again = known.started !== "";
    Object.assign(known, { events: [], lastEvent: 0, started: page.started });
    if (again && page.first !== page.events[0]?.number) return;  // the next round asks for all of them
  }
  known.events = [...page.events.filter((event) => event.number > known.lastEvent).reverse(), ...known.events].slice(0, EVENTS_SHOWN);
  known.lastEvent = page.last;
}

/** Whether it is the turn of what is asked for seldom, or that may have changed. */
function isTimeForAll({ status, ssds }) {
  const { term, map_version, map_in_force, volumes, clients, provisioned_bytes } = status.data;
  const asked = ssds.data?.ssds.filter((ssd) => ssd.used_bytes !== undefined).length;
  const basis = [term, map_version, map_in_force, volumes, clients, provisioned_bytes, asked].join();
  const changed = basis !== known.basis;
  known.basis = basis;
  return changed || known.round % SELDOM === 0;
}

/** Of one round: answers by name, or the first one that ends it. */
async function askAll() {
  const queries = { events: `?since=${known.lastEvent}` };
  const answers = {};
  for (const name of ["status", "ssds", "health", "events", "volumes", "clients", "capacity"]) {
    if (name === "clients" && !isTimeForAll(answers)) break;
    const began = performance.now();
    const answer = await ask(name, queries[name]);
    answer.ms = performance.now();
    answer.took = answer.ms - began;
    if (answer.failure !== "silent") answered = new Date();
    if (answer.failure === "silent" || answer.failure === "token") return { ended: answer };
    if (name === "status" && answer.failure) return { ended: answer };
    answers[name] = answer;
  }
  return { answers };
}

function take(answers) {
  const { view } = known;
  for (const [name, answer] of Object.entries(answers)) view[name] = answer;
  const { status, ssds } = answers;
  const rates = ssds.data ? known.rates.add(ssds.ms, ssds.data.ssds) : { bySsd: new Map(), sum: null, missing: 0 };
  view.rates = rates;
  view.left = known.estimate.add(status.ms, status.data.rebuild);
  const sum = rates.sum ?? { reads: null, writes: null, bytesRead: null, bytesWritten: null };
  known.history.add({ ms: status.ms, ...sum, answerMs: status.took });
  if (answers.events.data) takeEvents(answers.events.data);
  ++known.round;
}

function showAll() {
  const { view } = known;
  const status = view.status.data;
  sections.admit("health", view.health);
  sections.showHealth(view.health.data, status);
  if (sections.admit("ssds", view.ssds)) sections.showSsds(view.ssds.data.ssds, view.rates.bySsd);
  if (sections.admit("volumes", view.volumes)) sections.showVolumes(view.volumes.data.volumes, status, view.clients.data?.clients);
  if (sections.admit("capacity", view.capacity)) sections.showCapacity(view.capacity.data);
  if (sections.admit("events", view.events)) sections.showEvents(known.events, known.started);
  sections.showRebuild(status.rebuild, view.left, view.ssds.data?.ssds);
  sections.showFigures({ status, ssds: view.ssds.data?.ssds, volumes: view.volumes.data?.volumes, capacity: view.capacity.data, rate: view.rates.sum });
  const missing = view.rates.missing;
  show(byId("traffic-gap"), known.round > 1 && missing > 0);
  setText(byId("traffic-gap"), `Not counted in the newest interval: ${plural(missing, "SSD")}, silent or opened again.`);
  setText(byId("identity"), `term ${status.term}, map ${status.map_version}${status.map_in_force ? "" : " (not in force everywhere)"}${status.pending_changes ? `, ${plural(status.pending_changes, "change")} pending` : ""}`);
  setText(byId("version"), `gnstord ${status.version}.`);
  drawCharts();
}

/** Drops all that gnstord has said, also from the page: who is refused sees no data. */
function forget() {
  known = fresh();
  shownFrom = null;
  for (const list of document.querySelectorAll("#data tbody, #findings, #nodes, #figures, #warnings ul")) list.replaceChildren();
  for (const text of document.querySelectorAll("#data p[id], #data h2 span, #identity, #version, #updated")) setText(text, "");
  for (const fill of document.querySelectorAll("#data .bar > .fill")) fill.style.width = "0";
  byId("capacity-bar").removeAttribute("aria-label");
  charts.forEach((chart) => chart.draw([], performance.now()));
}

/** What is not as usual: no answer yet, refused, silent. */
function showNotices() {
  const now = new Date();
  const silent = unanswered || (answered !== null && now - answered > SILENT_MS);
  const stale = silent || (refusal !== null && shownFrom !== null);
  show(byId("asking"), answered === null && !silent && refusal === null);
  show(byId("refused"), refusal !== null);
  if (refusal !== null) setText(byId("refused"), refusal);
  show(byId("stale"), silent);
  if (silent) {
    setText(byId("stale-what"), answered ? `gnstord has not answered since ${timeOfDay(answered)}.` : "gnstord does not answer.");
    setText(byId("stale-for"), answered ? `(${duration(now - answered)})` : "");
    setText(byId("stale-then"), shownFrom ? `All figures are from ${timeOfDay(shownFrom)}; running kernels go on without gnstord. See gnstord.log, and start it with gnstor up.`
      : "Is it running? See gnstord.log, and start it with gnstor up.");
  }
  byId("data").classList.toggle("stale", stale);
  show(byId("data"), shownFrom !== null);
  // The findings were asked for last, and a client is not told them.
  const { health, status } = known.view;
  sections.showPill(shownFrom ? health.data?.status ?? status.data.health : null, stale);
  setText(byId("updated"), shownFrom ? `updated ${timeOfDay(shownFrom)}` : "");
}

function showForm(yes) {
  forced = false;
  show(byId("token-form"), yes);
  byId("token-button").setAttribute("aria-expanded", String(yes));
}

function takeEnd(ended) {
  if (ended.failure === "silent") {
    unanswered = true;
    known.history.add({ ms: performance.now(), reads: null, writes: null, bytesRead: null, bytesWritten: null, answerMs: null });
    return;
  }
  unanswered = false;
  refusal = ended.message;
  if (ended.failure !== "token") return;
  refusal = hasToken() ? "gnstord refuses this token. Copy gnstord.token from its folder again, or ask the administrator of the array for another one."
    : "gnstord takes a token here. Enter the contents of gnstord.token, which is in its folder on the machine that runs it.";
  forget();
  if (byId("token-form").hidden) {
    showForm(true);
    byId("token").focus();
  }
  forced = true;
}

async function round() {
  const asked = changes;
  const { answers, ended } = await askAll();
  if (asked !== changes) return;
  if (ended) {
    takeEnd(ended);
  } else {
    shownFrom = answered;
    unanswered = false;
    if (forced) showForm(false);
    refusal = null;
    show(byId("data"), true);  // before it is filled: charts ask for their width
    take(answers);
    showAll();
  }
  showNotices();
}

let timer = 0, running = false, again = false;

async function poll() {
  clearTimeout(timer);
  again = running;
  if (running) return;
  running = true;
  try {
    await round();
  } finally {
    running = false;
    timer = setTimeout(poll, again ? 0 : EVERY_MS);
  }
}

function useToken(text) {
  ++changes;
  setToken(text);
  byId("token").value = "";
  setText(byId("token-trouble"), "");
  forget();
  refusal = null;
  showNotices();
  poll();
}

byId("token-button").addEventListener("click", () => {
  showForm(byId("token-form").hidden);
  if (!byId("token-form").hidden) byId("token").focus();
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("token").value.trim();
  if (isToken(text)) useToken(text);
  else setText(byId("token-trouble"), "This is no token: a token has 16 to 256 letters, digits and characters of -._~+/=");
});
byId("token-forget").addEventListener("click", () => useToken(""));
addEventListener("resize", drawCharts);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();  // browsers slow the timers of hidden pages down
});
setText(byId("place"), location.host);
setInterval(() => showNotices(), 1000);
poll();
