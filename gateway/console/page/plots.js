// The three plots of a room on one time axis, with its changes across all of them.

import {make, set} from './dom.js';
import * as words from './words.js';

const {uPlot} = window;

// A series: column of the history, name, colour of the style sheet, and how a value reads.
const plots = [
  {key: 'rate', name: 'Rate, visitors a second', scales: {y: perSecond}, series: [
    {column: 'limit', name: 'limit', colour: 'limit', dash: [6, 4], text: v => words.exact(v) + '/s'},
    {column: 'wanted', name: 'wanted by adaptive', colour: 'wanted', dash: [2, 3], text: v => words.exact(v) + '/s'},
    {column: 'admitted_rate', name: 'admitted', colour: 'admitted', fill: true, text: v => words.rate(v) + '/s'},
    {column: 'claimed_rate', name: 'claimed', colour: 'claimed', text: v => words.rate(v) + '/s'},
  ]},
  {key: 'origin', name: 'Origin', scales: {y: v => v >= 1 ? words.exact(v) + ' s' : words.exact(Math.round(v * 10000) / 10) + ' ms', errors: v => words.exact(Math.round(v * 1000) / 10) + ' %', flight: words.count}, series: [
    {column: 'origin_p95_seconds', name: 'p95', colour: 'admitted', text: words.millis},
    {column: 'origin_error_rate', name: 'errors', colour: 'bad', scale: 'errors', text: words.percent},
    {column: 'origin_in_flight', name: 'in flight', colour: 'claimed', scale: 'flight', text: words.count},
  ]},
  {key: 'waiting', name: 'Waiting', scales: {y: words.count}, series: [
    {column: 'waiting', name: 'waiting', colour: 'admitted', fill: true, text: words.count},
  ]},
];

// The steps of an axis of whole numbers: a step of a half would write each number twice.
const wholeSteps = Array.from({length: 13}, (_, i) => [1, 2, 5].map(n => n * 10 ** i)).flat();

function perSecond(v) { return words.exact(v); }

