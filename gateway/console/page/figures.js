// The five figures of a room, each with its last ten minutes.

import {make, set, svg} from './dom.js';
import * as words from './words.js';

const cards = [
  {key: 'waiting', name: 'Waiting', column: 'waiting',
    value: r => words.count(r.waiting),
    more: r => [r.join_rate !== undefined ? words.rate(r.join_rate) + '/s arrive' : '', r.parked ? words.count(r.parked) + ' parked' : ''].filter(Boolean).join(', ')},
  {key: 'admitted', name: 'Admitted a second', column: 'admitted_rate', against: 'limit',
    value: r => words.rate(r.admitted_rate),
    more: r => 'limit ' + words.exact(Math.min(r.limit, r.expected ?? r.limit)) + '/s' + (r.expected !== undefined && r.expected < r.limit ? ' by the budget' : '')},
  {key: 'inside', name: 'Inside', column: 'inside', against: 'max_active',
    value: r => words.count(r.inside),
    more: r => (r.max_active ? 'of ' + words.count(r.max_active) : 'no limit') + (r.admitted ? ', ' + words.count(r.admitted) + ' admitted, not entered yet' : '')},
  {key: 'wait', name: 'Wait of a newcomer', column: 'wait_seconds',
    value: r => r.wait ? words.span(r.wait.seconds) : '–',
    more: r => r.wait && r.wait.high > 0 ? words.span(r.wait.low) + ' to ' + words.span(r.wait.high) : r.wait ? '' : 'not known yet'},
  {key: 'abandonment', name: 'Abandonment', column: 'abandon_rate',
    value: r => r.abandonment === undefined ? '–' : words.percent(r.abandonment),
    more: r => r.abandon_rate === undefined ? 'not measured' : words.rate(r.abandon_rate) + '/s leave'},
];

const width = 240, height = 36;

export class Figures {
  constructor(root) {
    this.cards = cards.map(card => {
      const value = make('dd', {className: 'value'}), more = make('dd', {className: 'more'});
      const line = svg('svg', {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
      const e = make('div', {className: 'card figure'}, make('dt', {textContent: card.name}), value, more, make('dd', {className: 'spark'}, line));
      e.dataset.figure = card.key;
      root.append(e);
      return {...card, e, value_: value, more_: more, line};
    });
  }

  show(room, history) {
    for (const card of this.cards) {
      set(card.value_, card.value(room));
      set(card.more_, card.more(room));
      draw(card.line, history.recent(card.column), card.against ? history.recent(card.against) : []);
    }
  }
}

// draw draws a curve over ten minutes, with its limit dashed.
function draw(root, points, limits) {
  const known = points.filter(p => p[1] !== null), bound = limits.filter(p => p[1] > 0);
  if (known.length < 2) { root.replaceChildren(); return; }
  const end = known.at(-1)[0], begin = Math.max(known[0][0], end - 600);
  const top = Math.max(1e-9, ...known.map(p => p[1]), ...bound.map(p => p[1]));
  const x = at => (at - begin) / Math.max(1, end - begin) * width, y = v => height - 2 - v / top * (height - 4);
  const path = list => list.filter(p => p[0] >= begin).map((p, i) => (i ? 'L' : 'M') + x(p[0]).toFixed(1) + ' ' + y(p[1]).toFixed(1)).join('');
  const curve = path(known);
  const parts = [svg('path', {d: curve + `L${width} ${height}L0 ${height}Z`, class: 'area'}), svg('path', {d: curve, class: 'curve'})];
  if (bound.length) parts.push(svg('path', {d: path(bound), class: 'bound'}));
  root.replaceChildren(...parts);
}
