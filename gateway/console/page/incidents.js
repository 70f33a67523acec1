// What is wrong with a room, from what the gateways report, and the levers that help. No document here: tests call it as it is.

import * as words from './words.js';

const slow = 1;      // seconds of p95 that are slow where no target is configured
const failing = .05; // share of errors

// incidents returns the incidents of a room, the worst first: {id, level, title, evidence, actions}. An action opens a lever with a value, or steps to take elsewhere.
export function incidents(room, detail, fleet) {
  return [storeAway(room), otherKeys(fleet), ...alarms(room, detail), originSlow(room, detail), full(room), soldOut(room, detail), rateTooLow(room, detail), heldRamp(detail)].filter(Boolean);
}

function storeAway(r) {
  if (r.state !== 'store_away' && r.reason?.code !== 'store_away' && r.reason?.code !== 'store_unknown') return null;
  return {id: 'store-away', level: 'bad', title: 'The store is away',
    evidence: (r.store_age_seconds === undefined ? 'Never reached since the start.' : 'Last read ' + words.span(r.store_age_seconds) + ' ago.') +
      ' Passes keep working and nobody loses a place. Changes are refused until it is back.',
    actions: [{label: 'What to do', steps: {title: 'The store is away', runbook: 'anteroomstoredown', text: 'The console cannot bring it back. Nothing is lost while it is away.', list: [
      'Open the console of another gateway. If the store is there for it, repair network and DNS of this gateway, or restart it: it holds no places.',
      'Otherwise start the store of store.url again, with its data. Do not empty it. Disk full or maxmemory reached: free space.',
      'Leave the rate as it is: pause and every other change are refused until the store replies. Newcomers are served by on_store_error.',
      'Watch this page: the strip goes when the store replies. Admission starts by itself, after an outage of more than 5 s with a pause of 5 s.']}}]};
}

function otherKeys(fleet) {
  const odd = (fleet || []).filter(g => g.differs?.includes('keys'));
  if (!odd.length) return null;
  const hosts = odd.map(g => g.host || g.id).join(', '), mark = g => (g.keys || '–').slice(0, 6), most = fleet.find(g => !odd.includes(g));
  return {id: 'other-keys', level: 'bad', title: 'Another key on ' + hosts,
    evidence: 'It rejects the tokens of the other gateways: its visitors start again at the end of the queue. Give it the same tokens.keys, or take it out of the balancer.',
    actions: [{label: 'What to do', steps: {title: 'Other keys on ' + hosts, runbook: 'anteroomforgedtokens',
      text: 'Keys ' + odd.map(mark).join(', ') + ' there' + (most ? ', ' + mark(most) + ' on most gateways' : '') + '.', list: [
        'Take ' + hosts + ' out of the load balancer. Its visitors go on at the other gateways, with their places.',
        'Give it the tokens.keys of the others, and the same active key. gateway check-config --config FILE names faults before they are in force.',
        'Reload it with SIGHUP, or restart it. The strip goes when its keys are those of most gateways, within two seconds.',
        'Put it back into the balancer. Tell those who wait if many had to start again.']}}, {label: 'Tell them', lever: 'message'}]};
}

function originSlow(r, detail) {
  const o = r.origin || {}, target = o.target_p95_seconds, adaptive = detail?.adaptive;
  const late = o.p95_seconds > (target ? target * 1.5 : slow), bad = o.error_rate > (adaptive?.max_error_rate || failing);
  if (!late && !bad && r.reason?.code !== 'origin_unhealthy') return null;
  const limit = Math.min(r.limit, r.expected ?? r.limit), half = Math.max(.1, Math.round(limit * 5) / 10);
  return {id: 'origin-slow', level: 'bad', title: bad ? 'The origin fails' : 'The origin is slow',
    evidence: 'p95 ' + words.millis(o.p95_seconds ?? 0) + (target ? ', target ' + words.millis(target) : '') + ', errors ' + words.percent(o.error_rate ?? 0) +
      (o.in_flight === undefined ? '' : ', ' + words.count(o.in_flight) + ' in flight') + '.',
    actions: r.paused ? [] : [{label: 'Halve the rate', lever: 'rate', value: half}, {label: 'Pause', lever: 'pause'}]};
}

