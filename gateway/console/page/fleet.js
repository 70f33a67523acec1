// The table of gateways.

import {fillIf, make} from './dom.js';
import * as words from './words.js';

export class Fleet {
  constructor(root) {
    this.body = make('tbody');
    this.root = make('section', {hidden: true, id: 'fleet'}, make('h3', {textContent: 'Gateways'}), make('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'Table of gateways'},
      make('table', {}, make('thead', {}, make('tr', {}, ...['Gateway', 'Version', 'Config', 'Keys', 'Clock', 'Store'].map(text => make('th', {scope: 'col', textContent: text})))), this.body)));
    root.append(this.root);
  }

  show(gateways) {
    this.root.hidden = !gateways;
    if (!gateways) return;
    fillIf(this.body, JSON.stringify(gateways.map(g => [g, Math.floor((Date.now() - Date.parse(g.seen_at)) / 5000)])), () => gateways.flatMap(rows));
  }
}

function rows(g) {
  const differs = new Set(g.differs || []), silent = (Date.now() - Date.parse(g.seen_at)) / 1000;
  const cell = (text, bad, title) => make('td', {textContent: text, className: bad ? 'bad' : '', title});
  const trouble = [silent > 10 ? 'silent for ' + words.span(silent) : '', ...[...differs].map(d => 'other ' + d), ...(g.draw_conflicts || []).map(r => 'draw conflict in ' + r),
    g.last_error ? words.ago(g.last_error.at) + ': ' + g.last_error.text : ''].filter(Boolean).join('; ');
  const offset = g.clock_offset_seconds ?? 0, age = g.store_age_seconds;
  return [make('tr', {className: trouble ? 'split' : ''}, make('th', {scope: 'row', textContent: (g.host || g.id) + (g.self ? ' (this)' : ''), title: g.id}), cell(g.version || '–', differs.has('version')),
    cell(g.configuration ? String(g.configuration.generation) : '–', differs.has('configuration'), g.configuration?.hash), cell((g.keys || '–').slice(0, 6), differs.has('keys'), g.keys),
    cell((offset * 1000 >= 0 ? '+' : '−') + Math.abs(Math.round(offset * 1000)) + ' ms', Math.abs(offset) > 1), cell(age === undefined ? 'never' : age < 1 ? 'now' : words.span(age), age === undefined || age > 5)),
  ...(trouble ? [make('tr', {}, make('td', {colSpan: 6, className: 'bad', textContent: trouble}))] : [])];
}
