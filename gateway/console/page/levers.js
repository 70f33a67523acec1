// The levers of a room. Each shows its effect before it acts.

import {api, isMissing, optional, Refused, roomPath} from './api.js';
import {choice, field, input, open} from './dialog.js';
import {make} from './dom.js';
import {may} from './person.js';
import * as words from './words.js';

// context: {room: of the stream, detail: of GET rooms/{id}, changed: called after a change}
const levers = {
  pause: {label: 'Pause', key: 'p', hidden: r => r.paused, open(c) {
    open({title: 'Pause ' + c.room.id, text: 'Admits nobody. Visitors still join the queue, sessions go on.', effect: () => effects(c, {pause: true}),
      label: 'Pause', act: () => act(c, 'POST', '/pause', undefined, 'Paused.')});
  }},
  resume: {label: 'Resume', key: 'p', hidden: r => !r.paused && !r.draining, open(c) {
    open({title: 'Resume ' + c.room.id, text: 'Ends the pause or drain.', effect: () => effects(c, {pause: false}),
      label: 'Resume', act: () => act(c, 'POST', '/resume', undefined, 'Resumed.')});
  }},
  rate: {label: 'Rate', key: 'r', open(c, value) {
    const now = c.detail.policy.rate;
    open({title: 'Rate of ' + c.room.id, fields: [field('rate', 'Visitors a second', input({inputMode: 'decimal', value: String(value ?? now)}),
      'Now ' + words.exact(now) + '/s, admitted ' + words.rate(c.room.admitted_rate) + '/s.')],
      ready: f => number(f.rate.value), effect: f => number(f.rate.value) ? effects(c, {rate: Number(f.rate.value)}) : [],
      label: 'Apply', act: f => patch(c, {rate: Number(f.rate.value)}, 'The rate is ' + f.rate.value.trim() + '/s.'), also: toFile(c, 'rate')});
  }},
  max_active: {label: 'Max active', open(c, value) {
    const now = c.detail.policy.max_active;
    open({title: 'Max active of ' + c.room.id, fields: [field('max_active', 'Sessions at one time, 0 for no limit', input({inputMode: 'numeric', value: String(value ?? now)}),
      words.count(c.room.inside) + ' inside now' + (now ? ', limit ' + words.count(now) + '.' : ', no limit.'))],
      ready: f => /^\d+$/.test(f.max_active.value.trim()), effect: f => /^\d+$/.test(f.max_active.value.trim()) ? effects(c, {max_active: Number(f.max_active.value)}) : [],
      label: 'Apply', act: f => patch(c, {max_active: Number(f.max_active.value)}, 'max_active is ' + f.max_active.value.trim() + '.'), also: toFile(c, 'max_active')});
  }},
  message: {label: 'Message', open(c) {
    const area = make('textarea', {rows: 3, maxLength: 1000, value: c.detail.policy.message});
    open({title: 'Message to those who wait', fields: [field('message', 'Text, as every waiting visitor sees it', area)],
      effect: f => [line('Shown to ' + words.count(c.room.waiting) + ' waiting visitors with their next poll' + (f.message.value ? '.' : ': no message.'))],
      label: 'Show', act: f => patch(c, {message: f.message.value}, 'The message is changed.'), also: toFile(c, 'message')});
  }},
  challenge: {label: 'Challenge', hidden: r => !(r.levels?.length > 1), open(c) {
    open({title: 'Challenge of ' + c.room.id, text: 'The work that a browser does for a place. Visitors with a place or a pass do none.',
      fields: [field('level', 'Proof of work', choice(c.detail.challenge_levels.map(l => [l, challenges[l] || l]), c.detail.policy.challenge))],
      effect: f => [line(f.level.value === 'none' ? 'A place costs a script nothing.' : 'Visitors without JavaScript cannot join' + (f.level.value === 'auto' ? ' while there is a queue.' : '.'))],
      label: 'Apply', act: f => patch(c, {challenge: f.level.value}, 'The challenge is: ' + f.level.value + '.'), also: toFile(c, 'challenge')});
  }},
  ramp: {label: 'Ramp', hidden: () => isMissing('ramp'), open(c) { c.detail.ramp?.state === 'running' || c.detail.ramp?.state === 'held' ? stopRamp(c) : startRamp(c); }},
  close: {label: 'Close', hidden: r => r.state === 'closed', open(c) {
    open({title: 'Close ' + c.room.id, text: 'Refuses everyone without a pass: those who wait see that the room is closed. Sessions go on.',
      effect: () => [line(words.count(c.room.waiting) + ' waiting visitors see the closed page with their next poll.')],
      label: 'Close the room', danger: true, act: () => patch(c, {method: 'reject'}, 'Closed.')});
  }},
  reopen: {label: 'Reopen', hidden: r => r.state !== 'closed', open(c) {
    open({title: 'Reopen ' + c.room.id, text: 'Returns the method to the configuration.', label: 'Reopen', act: () => patch(c, {method: null}, 'Reopened.')});
  }},
  drain: {label: 'Drain', hidden: r => r.draining, open(c) {
    open({title: 'Drain ' + c.room.id, text: 'Takes no new visitors. Those who wait are still admitted.',
      effect: () => [line(words.count(c.room.waiting) + ' waiting visitors keep their places. ' + (c.room.join_rate === undefined ? '' : 'About ' + words.rate(c.room.join_rate) + ' newcomers a second are refused.'))],
      label: 'Drain', act: () => act(c, 'POST', '/drain', undefined, 'Draining.')});
  }},
  evacuate: {label: 'Evacuate', role: 'admin', danger: true, hidden: () => isMissing('evacuate'), open(c) {
    open({title: 'Evacuate ' + c.room.id, text: 'Ends all sessions on every gateway. Those inside wait again, by their old order.',
      fields: [field('reason', 'Reason, for the audit log', input({maxLength: 200})), named(c)],
      effect: () => [line(words.count(c.room.inside) + ' sessions end. They join ' + words.count(c.room.waiting) + ' who wait.')],
      ready: f => f.id.value === c.room.id && f.reason.value.trim() !== '', label: 'Evacuate the room', danger: true,
      act: f => act(c, 'POST', '/evacuate', {reason: f.reason.value.trim()}, 'Evacuated.', 'evacuate')});
  }},
  reset: {label: 'Reset', role: 'admin', danger: true, open(c) {
    open({title: 'Reset ' + c.room.id, text: 'All who wait lose their place. This cannot be undone. Sessions stay.', fields: [named(c)],
      effect: () => [line(words.count(c.room.waiting) + ' places are lost.')],
      ready: f => f.id.value === c.room.id, label: 'Reset the room', danger: true, act: f => act(c, 'POST', '/reset', {confirm: f.id.value}, 'Reset: the room is empty.')});
  }},
};

