// The calendar: the planned events of all rooms on one axis, with those that load one origin at the same time, and changes of live ones.

import {api, optional, roomPath} from './api.js';
import {choice, field, input, open} from './dialog.js';
import {fillIf, make} from './dom.js';
import {may} from './person.js';
import * as words from './words.js';

const begins = e => Date.parse(e.prequeue_at || e.starts_at), ends = e => Date.parse(e.ends_at);

export class Calendar {
  constructor(root, context) {
    this.context = context;
    this.list = make('ul', {className: 'events'});
    this.plan = make('button', {type: 'button', className: 'quiet small', textContent: 'Plan an event'});
    this.plan.addEventListener('click', () => this.edit());
    root.append(make('div', {className: 'head'}, make('h3', {textContent: 'Events of all rooms'}), this.plan), this.list,
      make('p', {className: 'note', textContent: 'Events of rooms[].events change with the configuration, lotteries among them; those planned here change here.'}));
  }

  async load() {
    const r = await optional('events', 'GET', 'events');
    const events = (r?.events || []).filter(e => ends(e) > Date.now() - 86400000).sort((a, b) => begins(a) - begins(b));
    this.plan.hidden = !r || !may('operator', this.context().room?.id);
    const clashes = overlapping(events), from = Math.min(Date.now(), ...events.map(begins)), to = Math.max(...events.map(ends));
    fillIf(this.list, JSON.stringify([events, Math.floor(Date.now() / 10000)]), () => events.length ? events.map(e => this.row(e, clashes.get(e), from, to))
      : [make('li', {className: 'note', textContent: 'No event is planned.'})]);
  }

  // edit opens the dialog of an event of the room that is shown or, with e, of that event.
  edit(e) {
    const room = e?.room || this.context().room.id, soon = Math.ceil((Date.now() + 300000) / 300000) * 300000;
    const time = (name, label, at) => field(name, label, input({type: 'datetime-local', step: 1, required: true, value: local(at)}));
    open({title: (e ? 'Change an event of ' : 'Plan an event of ') + room, text: 'In force on every gateway within a second of its start. Times are those of this computer.', fields: [
      field('name', 'Name', input({maxLength: 60, value: e?.name || ''})),
      make('div', {className: 'pairs2'}, time('starts', 'Starts', e ? Date.parse(e.starts_at) : soon), time('ends', 'Ends', e ? Date.parse(e.ends_at) : soon + 3600000)),
      make('div', {className: 'pairs2'}, field('rate', 'Visitors a second', input({inputMode: 'decimal', value: e?.rate ?? '', placeholder: 'as the room'})),
        field('method', 'Method', choice([['', 'as the room'], ['fifo', 'fifo'], ['passthrough', 'passthrough'], ['reject', 'reject']], e?.method || '')))],
      ready: f => f.starts.value && f.ends.value && (f.rate.value.trim() || f.method.value), label: e ? 'Change' : 'Plan',
      act: async f => {
        const body = {name: f.name.value.trim(), starts_at: new Date(f.starts.value).toISOString(), ends_at: new Date(f.ends.value).toISOString()};
        if (f.rate.value.trim()) body.rate = Number(f.rate.value);
        if (f.method.value) body.method = f.method.value;
        await api(e ? 'PUT' : 'POST', roomPath(room, '/events' + (e ? '/' + encodeURIComponent(e.id) : '')), body);
        this.context().changed();
        await this.load();
        return e ? 'The event is changed.' : 'The event is planned.';
      }});
  }

  remove(e) {
    open({title: 'Delete ' + (e.name || 'the event'), text: words.moment(e.starts_at) + ' to ' + words.moment(e.ends_at) + '. An event in force ends at once. Changes can undo it.', label: 'Delete', danger: true, act: async () => {
      await api('DELETE', roomPath(e.room, '/events/' + encodeURIComponent(e.id)));
      this.context().changed();
      await this.load();
      return 'The event is deleted.';
    }});
  }

  row(e, clash, from, to) {
    const now = Date.now(), state = now > ends(e) ? 'over' : now >= begins(e) ? 'now' : 'in ' + words.span((begins(e) - now) / 1000);
    const what = [e.method, e.rate === undefined ? '' : words.exact(e.rate) + '/s', e.prequeue_at ? 'pre-queue from ' + words.moment(e.prequeue_at) : ''].filter(Boolean).join(', ');
    const bar = make('i', {'aria-hidden': 'true'});
    bar.style.marginLeft = 100 * (begins(e) - from) / (to - from) + '%';
    bar.style.width = Math.max(1, 100 * (ends(e) - begins(e)) / (to - from)) + '%';
    const button = (label, act) => {
      const b = make('button', {type: 'button', className: 'quiet small', textContent: label, 'aria-label': label + ' ' + (e.name || 'the event of ' + e.room)});
      b.addEventListener('click', act);
      return b;
    };
    const levers = e.live && may('operator', e.room) ? make('span', {className: 'row'}, button('Change', () => this.edit(e)), button('Delete', () => this.remove(e))) : null;
    return make('li', {className: clash ? 'clash' : ''}, make('b', {textContent: e.room}), e.name ? make('span', {textContent: e.name}) : null, make('span', {className: 'tag', textContent: state}),
      e.overlaps ? make('span', {className: 'tag bad', textContent: 'not in force: overlaps ' + e.overlaps}) : null,
      clash ? make('span', {className: 'tag bad', textContent: 'overlaps ' + clash.join(', ') + ' on origin ' + e.origin}) : null,
      make('small', {textContent: words.moment(e.starts_at) + ' to ' + words.moment(e.ends_at) + (what ? ' · ' + what : '')}), make('span', {className: 'axis'}, bar), levers);
  }
}

// local returns a time as an input of type datetime-local has it.
function local(at) {
  return new Date(at - new Date(at).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

// overlapping returns, for events that overlap another one of the same origin, the rooms of those.
export function overlapping(events) {
  const found = new Map(), add = (e, other) => found.set(e, [...new Set([...(found.get(e) || []), other.room])]);
  events.forEach((a, i) => events.slice(i + 1).forEach(b => {
    if (a.origin === b.origin && begins(a) < ends(b) && begins(b) < ends(a)) { add(a, b); add(b, a); }
  }));
  return found;
}
