// One room on the screen: its live state, details and history.

import {api, roomPath} from './api.js';
import {Calendar} from './calendar.js';
import {$, fillIf, make, set} from './dom.js';
import {Figures} from './figures.js';
import {Fleet} from './fleet.js';
import {incidents} from './incidents.js';
import {openSteps} from './steps.js';
import {Levers} from './levers.js';
import {Lookup} from './lookup.js';
import {Now} from './panels.js';
import {Plots} from './plots.js';
import {Preview} from './preview.js';
import {reports} from './report.js';
import {History, ranges, sample} from './series.js';
import {Tabs} from './tabs.js';
import {Timeline} from './timeline.js';
import {URLTester} from './urltest.js';

const words = {admitting: 'Admitting', not_admitting: 'Not admitting', idle: 'No queue', open: 'Open', closed: 'Closed', paused: 'Paused', waiting_to_open: 'Waiting to open', store_away: 'Store away'};
const colours = {admitting: 'good', idle: 'good', open: 'warn', not_admitting: 'warn', closed: 'bad', paused: 'warn', waiting_to_open: 'good', store_away: 'bad'};
export const word = r => words[r.state] || r.state;
export const colour = r => colours[r.state] || 'warn';

const detailsEvery = 5000; // ms between reads of the figures of the last hour

export class RoomView {
  constructor() {
    this.histories = new Map();
    this.room = this.detail = this.fleetRows = null;
    this.range = ranges[0];
    const context = () => this.room && {room: this.room, detail: this.detail, changed: detail => this.changed(detail)};
    this.levers = new Levers($('#levers'), context);
    this.figures = new Figures($('#figures'));
    this.plots = new Plots($('#plots'));
    this.tabs = new Tabs($('#tabs'), $('#panels'), {
      now: {label: 'Now', open: () => this.read()}, changes: {label: 'Changes'}, find: {label: 'Find'},
      events: {label: 'Events', open: () => this.room && this.calendar.load()}, url: {label: 'URL'}, page: {label: 'Page', open: () => this.room && this.preview.load()},
    });
    this.now = new Now(this.tabs.root('now'));
    this.fleet = new Fleet(this.tabs.root('now'));
    const changes = make('ul', {className: 'changes'});
    this.tabs.root('changes').append(make('h3', {textContent: 'Changes'}), reports(() => this.room.id), changes);
    this.timeline = new Timeline($('#strip'), changes, () => this.room?.id, () => this.changed());
    this.timeline.focus = () => this.tabs.open('changes');
    this.lookup = new Lookup(this.tabs.root('find'), context);
    this.calendar = new Calendar(this.tabs.root('events'), context);
    new URLTester(this.tabs.root('url'));
    this.preview = new Preview(this.tabs.root('page'), context);
    this.tabs.open('now');
    for (const range of ranges) {
      const b = make('button', {type: 'button', textContent: range.name});
      b.addEventListener('click', () => this.choose(range));
      $('#ranges').append(b);
    }
    this.markRange();
    setInterval(() => { if (!document.hidden && this.room) { this.read(); if (this.range.seconds > 600) this.reload(); } }, detailsEvery);
  }

  history(id) {
    let h = this.histories.get(id);
    if (!h) {
      this.histories.set(id, h = new History(id));
      h.load().then(() => this.draw()).catch(() => {}); // the plots begin now
    }
    return h;
  }

  // record adds the live state of all rooms to their histories, so that changing the room shows its past.
  record(rooms, at) {
    for (const r of rooms) this.history(r.id).add(Math.floor(Date.parse(at) / 1000), sample(r));
  }

  show(room) {
    const before = this.room;
    this.room = room;
    $('#room').hidden = false;
    if (before?.id !== room.id) {
      this.detail = null;
      this.timeline.entries = [];
      this.tabs.open(this.tabs.current);
    }
    if (before?.id !== room.id || before.version !== room.version) this.refresh();
    set($('#room-id'), room.id);
    set($('#word'), word(room));
    $('#word').className = 'word ' + colour(room);
    set($('#reason'), this.reason(room));
    this.levers.show(room);
    this.figures.show(room, this.history(room.id));
    this.showIncidents();
    this.draw();
  }

  reason(r) {
    if (r.reason) return r.reason.text;
    return r.paused ? 'An operator has paused the room.' : r.draining ? 'No new visitors are taken.' : '';
  }

  showIncidents() {
    const list = incidents(this.room, this.detail, this.fleetRows), root = $('#incidents');
    root.hidden = !list.length;
    // Evidence changes each second, the buttons do not: a click must not meet a button that is being replaced.
    fillIf(root, JSON.stringify([this.room.id, list.map(i => [i.id, i.key, i.title, i.actions.map(a => a.label)])]), () => list.map(i => {
      const buttons = i.actions.map(a => {
        const b = make('button', {type: 'button', className: 'small', textContent: a.label});
        b.addEventListener('click', () => {
          const now = incidents(this.room, this.detail, this.fleetRows).find(x => x.id === i.id && x.key === i.key)?.actions.find(x => x.label === a.label) || a;
          if (now.lever) this.levers.open(now.lever, now.value);
          else openSteps(now.steps, () => this.tabs.open('now'));
        });
        return b;
      });
      const e = make('li', {className: i.level}, make('b', {textContent: i.title}), make('span', {className: 'evidence'}), ...buttons);
      e.dataset.incident = i.id;
      return e;
    }));
    list.forEach((i, n) => set($('.evidence', root.children[n]), i.evidence));
  }

  draw() {
    if (!this.room) return;
    const view = this.history(this.room.id).view(this.range);
    this.plots.marks = this.timeline.marks();
    this.plots.show(this.room, view, this.range);
    this.timeline.drawStrip(this.plots, view);
  }

  showFleet(gateways) {
    this.fleetRows = gateways;
    this.fleet.show(gateways);
  }

  // refresh reads what changes only when an operator acts.
  async refresh() {
    const id = this.room.id;
    try {
      const [detail] = await Promise.all([api('GET', roomPath(id)), this.timeline.load()]);
      if (this.room.id !== id) return;
      this.detail = detail;
      this.levers.show(this.room);
      if (this.tabs.current !== 'find' && this.tabs.current !== 'url') this.tabs.open(this.tabs.current);
      this.draw();
    } catch { /* the next change, or the alarm, repeats it */ }
  }

  // changed is called after a change from this page.
  changed(detail) {
    if (detail?.policy) this.detail = detail;
    this.refresh();
  }

  async read() {
    if (!this.room || this.reading) return;
    this.reading = true;
    const id = this.room.id;
    try {
      const detail = await api('GET', roomPath(id));
      if (this.room.id === id) this.detail = detail;
      if (this.tabs.current === 'now') await this.now.load(id, this.detail);
    } catch { /* the alarm has it */ } finally { this.reading = false; }
  }

  async choose(range) {
    this.range = range;
    this.markRange();
    await this.reload();
  }

  async reload() {
    try { await this.history(this.room.id).loadLong(this.range); } catch { return; }
    this.draw();
  }

  markRange() {
    [...$('#ranges').children].forEach((b, i) => b.setAttribute('aria-pressed', String(ranges[i] === this.range)));
  }
}