const challenges = {none: 'none', auto: 'auto: with a queue, or many joins', always: 'always', hardest: 'hardest: always, the most tries'};
const number = text => /^\d+(\.\d{1,3})?$/.test(text.trim());
const line = text => make('p', {textContent: text});
const named = c => field('id', 'Type ' + c.room.id + ' to confirm', input({autocapitalize: 'off'}));

async function act(c, method, rest, body, done, kind) {
  const path = roomPath(c.room.id, rest);
  const result = kind ? await optional(kind, method, path, body) : await api(method, path, body);
  if (kind && result === undefined) throw new Error('This gateway, or your role, does not allow it.');
  c.changed(result);
  return result?.expires_at && result.action ? 'Asked: a second person has to confirm it.' : done;
}
const patch = (c, body, done) => act(c, 'PATCH', '', body, done);

// toFile returns the button that returns a live field to the configuration, where it was changed.
const toFile = (c, name) => c.detail.live[name] === undefined ? [] : [{label: 'As configured', act: () => patch(c, {[name]: null}, name + ' is as configured.')}];

// effects returns what a change would do, by the simulation of the gateway; nothing where it has none.
async function effects(c, change) {
  let r;
  try {
    r = await optional('simulate', 'POST', roomPath(c.room.id, '/simulate'), change);
  } catch (e) {
    if (e instanceof Refused && e.status === 409) return [line(e.message)];
    throw e;
  }
  if (!r) return [];
  const row = (name, text) => make('tr', {}, make('th', {scope: 'row', textContent: name}), make('td', {textContent: text(r.now)}), make('td', {textContent: text(r.with)}));
  const wait = w => w ? words.span(w.seconds) + (w.high ? ', ' + words.span(w.low) + ' to ' + words.span(w.high) : '') : '–';
  const head = ['', 'Now', 'Then'].map(text => make(text ? 'th' : 'td', {scope: text ? 'col' : undefined, textContent: text}));
  return [make('table', {}, make('thead', {}, make('tr', {}, ...head)), make('tbody', {},
    row('Newcomer waits', s => wait(s.wait)), row('Last in the queue waits', s => wait(s.last)),
    row('Queue empty', s => s.empty_at ? words.clock(s.empty_at) + ', in ' + words.span(s.empty_in_seconds) : c.room.waiting ? 'never' : 'now'),
    row('Inside then', s => s.inside === undefined ? '–' : words.count(s.inside))))];
}

