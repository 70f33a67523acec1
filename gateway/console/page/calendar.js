// The calendar: the planned events of all rooms on one axis, with those that load one origin at the same time.

import {optional} from './api.js';
import {fillIf, make} from './dom.js';
import * as words from './words.js';

const begins = e => Date.parse(e.prequeue_at || e.starts_at), ends = e => Date.parse(e.ends_at);

export class Calendar {
  constructor(root, context) {
    this.context = context;
    this.list = make('ul', {className: 'events'});
    root.append(make('h3', {textContent: 'Events of all rooms'}), this.list, make('p', {className: 'note', textContent: 'Events are planned in rooms[].events of the configuration; a reload takes changes.'}));
  }

  async load() {
    const r = await optional('events', 'GET', 'events');
    const events = (r?.events || []).filter(e => ends(e) > Date.now() - 86400000).sort((a, b) => begins(a) - begins(b));
    const clashes = overlapping(events), from = Math.min(Date.now(), ...events.map(begins)), to = Math.max(...events.map(ends));
    fillIf(this.list, JSON.stringify([events, Math.floor(Date.now() / 10000)]), () => events.length ? events.map(e => row(e, clashes.get(e), from, to))
      : [make('li', {className: 'note', textContent: 'No event is planned.'})]);
  }
}

function row(e, clash, from, to) {
  const now = Date.now(), state = now > ends(e) ? 'over' : now >= begins(e) ? 'now' : 'in ' + words.span((begins(e) - now) / 1000);
  const what = [e.method, e.rate === undefined ? '' : words.exact(e.rate) + '/s', e.prequeue_at ? 'pre-queue from ' + words.moment(e.prequeue_at) : ''].filter(Boolean).join(', ');
  const bar = make('i', {'aria-hidden': 'true'});
  bar.style.marginLeft = 100 * (begins(e) - from) / (to - from) + '%';
  bar.style.width = Math.max(1, 100 * (ends(e) - begins(e)) / (to - from)) + '%';
  return make('li', {className: clash ? 'clash' : ''}, make('b', {textContent: e.room}), e.name ? make('span', {textContent: e.name}) : null, make('span', {className: 'tag', textContent: state}),
    clash ? make('span', {className: 'tag bad', textContent: 'overlaps ' + clash.join(', ') + ' on origin ' + e.origin}) : null,
    make('small', {textContent: words.moment(e.starts_at) + ' to ' + words.moment(e.ends_at) + (what ? ' · ' + what : '')}), make('span', {className: 'axis'}, bar));
}

// overlapping returns, for events that overlap another one of the same origin, the rooms of those.
export function overlapping(events) {
  const found = new Map(), add = (e, other) => found.set(e, [...new Set([...(found.get(e) || []), other.room])]);
  events.forEach((a, i) => events.slice(i + 1).forEach(b => {
    if (a.origin === b.origin && begins(a) < ends(b) && begins(b) < ends(a)) { add(a, b); add(b, a); }
  }));
  return found;
}
