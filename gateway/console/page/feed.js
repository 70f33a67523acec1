// The live state of all rooms: a stream of events or, from a gateway without one, a request a second.

import {absent, api, Refused, request} from './api.js';

const pollEvery = 1000;
const silence = 10000; // without an event for so long, the stream is opened again

// follow calls on.rooms, on.fleet, on.lost and on.refused until the returned function is called.
export function follow(on) {
  let stopped = false, abort = new AbortController(), timer;
  const wait = ms => new Promise(resolve => { timer = setTimeout(resolve, ms); });
  const live = () => !stopped;

  async function run() {
    let streams = true, failures = 0;
    while (live()) {
      try {
        if (streams) {
          await stream(on, abort = new AbortController(), () => { failures = 0; });
          if (live()) throw new Error('The stream ended.');
        } else {
          const {rooms} = await api('GET', 'rooms');
          if (!live()) return;
          failures = 0;
          on.rooms({at: new Date().toISOString(), rooms: rooms.map(fromList)});
          await wait(pollEvery);
        }
      } catch (e) {
        if (!live()) return;
        if (e instanceof Refused && streams && absent(e) && e.code !== 'unknown_host' && e.code !== 'cross_site') { streams = false; continue; }
        if (e instanceof Refused && (e.status === 401 || e.status === 403 || e.status === 429)) { on.refused(e); return; }
        failures++;
        if (failures > 1) on.lost(e); // one failure is a restart of the gateway or its balancer
        await wait(Math.min(5000, failures * 500));
      }
    }
  }
  run();
  return () => { stopped = true; clearTimeout(timer); abort.abort(); };
}

async function stream(on, abort, opened) {
  let watchdog;
  const awake = () => { clearTimeout(watchdog); watchdog = setTimeout(() => abort.abort(), silence); };
  awake();
  try {
    const r = await request('GET', 'stream', undefined, abort.signal);
    for await (const event of events(r.body)) {
      awake();
      opened();
      if (event.name === 'rooms') on.rooms(JSON.parse(event.data));
      if (event.name === 'fleet') on.fleet(JSON.parse(event.data).gateways);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

// events yields the events of a text/event-stream.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', name = '', data = [];
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (data.length) yield {name: name || 'message', data: data.join('\n')};
        name = '';
        data = [];
      } else if (line.startsWith('event:')) name = line.slice(6).trim();
      else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}

// fromList returns a room of GET rooms in the form that the stream has.
export function fromList(r) {
  const away = r.store_age_seconds === undefined || r.store_age_seconds > 5;
  const closed = r.policy.method === 'reject' || r.sold_out;
  const state = away ? 'store_away' : r.paused ? 'paused' : closed ? 'closed' : !r.policy.enabled || r.policy.method === 'passthrough' ? 'open'
    : r.lottery && !r.lottery.drawn ? 'waiting_to_open' : !r.waiting ? 'idle' : r.rate > 0 ? 'admitting' : 'not_admitting';
  return {
    id: r.id, state, reason: r.reason, waiting: r.waiting, parked: r.parked, admitted: r.admitted, inside: r.active,
    max_active: r.policy.max_active || undefined, limit: r.policy.rate, wanted: r.adaptive?.target, expected: r.budget?.expected,
    admitted_rate: r.rate, wait: r.eta, empty_at: undefined, paused: r.paused, draining: r.draining, message: r.policy.message,
    origin: {...r.origin, target_p95_seconds: r.adaptive?.target_p95_seconds}, store_age_seconds: r.store_age_seconds,
    version: JSON.stringify(r.live),
  };
}
