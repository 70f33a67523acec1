// The panel Now: waits, announced waits, funnel and guards of the last hour.

import {optional, roomPath} from './api.js';
import {fillIf, make} from './dom.js';
import * as words from './words.js';

const stages = {arrived: 'arrived', challenged: 'challenged', waiting: 'waited', admitted: 'admitted', claimed: 'claimed', inside: 'inside', ended: 'ended'};

export class Now {
  constructor(root) {
    this.waits = section('Waits of the last hour');
    this.funnel = section('From arrival to end');
    this.guards = section('Guards');
    root.append(this.waits.root, this.funnel.root, this.guards.root);
  }

  async load(id, detail) {
    const f = await optional('figures', 'GET', roomPath(id, '/figures'));
    this.showWaits(f, detail);
    this.showFunnel(f);
    this.showGuards(f?.guard, detail?.guard);
  }

  showWaits(f, detail) {
    const admitted = f?.waits?.admitted || [], left = f?.waits?.left || [];
    const told = f?.told?.count ? f.told : detail?.eta_error === undefined ? null : {median_ratio: detail.eta_error, coverage: detail.eta_coverage};
    this.waits.root.hidden = !f && !told;
    fillIf(this.waits.body, JSON.stringify([admitted, left, told]), () => [
      ...histogram(admitted, left),
      f?.waits?.p50_seconds === undefined ? null : make('p', {className: 'note', textContent: 'p50 ' + words.span(f.waits.p50_seconds) + ' · p90 ' + words.span(f.waits.p90_seconds) + ' · p99 ' + words.span(f.waits.p99_seconds)}),
      make('p', {className: 'note', textContent: !told ? 'No announced wait has been measured yet.' : 'Announced / real wait ' + words.exact(told.median_ratio) + ' (median)' +
        (told.coverage === undefined ? '' : ', ' + words.percent(told.coverage) + ' within the announced range') + (told.count ? ', of ' + words.count(told.count) : '')}),
    ].filter(Boolean));
  }

  showFunnel(f) {
    this.funnel.root.hidden = !f?.funnel;
    if (!f?.funnel) return;
    fillIf(this.funnel.body, JSON.stringify([f.funnel, f.losses]), () => {
      const most = Math.max(1, ...f.funnel.map(s => s.count));
      return [make('ul', {className: 'funnel'}, ...f.funnel.map(s => {
        const losses = (f.losses || []).filter(l => l.stage === s.stage && l.count).map(l => '−' + words.count(l.count) + ' ' + l.reason).join(', ');
        const fill = make('i');
        fill.style.width = 100 * s.count / most + '%';
        return make('li', {}, make('span', {textContent: stages[s.stage] || s.stage}), make('span', {className: 'track', 'aria-hidden': 'true'}, fill), make('b', {textContent: words.count(s.count)}),
          make('small', {textContent: losses, title: losses}));
      }))];
    });
  }

  showGuards(g, own) {
    const parts = [];
    const list = (name, o) => { if (o && Object.keys(o).length) parts.push(name + ' ' + Object.entries(o).map(([k, n]) => k + ' ' + words.count(n)).join(', ')); };
    if (g) {
      if (g.challenges) parts.push('challenges ' + words.count(g.challenges));
      list('proofs:', g.proofs);
      list('CAPTCHA:', g.captcha);
      list('refused:', g.refused);
      list('permits:', g.permits);
      if (g.over_quota) parts.push('over quota ' + words.count(g.over_quota));
    } else if (own) {
      parts.push('proofs ' + words.count(own.proofs));
      list('refused:', own.joins_refused);
    }
    if (own?.proof_number) parts.push('a proof takes at most ' + words.count(own.proof_number) + ' hashes now');
    this.guards.root.hidden = !g && !own;
    fillIf(this.guards.body, parts.join(), () => [make('p', {className: 'note', textContent: parts.join(' · ') || 'Nothing was checked or refused.'})]);
  }
}

function section(name) {
  const body = make('div');
  return {root: make('section', {}, make('h3', {textContent: name}), body), body};
}

// histogram returns the bars of the waits of those admitted, and below the axis of those who left.
function histogram(admitted, left) {
  const bins = new Map();
  const add = (list, key) => list.forEach(b => {
    const bin = bins.get(b.from_seconds) || {from: b.from_seconds, to: b.to_seconds, admitted: 0, left: 0};
    bin[key] += b.count;
    bins.set(b.from_seconds, bin);
  });
  add(admitted, 'admitted');
  add(left, 'left');
  const all = [...bins.values()].sort((a, b) => a.from - b.from), shown = all.slice(all.findIndex(b => b.admitted || b.left));
  const most = Math.max(1, ...shown.map(b => b.admitted)), least = Math.max(most / 8, ...shown.map(b => b.left));
  if (!all.length) return [];
  const total = key => words.count(shown.reduce((n, b) => n + b[key], 0));
  const bars = make('div', {className: 'bars', role: 'img', 'aria-label': `Waits: ${total('admitted')} admitted, ${total('left')} left. ` +
    shown.map(b => `to ${words.span(b.to)}: ${b.admitted} admitted, ${b.left} left`).join('; ')}, ...shown.map(b => {
    const up = make('i', {className: 'up'}), down = make('i', {className: 'down'});
    up.style.height = 58 * b.admitted / most + 'px';
    down.style.height = 29 * b.left / least + 'px';
    return make('span', {title: words.span(b.from) + ' to ' + words.span(b.to) + ': ' + words.count(b.admitted) + ' admitted, ' + words.count(b.left) + ' left'},
      make('span', {}, up), make('span', {}, down));
  }));
  return [make('p', {className: 'legend'}, make('span', {className: 'key', textContent: total('admitted') + ' admitted'}), make('span', {className: 'key left', textContent: total('left') + ' left'})),
    bars, make('p', {className: 'ends'}, make('span', {textContent: words.span(shown[0].from)}), make('span', {textContent: words.span(shown.at(-1).to)}))];
}
