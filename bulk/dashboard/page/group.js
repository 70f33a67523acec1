// One group: its counts, result, dead letters and its tenant's congestion.

const page = $('#group'), dead = $('#dead'), letters = $('tbody', dead);
let shown, wanted = deadAPage, redriving = false;
function openGroup(id, job) {
  came = id;
  shown = undefined;
  wanted = deadAPage;
  let turnNo = 0, read = '';
  for (const part of ['#known', '#unknown', '#result', '#errors', '#dead', '#history']) $(part).hidden = true;
  set($('#grouphead'), id);
  for (const e of page.querySelectorAll('[data-f],#dead .error')) set(e, '');
  $('.tags', page).replaceChildren();
  $('svg.parts').replaceChildren();
  letters.replaceChildren();
  findJob(job);
  jobField.value = job;
  $('[name=rate]', dead).value = '';
  for (const b of page.querySelectorAll('.actions [data-a]')) b.hidden = true;
  document.title = id + ' · Anteroom bulk';
  loop(async signal => {
    const g = await ask(of(id), {signal}).catch(e => { if (e.status !== 404) throw e; });
    if (signal.aborted) return;
    const opening = page.hidden || $('#known').hidden && $('#unknown').hidden;
    show('group');
    $('#known').hidden = !g;
    $('#unknown').hidden = !!g;
    if (opening) { $('#grouphead').focus(); scrollTo(0, 0); }
    if (!g) return;
    showGroup(g);
    await readJob(signal);
    if (signal.aborted) return;
    // Expensive data is read less often, and once more when the group has ended.
    const state = g.status + g.dead + wanted;
    if (turnNo++ % 5 === 0 || state !== read) {
      const [result, lines, past] = await Promise.all([
        ended(g) ? ask(of(id, '/result'), {signal}) : null,
        g.dead ? ask('dead?' + new URLSearchParams({group: id, limit: wanted + 1}), {signal, lines: wanted + 1}) : [],
        ask('congestion/' + encodeURIComponent(g.tenant) + '/history?minutes=60', {signal})]);
      if (signal.aborted) return;
      read = state;
      showResult(result);
      showDead(g, lines);
      showHistory(g, past.history);
    }
  }, view);
}
function showGroup(g) {
  if (shown && shown.status !== g.status) say(g.id + ' is ' + g.status + '.', g.status === 'FAILED');
  shown = g;
  const eta = etaOf(g);
  tags($('.tags', page), [...stateOf(g), ...(ended(g) ? [] : [['congestion ' + g.congestion, tones[g.congestion]]])]);
  put(page, {
    about: [g.tenant, g.type, 'priority ' + g.priority, 'created ' + moment(g.created_at), g.finished_at && 'ended ' + moment(g.finished_at),
      g.start_at && 'starts ' + moment(g.start_at), g.expires_at && 'expires ' + moment(g.expires_at), g.after && 'after ' + g.after.join(', ') + ' ' + g.when,
      g.quiet_hours && 'quiet from ' + g.quiet_hours.from + ' to ' + g.quiet_hours.to + ' ' + g.quiet_hours.time_zone, g.redrive_of && 'redrive of ' + g.redrive_of, g.results !== 'all' && 'keeps ' + {failures: 'outcomes of failures only', none: 'no outcomes'}[g.results], g.labels && Object.entries(g.labels).map(l => l.join('=')).join(' '), g.error].filter(Boolean).join(' · '),
    done: percent(g), of: whole(doneOf(g)) + ' of ' + whole(g.total), succeeded: whole(g.succeeded), failed: whole(g.failed + g.dead),
    dead: [g.dead && whole(g.dead) + ' dead', g.cancelled && whole(g.cancelled) + ' cancelled'].filter(Boolean).join(', '),
    pending: whole(waitingOf(g)), nonready: g.non_ready ? whole(g.non_ready) + ' back off' : '', inflight: whole(g.in_flight),
    throttles: number(g.throttles_per_job) + ' throttles a job', rate: ended(g) ? '–' : number(g.rate), cap: g.rate_limit ? 'of at most ' + perSecond(g.rate_limit) : '', eta: eta[0], range: eta[1],
  });
  let x = 0;
  const svg = $('svg.parts');
  svg.replaceChildren(...[['good', g.succeeded], ['bad', g.failed + g.dead], ['warn', g.cancelled]].map(([tone, n]) => {
    const r = document.createElementNS(svg.namespaceURI, 'rect'), w = g.total ? 1000 * n / g.total : 0;
    for (const [k, v] of Object.entries({x, width: w, height: 10, class: 'fill-' + tone})) r.setAttribute(k, v);
    x += w;
    return r;
  }));
  svg.setAttribute('aria-label', percent(g) + ' done: ' + whole(g.succeeded) + ' succeeded, ' + whole(g.failed + g.dead) + ' failed, ' + whole(g.cancelled) + ' cancelled');
  choose(page, g);
}
buttons(page, () => shown, showGroup);
function showResult(r) {
  $('#result').hidden = !r;
  if (!r) return $('#errors').hidden = true;
  set($('#result pre'), JSON.stringify(r, null, 2));
  const codes = Object.entries(r.errors || {}).sort((a, b) => b[1] - a[1]);
  $('#errors').hidden = !codes.length;
  $('#errors dl').replaceChildren(...codes.flatMap(([code, n]) => [make('dt', code), make('dd', whole(n))]));
}
function showDead(g, lines) {
  dead.hidden = !lines.length && !g.failed; // redriven jobs have left
  $('table', dead).hidden = !lines.length;
  const part = lines.slice(0, wanted);
  set($('.note', dead), whole(g.dead) + (g.dead === 1 ? ' job is' : ' jobs are') + ' dead: no tries left, or no processor. ' + whole(g.failed) + ' failed permanently. A redrive runs them again in a new group.');
  $('[data-a=more]', dead).hidden = lines.length <= wanted;
  rows(letters, part, d => JSON.stringify([d.id, d.attempts]), d => {
    const tr = copyOf('#letter'), payload = JSON.stringify(d.payload ?? null);
    put(tr, {id: d.id, attempts: whole(d.attempts), code: d.code || '', error: d.error || '',
      short: payload.length > 80 ? payload.slice(0, 80) + '…' : payload, payload: JSON.stringify(d.payload ?? null, null, 2)});
    return tr;
  });
}
$('[data-a=more]', dead).addEventListener('click', () => { wanted += deadAPage; wake(); });
$('form', dead).addEventListener('submit', async e => {
  e.preventDefault();
  const input = $('[name=rate]', dead), text = input.value.trim(), error = $('.error', dead);
  if (redriving) return;
  if (text && !isRate(text)) {
    set(error, 'rate: “' + text + '” is not a number such as 10 or 2.5');
    return input.focus();
  }
  set(error, '');
  redriving = true;
  const here = view, told = g => say(g.id + ' runs jobs of ' + g.redrive_of + ' again.');
  const codes = $('[name=codes]', dead).value.split(/[\s,]+/).filter(Boolean), body = {statuses: $('[name=statuses]', dead).value.split(',')};
  if (codes.length) body.codes = codes;
  if (text) body.rate = Number(text);
  try {
    const g = await ask(of(shown.id, '/redrive'), {method: 'POST', body});
    if (here !== view) told(g);
    else {
      addEventListener('hashchange', () => told(g), {once: true});
      location.hash = 'group/' + encodeURIComponent(g.id);
    }
  } catch (e) {
    set(error, e.message);
  }
  redriving = false;
});