function startRamp(c) {
  const text = (name, label, value, note) => field(name, label, input({value: String(value)}), note);
  const rate = c.detail.policy.rate;
  open({title: 'Ramp of ' + c.room.id, text: 'Raises the rate in steps while the origin is well. A change of the rate by hand stops it.', fields: [
    make('div', {className: 'pairs3'}, text('from', 'From, a second', rate), text('step', 'Step', Math.max(1, Math.round(rate / 10))), text('until', 'Until', rate * 2)),
    make('div', {className: 'pairs3'}, text('every', 'Every', '1m'), text('p95', 'While p95 below, ms', 300), text('errors', 'and errors below, %', 5)),
    field('breach', 'Otherwise', choice([['hold', 'hold the rate'], ['back', 'one step back'], ['stop', 'stop']], 'hold'))],
    effect: f => number(f.until.value) ? effects(c, {rate: Number(f.until.value)}) : [],
    label: 'Start', act: async f => {
      const limits = {};
      if (f.p95.value.trim()) limits.p95_ms = Number(f.p95.value);
      if (f.errors.value.trim()) limits.errors = Number(f.errors.value) / 100;
      return act(c, 'POST', '/ramp', {from: Number(f.from.value), step: Number(f.step.value), every: f.every.value.trim(), until: Number(f.until.value),
        while: limits, on_breach: f.breach.value}, 'The ramp runs.', 'ramp');
    }});
}

function stopRamp(c) {
  const r = c.detail.ramp;
  open({title: 'Ramp of ' + c.room.id, text: 'At ' + words.exact(r.rate) + '/s, ' + (r.state === 'held' ? 'held: ' + r.reason : 'to ' + words.exact(r.until) + '/s by ' + words.exact(r.step) + ' every ' + r.every) +
    '. Started by ' + r.started_by + '.', effect: () => effects(c, {rate: r.rate}), label: 'Stop the ramp', act: () => act(c, 'DELETE', '/ramp', undefined, 'The ramp has stopped.', 'ramp')});
}

// Levers shows the buttons.
export class Levers {
  constructor(root, context) {
    this.context = context;
    const buttons = Object.entries(levers).map(([name, lever]) => {
      const b = make('button', {type: 'button', className: lever.danger ? 'danger' : 'quiet', textContent: lever.label});
      if (lever.key) { b.append(' ', make('kbd', {textContent: lever.key})); b.setAttribute('aria-keyshortcuts', lever.key); }
      b.dataset.lever = name;
      b.addEventListener('click', () => this.open(name));
      return {lever, b};
    });
    this.buttons = buttons;
    root.replaceChildren(...buttons.map(({b}) => b));
  }

  show(room) {
    for (const {lever, b} of this.buttons) b.hidden = !may(lever.role || 'operator', room.id) || !!lever.hidden?.({...room, levels: this.context()?.detail?.challenge_levels});
  }

  // open opens a lever, with a proposed value.
  open(name, value) {
    const c = this.context();
    if (c?.room && c.detail && may(levers[name].role || 'operator', c.room.id)) levers[name].open(c, value);
  }
}
