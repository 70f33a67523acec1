// The events of a room: a calendar with overlaps, and creating, changing and deleting events.

import {api, optional, roomPath} from './api.js';
import {choice, field, input, open} from './dialog.js';
import {make} from './dom.js';
import * as words from './words.js';

export class Calendar {
  constructor(root, context) {
    this.context = context;
    this.list = make('ul', {className: 'events'});
    this.add = make('button', {type: 'button', className: 'quiet', textContent: 'New event', hidden: true});
    this.add.addEventListener('click', () => this.edit());
    root.append(make('div', {className: 'head'}, make('h3', {textContent: 'Events'}), this.add), this.list);
  }

  async load() {
    const {room, detail} = this.context();
    const kept = await optional('events', 'GET', roomPath(room.id, '/events'));
    const events = kept ? kept.events : [detail.event, detail.next_event].filter(Boolean);
    this.add.hidden = !kept;
    const clashes = overlapping(events);
    this.list.replaceChildren(...(events.length ? events.map(e => this.row(e, clashes.has(e), !!kept)) : [make('li', {className: 'note', textContent: 'No event is planned.'})]));
  }

  row(e, clash, editable) {
    const now = Date.now(), begins = Date.parse(e.prequeue_at || e.starts_at), state = now > Date.parse(e.ends_at) ? 'over' : now >= begins ? 'now' : 'in ' + words.span((begins - now) / 1000);
    const what = [e.method, e.rate === undefined ? '' : words.exact(e.rate) + '/s', e.prequeue_at ? 'pre-queue from ' + words.moment(e.prequeue_at) : ''].filter(Boolean).join(', ');
    const actions = make('span', {className: 'actions'});
    if (editable && e.id) {
      const change = make('button', {type: 'button', className: 'quiet small', textContent: 'Change'}), remove = make('button', {type: 'button', className: 'danger small', textContent: 'Delete'});
      change.addEventListener('click', () => this.edit(e));
      remove.addEventListener('click', () => open({title: 'Delete the event', text: (e.name || e.method || 'event') + ', ' + words.moment(e.starts_at), label: 'Delete', danger: true, act: async () => {
        await api('DELETE', roomPath(this.context().room.id, '/events/' + encodeURIComponent(e.id)));
        this.load();
        return 'Deleted.';
      }}));
      actions.append(change, remove);
    }
    return make('li', {className: clash ? 'clash' : ''}, make('b', {textContent: e.name || e.method || 'event'}), make('span', {className: 'tag', textContent: state}), clash ? make('span', {className: 'tag bad', textContent: 'overlaps'}) : null,
      make('small', {textContent: words.moment(e.starts_at) + ' to ' + words.moment(e.ends_at) + (what ? ' · ' + what : '')}), actions);
  }

  edit(e = {}) {
    const local = at => at ? new Date(Date.parse(at) - new Date(at).getTimezoneOffset() * 60000).toISOString().slice(0, 16) : '';
    const time = (name, label, at, required) => field(name, label, input({type: 'datetime-local', value: local(at), required}));
    open({title: e.id ? 'Change the event' : 'New event', fields: [field('event', 'Name', input({value: e.name || '', maxLength: 100})), time('starts', 'Starts', e.starts_at, true), time('ends', 'Ends', e.ends_at, true),
      field('rate', 'Rate, visitors a second; empty: the room’s', input({inputMode: 'decimal', value: e.rate === undefined ? '' : String(e.rate)})),
      field('how', 'Method', choice([['', 'as the room'], ['fifo', 'fifo'], ['lottery', 'lottery'], ['passthrough', 'passthrough'], ['reject', 'reject: closed']], e.method || '')), time('prequeue', 'Pre-queue of a lottery', e.prequeue_at)],
      ready: f => f.starts.value && f.ends.value, label: e.id ? 'Change' : 'Create', act: async f => {
        const body = {starts_at: new Date(f.starts.value).toISOString(), ends_at: new Date(f.ends.value).toISOString()};
        if (f.event.value.trim()) body.name = f.event.value.trim();
        if (f.rate.value.trim()) body.rate = Number(f.rate.value);
        if (f.how.value) body.method = f.how.value;
        if (f.prequeue.value) body.prequeue_at = new Date(f.prequeue.value).toISOString();
        const path = roomPath(this.context().room.id, '/events');
        await (e.id ? api('PUT', path + '/' + encodeURIComponent(e.id), body) : api('POST', path, body));
        this.load();
        return e.id ? 'Changed.' : 'Created.';
      }});
  }
}

// overlapping returns the events that overlap another one.
export function overlapping(events) {
  const found = new Set(), begins = e => Date.parse(e.prequeue_at || e.starts_at), ends = e => Date.parse(e.ends_at);
  events.forEach((a, i) => events.slice(i + 1).forEach(b => {
    if (begins(a) < ends(b) && begins(b) < ends(a)) found.add(a).add(b);
  }));
  return found;
}