// -- history
function showHistory(g, points) {
  $('#history').hidden = points.length < 2;
  if (points.length < 2) return;
  set($('#history h3'), 'Congestion of ' + g.tenant);
  draw($('[data-c=non_ready]'), points.map(p => [Date.parse(p.at), p.non_ready]), whole);
  draw($('[data-c=backoff]'), points.map(p => [Date.parse(p.at), p.backoff_seconds]), v => number(v) + ' s');
}
// draw draws a curve of [time, value] points; of many it keeps the highest of each interval.
function draw(svg, points, words) {
  const w = 400, h = 96, from = points[0][0], until = Math.max(points.at(-1)[0], from + 1000);
  const kept = [];
  for (const [t, v] of points) {
    const x = Math.round((t - from) / (until - from) * w);
    if (kept.at(-1)?.x !== x) kept.push({x, t, v});
    else if (v > kept.at(-1).v) Object.assign(kept.at(-1), {t, v});
  }
  const top = Math.max(...kept.map(p => p.v)), y = v => (h - 2 - v / (top || 1) * (h - 8)).toFixed(1);
  const path = (d, cls) => {
    const e = document.createElementNS(svg.namespaceURI, 'path');
    e.setAttribute('d', d);
    e.setAttribute('class', cls);
    return e;
  };
  const line = kept.map((p, i) => (i ? 'H' + p.x + 'V' : 'M' + p.x + ' ') + y(p.v)).join(''), cursor = path('', 'cursor');
  svg.replaceChildren(...[.25, .5, .75, 1].map(q => path('M0 ' + y(q * (top || 1)) + 'H' + w, 'grid')),
    path(line + 'V' + h + 'H' + kept[0].x + 'Z', 'area'), path(line, 'curve'), cursor);
  const out = $('output', svg.parentNode), last = points.at(-1)[1];
  const summary = 'now ' + words(last) + ', at most ' + words(top) + ' in ' + span((until - from) / 1000);
  set(out, summary);
  svg.setAttribute('aria-label', $('figcaption span', svg.parentNode).textContent + ': ' + summary);
  svg.onpointermove = e => {
    const box = svg.getBoundingClientRect(), at = (e.clientX - box.left) / box.width * w;
    const p = kept.reduce((a, b) => Math.abs(b.x - at) < Math.abs(a.x - at) ? b : a);
    cursor.setAttribute('d', 'M' + p.x + ' 0V' + h);
    set(out, new Date(p.t).toLocaleTimeString() + ' ' + words(p.v));
  };
  svg.onpointerleave = () => { cursor.setAttribute('d', ''); set(out, summary); };
}
