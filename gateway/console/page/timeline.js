// Changes and alerts of a room: marks across all plots, a strip of reasons below them, and the list with who and undo.

import {api, roomPath} from './api.js';
import {open} from './dialog.js';
import {fillIf, make} from './dom.js';
import {may} from './person.js';
import * as words from './words.js';

const bad = new Set(['store_away', 'store_unknown', 'origin_unhealthy', 'recovering']);
const halted = new Set(['paused', 'closed', 'sold_out', 'max_active', 'rate_zero', 'budget_away', 'before_opening', 'off']);
export const gravity = code => bad.has(code) ? 'bad' : halted.has(code) ? 'warn' : 'good';

// Timeline holds the changes of one room.
export class Timeline {
  constructor(strip, list, room, changed) {
    this.strip = strip;
    this.list = list;
    this.room = room;
    this.changed = changed;
    this.entries = [];
  }

  // load reads the audit log; it returns the times of the changes.
  async load() {
    const {entries} = await api('GET', 'audit?limit=200');
    this.entries = entries.filter(e => !e.room || e.room === this.room());
    this.show();
  }

  marks() { return this.entries.map(e => Date.parse(e.at) / 1000); }

  show() {
    const rows = this.entries.slice(0, 100);
    fillIf(this.list, this.room() + JSON.stringify(rows.map(e => [e.seq, e.at, e.undo])), () => rows.length ? rows.map(e => this.row(e))
      : [make('li', {className: 'note', textContent: 'Nothing has been changed yet.'})]);
  }

  row(e) {
    const undo = this.undoing(e);
    const button = undo ? make('button', {type: 'button', className: 'quiet small', textContent: 'Undo', 'aria-label': 'Undo ' + e.action + ' of ' + e.who}) : null;
    button?.addEventListener('click', () => this.confirm(e, undo));
    return make('li', {}, make('time', {textContent: words.second(e.at), dateTime: e.at, title: words.moment(e.at)}),
      make('span', {}, make('b', {textContent: e.who}), ' ' + e.action + (e.undoes ? ' of no. ' + e.undoes : ''), make('small', {textContent: words.difference(e.before, e.after)})), button);
  }

  // undoing returns how an entry can be undone; undefined if it cannot.
  undoing(e) {
    if (e.undo !== 'possible' || !may('operator', e.room)) return undefined;
    return () => api('POST', roomPath(e.room, '/audit/' + e.seq + '/undo'));
  }

  confirm(e, undo) {
    open({title: 'Undo', text: e.who + ', ' + words.moment(e.at) + ': ' + e.action + '. ' + words.difference(e.after, e.before), label: 'Undo', act: async () => {
      await undo();
      this.changed();
      return 'Undone.';
    }});
  }

  // drawStrip draws the reasons of the range as a band, and the changes on it.
  drawStrip(plots, view) {
    const bounds = plots.bounds();
    if (!bounds) { this.strip.replaceChildren(); return; }
    const {from, to, left, width} = bounds, px = at => left + (at - from) / (to - from) * width;
    const parts = bands(view, from, to).map(b => {
      const e = make('span', {className: 'band ' + gravity(b.code), title: b.code + ', from ' + words.second(b.from * 1000)});
      e.style.left = px(b.from) + 'px';
      e.style.width = Math.max(1, px(b.to) - px(b.from)) + 'px';
      return e;
    });
    const shown = this.entries.map(entry => ({entry, at: Date.parse(entry.at) / 1000})).filter(({at}) => at >= from && at <= to); // the newest first
    shown.forEach(({entry, at}, i) => {
      const x = px(at), room = (i ? px(shown[i - 1].at) : left + width + 90) - x;
      const text = words.second(entry.at) + ' ' + entry.who + ': ' + entry.action;
      const e = make('button', {type: 'button', className: 'mark', textContent: room > 70 ? entry.action : '', title: text + ' ' + words.difference(entry.before, entry.after), 'aria-label': text});
      e.style.left = x + 'px';
      e.addEventListener('click', () => this.focus());
      parts.push(e);
    });
    this.strip.replaceChildren(...parts);
  }
}

// bands joins seconds with the same reason.
export function bands(view, from, to) {
  const codes = view.columns.reason || [], list = [];
  view.at.forEach((at, i) => {
    if (at < from || at > to || !codes[i]) return;
    const last = list.at(-1);
    if (last && last.code === codes[i]) last.to = at;
    else {
      if (last) last.to = at;
      list.push({code: codes[i], from: at, to: at});
    }
  });
  return list;
}