function full(r) {
  if (!r.max_active || !r.waiting || r.paused) return null;
  if (r.reason ? r.reason.code !== 'max_active' : r.inside + r.admitted < r.max_active) return null;
  return {id: 'max-active', level: 'warn', title: 'max_active is reached',
    evidence: words.count(r.inside) + ' inside of ' + words.count(r.max_active) + ', ' + words.rate(r.admitted_rate) + '/s admitted, ' + words.count(r.waiting) + ' wait.',
    actions: [{label: 'Raise max_active', lever: 'max_active', value: Math.ceil(r.max_active * 1.25)}, {label: 'Evacuate', lever: 'evacuate'}]};
}

function soldOut(r, detail) {
  const out = detail?.sold_out || detail?.facts?.sold_out || r.reason?.code === 'sold_out';
  if (!out) return null;
  const closed = r.state === 'closed';
  return {id: 'sold-out', level: closed ? 'warn' : 'bad', title: 'Sold out',
    evidence: closed ? 'The room is closed: those who wait see “sold out”.' : words.count(r.waiting) + ' wait for nothing: everything is sold out, and the room still admits.',
    actions: closed ? [{label: 'Tell them more', lever: 'message'}] : [{label: 'Close the room', lever: 'close'}, {label: 'Tell them', lever: 'message'}]};
}

function alarms(r, detail) {
  return (detail?.alarms || []).filter(a => a.state === 'fired').map(a => ({id: 'alarm', key: a.name, level: 'bad', title: 'Alarm ' + a.name,
    evidence: a.when + (a.value === undefined ? '' : ' ' + words.exact(a.value)) + ' is above ' + words.exact(a.above) + '. Done: ' + a.do + '.',
    actions: r.paused ? [{label: 'Resume', lever: 'resume'}] : [{label: 'Rate', lever: 'rate'}]}));
}

function heldRamp(detail) {
  const ramp = detail?.ramp;
  if (ramp?.state !== 'held') return null;
  return {id: 'ramp-held', level: 'warn', title: 'The ramp is held', evidence: 'At ' + words.exact(ramp.rate) + '/s: ' + ramp.reason + '.', actions: [{label: 'Ramp', lever: 'ramp'}]};
}

// patience is the wait from which a rate below what the origin can bear is an incident.
const patience = 600;

function rateTooLow(r, detail) {
  const limited = r.reason ? r.reason.code === 'rate' || r.reason.code === 'rate_zero' : r.state === 'admitting' && r.admitted_rate > r.limit * .8;
  const o = r.origin || {}, well = !(o.error_rate > failing / 2) && !(o.p95_seconds > (o.target_p95_seconds || slow) * .8);
  const room = !r.max_active || r.inside < r.max_active * .8;
  if (!limited || !well || !room || r.paused || !r.waiting || detail?.ramp?.state === 'running') return null;
  const wait = r.wait?.seconds ?? (r.limit > 0 ? r.waiting / r.limit : Infinity);
  if (wait < patience) return null;
  const needed = r.waiting / patience, value = r.limit > 0 ? Math.min(r.limit * 2, Math.max(r.limit * 1.2, needed)) : Math.max(1, Math.min(needed, 10));
  return {id: 'rate-low', level: 'warn', title: r.limit > 0 ? 'The rate is low' : 'The rate is 0',
    evidence: words.count(r.waiting) + ' wait' + (Number.isFinite(wait) ? ' up to ' + words.span(wait) : '') + ', and the origin is well: p95 ' + words.millis(o.p95_seconds ?? 0) +
      ', errors ' + words.percent(o.error_rate ?? 0) + '.',
    actions: [{label: 'Raise the rate', lever: 'rate', value: value < 10 ? Math.round(value * 10) / 10 : Math.round(value)}, {label: 'Ramp', lever: 'ramp'}]};
}
