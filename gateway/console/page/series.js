// The history of one room, as columns for the plots.

import {api, optional, roomPath} from './api.js';

export const ranges = [
  {name: '10 min', step: '1s', seconds: 600},
  {name: '24 h', step: '1m', seconds: 86400},
  {name: '30 days', step: '10m', seconds: 30 * 86400},
];

const most = 600; // seconds of live samples

// History holds the last ten minutes by second, and one longer range.
export class History {
  constructor(id) {
    this.id = id;
    this.at = [];
    this.columns = {};
    this.long = null; // {range, at, columns}
  }

  // load reads what the gateways have kept. Without that, the plots begin now.
  async load() {
    const kept = await optional('series', 'GET', roomPath(this.id, '/series?step=1s'));
    if (!kept) return;
    const live = this.at.map((at, i) => ({at, values: Object.fromEntries(Object.entries(this.columns).map(([name, c]) => [name, c[i]]))}));
    this.at = kept.at;
    this.columns = kept.series;
    for (const sample of live) this.add(sample.at, sample.values);
  }

  async loadLong(range) {
    if (range.seconds <= most) { this.long = null; return; }
    const kept = await optional('series', 'GET', roomPath(this.id, '/series?step=' + range.step));
    if (kept) this.long = {range, at: kept.at, columns: kept.series};
    else if (range.step === '1m') {
      const {buckets} = await api('GET', roomPath(this.id, '/history?minutes=1440'));
      this.long = {range, at: buckets.map(b => Math.round(Date.parse(b.at) / 1000)), columns: {
        waiting: buckets.map(b => b.waiting), limit: buckets.map(b => b.rate), admitted_rate: buckets.map(b => b.admissions / 60),
        join_rate: buckets.map(b => b.joins / 60), abandon_rate: buckets.map(b => b.abandoned / 60),
      }};
    }
  }

  // add adds the values of a second; a second that is there already is replaced.
  add(second, values) {
    const last = this.at.at(-1);
    if (last !== undefined && second < last) return;
    if (second !== last) this.at.push(second);
    const n = this.at.length;
    for (const name of new Set([...Object.keys(this.columns), ...Object.keys(values)])) {
      const column = this.columns[name] ??= [];
      while (column.length < n) column.push(null);
      column[n - 1] = values[name] ?? null;
    }
    if (n > most + 60) {
      this.at.splice(0, n - most);
      for (const column of Object.values(this.columns)) column.splice(0, column.length - most);
    }
  }

  // view returns times and columns of a range.
  view(range) {
    return this.long && this.long.range === range ? this.long : {at: this.at, columns: this.columns};
  }

  // recent returns a column of the last ten minutes.
  recent(name) {
    const column = this.columns[name];
    return column ? this.at.map((at, i) => [at, column[i] ?? null]) : [];
  }
}

// sample returns the values that a room of the stream adds to its history.
export function sample(r) {
  return {
    waiting: r.waiting, inside: r.inside, max_active: r.max_active, limit: r.limit, wanted: r.wanted, expected: r.expected,
    admitted_rate: r.admitted_rate, claimed_rate: r.claimed_rate, join_rate: r.join_rate, abandon_rate: r.abandon_rate,
    wait_seconds: r.wait?.seconds, wait_low_seconds: r.wait?.low, wait_high_seconds: r.wait?.high, abandonment: r.abandonment,
    origin_p95_seconds: r.origin?.p95_seconds, origin_error_rate: r.origin?.error_rate, origin_in_flight: r.origin?.in_flight, reason: r.reason?.code,
  };
}