export class Plots {
  constructor(root) {
    this.root = root;
    this.marks = []; // unix seconds of changes
    this.range = null;
    this.latest = null;
    this.plots = plots.map(p => {
      const out = make('output'), box = make('div', {className: 'plot', role: 'img'});
      const keys = p.series.map(s => {
        const key = make('span', {className: 'key'}, s.name + ' ', make('b'));
        key.dataset.colour = s.colour;
        return key;
      });
      const figure = make('figure', {}, make('figcaption', {}, make('span', {}, make('b', {textContent: p.name}), ...keys), out), box);
      figure.dataset.plot = p.key;
      root.append(figure);
      return {...p, figure, box, out, keys, chart: null, shown: ''};
    });
    this.resize = new ResizeObserver(() => this.fit());
    this.plots.forEach(p => this.resize.observe(p.box));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.rebuild());
  }

  rebuild() {
    for (const p of this.plots) { p.chart?.destroy(); p.chart = null; p.shown = ''; }
    if (this.latest) this.show(...this.latest);
  }

  fit() {
    for (const p of this.plots) {
      const {clientWidth: width, clientHeight: height} = p.box;
      if (p.chart && width && height) p.chart.setSize({width, height});
    }
  }

  // show draws a range of the history. room has what is no series: the target, and when the queue is empty.
  show(room, view, range) {
    this.latest = [room, view, range];
    this.room = room;
    const end = Math.max(view.at.at(-1) ?? 0, Math.floor(Date.now() / 1000) - range.seconds / 60);
    // Young rooms fill the plot: it begins with the first value, and is at least two minutes long.
    const known = view.columns.waiting?.findIndex(v => v !== null && v !== undefined) ?? -1;
    const begin = Math.max(end - range.seconds, Math.min(view.at[known] ?? end, end - range.seconds / 5));
    const first = view.at.findIndex(at => at >= begin), from = first < 0 ? view.at.length : first;
    const xs = view.at.slice(from);
    for (const p of this.plots) {
      const columns = p.series.map(s => view.columns[s.column]?.slice(from) ?? xs.map(() => null));
      const there = columns.map(c => c.some(v => v !== null && v !== undefined));
      p.keys.forEach((key, i) => { key.hidden = !there[i]; });
      const shape = there.join() + p.figure.clientWidth + range.name;
      if (p.shown !== shape) {
        p.chart?.destroy();
        p.chart = this.build(p, there);
        p.shown = shape;
      }
      if (!p.chart) { p.shown = ''; continue; }
      p.data = columns;
      p.xs = xs;
      p.chart.setData([xs, ...columns], false);
      p.chart.batch(() => {
        p.chart.setScale('x', {min: begin, max: end});
        for (const [scale, max] of Object.entries(this.tops(p, columns))) p.chart.setScale(scale, {min: 0, max});
      });
      if (p.chart.cursor.idx === null || p.chart.cursor.left < 0) this.say(p, xs.length - 1);
      p.box.setAttribute('aria-label', this.describe(p, xs.length - 1));
    }
  }

  tops(p, columns) {
    const tops = {};
    p.series.forEach((s, i) => {
      const scale = s.scale || 'y';
      tops[scale] = Math.max(tops[scale] ?? 0, ...columns[i].map(v => v ?? 0));
    });
    if (p.key === 'origin') {
      tops.y = Math.max(tops.y, this.room.origin?.target_p95_seconds ?? 0, .01);
      tops.errors = Math.max(tops.errors, .05);
      tops.flight = Math.max(tops.flight, 5);
    }
    for (const scale of Object.keys(tops)) tops[scale] = (tops[scale] || 1) * 1.08;
    return tops;
  }

  build(p, there) {
    const {clientWidth: width, clientHeight: height} = p.box;
    if (!width || !height) return null;
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue('--' + name).trim();
    const font = '11px system-ui, sans-serif', narrow = width < 500, grid = {stroke: colour('line'), width: 1}, stroke = colour('soft');
    const axis = (scale, i, text) => ({scale, side: i ? 1 : 3, size: i ? 44 : 50, stroke, font, grid: i ? {show: false} : grid, ticks: {show: false}, gap: 4,
      space: 28, incrs: text === words.count ? wholeSteps : undefined, values: (_, values) => values.map(v => v === null ? '' : text(v))});
    const scales = Object.entries(p.scales).filter(([scale]) => p.series.some((s, i) => there[i] && (s.scale || 'y') === scale) || scale === 'y');
    const right = narrow ? 8 : 96, axes = narrow ? scales.slice(0, 1) : scales;
    return new uPlot({
      width, height, padding: [6, right - 44 * (axes.length - 1), 0, 0], legend: {show: false},
      cursor: {sync: {key: 'room', setSeries: false}, y: false, drag: {x: false, y: false}, points: {size: 6}},
      scales: {x: {time: true}, ...Object.fromEntries(Object.keys(p.scales).map(scale => [scale, {auto: false}]))},
      axes: [
        {stroke, font, grid, ticks: {show: false}, size: 20, gap: 3, space: 70, values: (u, values, __, ___, step) => values.map(v => u.valToPos(v, 'x') < 24 ? '' : axisTime(v, step))},
        ...axes.map(([scale, text], i) => axis(scale, i, text)),
      ],
      series: [{}, ...p.series.map(s => ({scale: s.scale || 'y', stroke: colour(s.colour), width: 1.5, dash: s.dash, spanGaps: true, points: {show: false},
        fill: s.fill ? colour(s.colour) + '26' : undefined}))],
      hooks: {draw: [u => this.across(u, p, colour)], setCursor: [u => this.say(p, u.cursor.left >= 0 ? u.cursor.idx : null)]},
    }, [[0], ...p.series.map(() => [null])], p.box);
  }

  // across draws the changes, and the target of the origin.
  across(u, p, colour) {
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    const line = (from, to, dash, stroke) => {
      ctx.beginPath();
      ctx.setLineDash(dash.map(n => n * ratio));
      ctx.strokeStyle = stroke;
      ctx.lineWidth = ratio;
      ctx.moveTo(...from);
      ctx.lineTo(...to);
      ctx.stroke();
    };
    ctx.save();
    for (const at of this.marks) {
      if (at < u.scales.x.min || at > u.scales.x.max) continue;
      const x = Math.round(u.valToPos(at, 'x', true));
      line([x, bbox.top], [x, bbox.top + bbox.height], [3, 3], colour('mark'));
    }
    const target = p.key === 'origin' && this.room?.origin?.target_p95_seconds;
    if (target) {
      const y = Math.round(u.valToPos(target, 'y', true));
      line([bbox.left, y], [bbox.left + bbox.width, y], [6, 4], colour('limit'));
    }
    ctx.restore();
  }

  // say writes the values at an index beside the name of a plot; null: the latest.
  say(p, index) {
    if (!p.xs) return;
    const i = index ?? p.xs.length - 1;
    p.series.forEach((s, k) => set(p.keys[k].lastChild, p.data[k][i] === null || p.data[k][i] === undefined ? '' : s.text(p.data[k][i])));
    set(p.out, index !== null && index < p.xs.length - 1 ? words.second(p.xs[i] * 1000) : this.beside(p));
  }

  beside(p) {
    const r = this.room;
    if (p.key === 'origin' && r.origin?.target_p95_seconds) return 'target p95 ' + words.millis(r.origin.target_p95_seconds);
    if (p.key !== 'waiting' || !r.waiting) return '';
    return r.empty_at ? 'empty about ' + words.clock(r.empty_at) + ' at these rates' : 'never empty at these rates';
  }

  describe(p, i) {
    return p.name + '. Now: ' + (p.series.map((s, k) => [s, p.data[k][i]]).filter(([, v]) => v !== null && v !== undefined).map(([s, v]) => s.name + ' ' + s.text(v)).join(', ') || 'no values') + '.';
  }

  // position returns the place of a time in the plots, in pixels from their left; undefined outside.
  position(at) {
    const chart = this.plots[0].chart;
    if (!chart || at < chart.scales.x.min || at > chart.scales.x.max) return undefined;
    return chart.valToPos(at, 'x') + chart.bbox.left / devicePixelRatio;
  }

  // bounds returns the first and last time of the plots, and their pixels.
  bounds() {
    const chart = this.plots[0].chart;
    if (!chart || chart.scales.x.min === null || chart.scales.x.min === undefined) return null;
    const left = chart.bbox.left / devicePixelRatio;
    return {from: chart.scales.x.min, to: chart.scales.x.max, left, width: chart.bbox.width / devicePixelRatio};
  }
}

const axisTime = (v, step) => {
  const d = new Date(v * 1000);
  if (step >= 86400) return d.toLocaleDateString('en-GB', {day: 'numeric', month: 'short'});
  return step < 60 ? words.second(d) : words.clock(d);
};
