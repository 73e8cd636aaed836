// rates.js: from counters of successive answers to rates, and what is kept of the last minutes. Pure: time is an
// argument.
//
// The counters of an SSD count since it was opened. If one of them goes back, the SSD was opened again meanwhile:
// that interval has no rate. Nor has one that begins or ends while the SSD cannot be asked.

export const KEPT_MS = 5 * 60 * 1000;
const BLOCK = 4096;
const COUNTERS = ["reads", "writes", "blocks_read", "blocks_written"];

/** The changes of COUNTERS a second, or null. */
export function rateOf(before, now, seconds) {
  if (!before || !now || !(seconds > 0)) return null;
  const rate = {};
  for (const name of COUNTERS) {
    if (!Number.isFinite(before[name]) || !Number.isFinite(now[name]) || now[name] < before[name]) return null;
    rate[name] = (now[name] - before[name]) / seconds;
  }
  return {
    reads: rate.reads,
    writes: rate.writes,
    bytesRead: rate.blocks_read * BLOCK,
    bytesWritten: rate.blocks_written * BLOCK,
  };
}

/** Rates of each SSD, and of all of the map together. */
export class SsdRates {
  before = new Map();  // of a UUID: {ms, counters}

  /** Returns {bySsd: Map of UUID to rate or null, sum: rate or null, missing: SSDs of the map without a rate}. */
  add(ms, ssds) {
    const bySsd = new Map(), now = new Map();
    let sum = null, missing = 0;
    for (const ssd of ssds) {
      const last = this.before.get(ssd.uuid);
      const counters = COUNTERS.every((name) => name in ssd.counters) ? ssd.counters : null;
      const rate = last && rateOf(last.counters, counters, (ms - last.ms) / 1000);
      bySsd.set(ssd.uuid, rate ?? null);
      if (counters) now.set(ssd.uuid, { ms, counters });
      if (ssd.slot === undefined) continue;  // a spare serves nobody
      if (!rate) {
        ++missing;
        continue;
      }
      sum ??= { reads: 0, writes: 0, bytesRead: 0, bytesWritten: 0 };
      for (const name of Object.keys(sum)) sum[name] += rate[name];
    }
    this.before = now;
    return { bySsd, sum, missing };
  }
}

/** Points of the last KEPT_MS: {ms, ...values}, oldest first. A value of null is a gap. */
export class History {
  points = [];

  add(point) {
    this.points.push(point);
    while (this.points[0].ms < point.ms - KEPT_MS) this.points.shift();
  }
}

/** How long a rebuild still takes, from its progress in the last minute. */
export class Estimate {
  static WINDOW_MS = 60 * 1000;
  slot = null;
  samples = [];

  /** Returns {perSecond, leftMs} of blocks, or null while that is not known. `rebuild`: of the status, or undefined. */
  add(ms, rebuild) {
    const newest = this.samples.at(-1);
    if (!rebuild || rebuild.slot !== this.slot || (newest && rebuild.blocks_done < newest.done) ||
        (newest && rebuild.blocks_total !== newest.total))
      this.samples = [];
    this.slot = rebuild ? rebuild.slot : null;
    if (!rebuild || rebuild.blocks_total === 0) return null;
    this.samples.push({ ms, done: rebuild.blocks_done, total: rebuild.blocks_total });
    while (this.samples[0].ms < ms - Estimate.WINDOW_MS) this.samples.shift();
    const first = this.samples[0];
    const done = rebuild.blocks_done - first.done;
    if (ms <= first.ms || done <= 0) return null;
    const perSecond = (done * 1000) / (ms - first.ms);
    return { perSecond, leftMs: ((rebuild.blocks_total - rebuild.blocks_done) * 1000) / perSecond };
  }
}
