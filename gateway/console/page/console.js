'use strict';
// The console: fetches /admin/v1 with the token and shows it. It never builds HTML from text.
(() => {
  const every = {rooms: 2000, records: 15000};
  const stale = 5; // seconds without the store before the page warns
  const $ = (s, in_ = document) => in_.querySelector(s);
  const cards = new Map();
  let token = sessionStorage.getItem('token') || '', generation = 0, timers = [];

  // -- numbers and words
  const whole = new Intl.NumberFormat('en'), some = new Intl.NumberFormat('en', {maximumFractionDigits: 3});
  const measured = v => new Intl.NumberFormat('en', {maximumFractionDigits: v < 1 ? 2 : 1}).format(v);
  const span = s => {
    s = Math.round(s);
    if (s < 60) return s + ' s';
    if (s < 3600) return Math.floor(s / 60) + ' min' + (s % 60 && s < 600 ? ' ' + s % 60 + ' s' : '');
    return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  };
  const clock = t => new Date(t).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});
  const make = (name, text, cls) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  };
  const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };

  // -- the API
  class Refused extends Error {
    constructor(status, p, after) {
      const lines = (p.problems || []).map(f => f.path + ' ' + f.problem + (f.allowed ? ': ' + f.allowed : ''));
      super(lines.length ? lines.join('\n') : p.detail || 'The gateway responded ' + status + '.');
      this.status = status;
      this.after = after;
    }
  }
  async function api(method, path, body) {
    const headers = token ? {Authorization: 'Bearer ' + token} : {};
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    const r = await fetch('/admin/v1/' + path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store', credentials: 'omit', redirect: 'error', signal: AbortSignal.timeout(10000)});
    if (r.ok) return r.status === 204 ? null : r.json();
    throw new Refused(r.status, await r.json().catch(() => ({})), r.headers.get('Retry-After'));
  }
  const roomPath = (id, rest = '') => 'rooms/' + encodeURIComponent(id) + rest;

  // -- token and connection
  const form = $('#enter');
  function askForToken(why) {
    stop();
    form.hidden = false;
    $('#rooms').replaceChildren();
    cards.clear();
    $('#log').hidden = $('#leave').hidden = $('#alarm').hidden = true;
    set($('.error', form), why);
    set($('#link'), 'Not connected');
    $('#token').focus();
  }
  form.addEventListener('submit', e => {
    e.preventDefault();
    token = $('#token').value.trim();
    $('#token').value = '';
    start();
  });
  $('#leave').addEventListener('click', () => {
    sessionStorage.removeItem('token');
    token = '';
    askForToken('');
  });
  function stop() {
    generation++;
    timers.forEach(clearTimeout);
    timers = [];
  }
  async function start() {
    stop();
    set($('.error', form), '');
    if (!/^[\x21-\x7e]*$/.test(token)) return askForToken('A token has printable ASCII characters and no blanks.');
    if (!await refresh()) return;
    loop(refresh, every.rooms);
    loop(records, every.records);
    records();
  }
  function loop(work, ms) {
    const mine = generation;
    const next = () => timers.push(setTimeout(async () => {
      if (mine !== generation) return;
      if (!document.hidden) await work();
      if (mine === generation) { timers = timers.slice(-4); next(); }
    }, ms));
    next();
  }
  document.addEventListener('visibilitychange', () => { if (!document.hidden && form.hidden) { refresh(); records(); } });

  // refresh reads the rooms; it returns false after a change to the token form.
  async function refresh() {
    const mine = generation;
    let list;
    try {
      list = (await api('GET', 'rooms')).rooms;
    } catch (e) {
      if (mine !== generation) return false;
      if (e instanceof Refused && (e.status === 401 || e.status === 403 || e.status === 429)) {
        sessionStorage.removeItem('token');
        askForToken(e.status === 401 && !token ? '' : e.message + (e.after ? ' Try again in ' + span(+e.after) + '.' : ''));
        return false;
      }
      set($('#link'), 'Not connected');
      alarm('The gateway does not respond; the page shows old data. ' + (e instanceof Refused ? e.message : ''));
      return true;
    }
    if (mine !== generation) return false;
    if (token) sessionStorage.setItem('token', token);
    form.hidden = true;
    $('#log').hidden = false;
    $('#leave').hidden = !token;
    show(list);
    return true;
  }
  function alarm(text) {
    const e = $('#alarm');
    e.hidden = !text;
    set(e, text);
  }
  function show(list) {
    for (const [id, card] of cards) if (!list.some(r => r.id === id)) { card.root.remove(); cards.delete(id); }
    for (const r of list) {
      if (!cards.has(r.id)) cards.set(r.id, newCard(r.id));
      cards.get(r.id).show(r);
    }
    const never = list.filter(r => r.store_age_seconds === undefined);
    const old = list.filter(r => r.store_age_seconds > stale);
    const age = Math.max(0, ...list.map(r => r.store_age_seconds || 0));
    set($('#link'), list.length === 0 ? 'Connected, no rooms are configured' : 'Connected' + (never.length ? '' : ', store read ' + (age < 1 ? 'just now' : span(age) + ' ago')));
    alarm(never.length ? 'The gateway has not reached the store since it started: new visitors follow on_store_error.'
      : old.length ? 'The gateway has not reached the store for ' + span(age) + '. Passes keep working and no visitor loses a place; new visitors follow on_store_error, and changes are refused until it is back.' : '');
    const waiting = list.reduce((n, r) => n + r.waiting, 0);
    document.title = (waiting ? whole.format(waiting) + ' waiting · ' : '') + 'Anteroom console';
  }

  // -- one room
  function newCard(id) {
    const root = $('#room').content.firstElementChild.cloneNode(true);
    const $r = s => $(s, root), f = name => $r('[data-f=' + name + ']');
    const head = $r('h2');
    head.textContent = id;
    head.id = 'room-' + id;
    root.setAttribute('aria-labelledby', head.id);
    root.dataset.room = id;
    $('#rooms').append(root);
    let room;

    const report = (text, bad) => { const e = $r('.said'); set(e, text); e.classList.toggle('bad', !!bad); };
    async function act(button, what, done) {
      button.disabled = true;
      try {
        const answer = await what();
        if (answer) card.show(answer);
        report(done);
        records();
        return true;
      } catch (e) {
        report(e.message, true);
        return false;
      } finally {
        button.disabled = false;
        if (room) card.show(room);
      }
    }
    const button = name => $r('[data-a=' + name + ']');
    const did = {pause: 'Paused: no visitor is admitted, visitors still join the queue.', drain: 'Draining: no visitor joins, waiting visitors are still admitted.', resume: 'Running again.'};
    for (const name of Object.keys(did)) {
      button(name).addEventListener('click', e => act(e.currentTarget, () => api('POST', roomPath(id, '/' + name)), did[name]));
    }
    button('reset').addEventListener('click', async e => {
      const b = e.currentTarget;
      if (await confirmReset(id)) act(b, () => api('POST', roomPath(id, '/reset'), {confirm: id}), 'Reset: the room is empty.');
    });

    // settings: a field that is being edited is not overwritten
    const settings = $r('[data-form=settings]'), fields = settings.elements;
    const shown = r => ({rate: String(r.policy.rate), burst: String(r.policy.burst), max_active: String(r.policy.max_active),
      ttl: r.policy.session.ttl, method: r.policy.method, message: r.policy.message});
    let base = {};
    const dirty = name => base[name] !== undefined && fields[name].value.replaceAll('\r\n', '\n') !== base[name];
    settings.addEventListener('submit', async e => {
      e.preventDefault();
      const error = $('.error', settings), patch = {};
      set(error, '');
      for (const name of ['rate', 'burst', 'max_active']) {
        if (!dirty(name)) continue;
        const text = fields[name].value.trim();
        if (!/^\d+(\.\d+)?$/.test(text)) { set(error, name + ' is not a number such as 10 or 2.5'); fields[name].focus(); return; }
        patch[name] = Number(text);
      }
      if (dirty('ttl')) patch.session = {ttl: fields.ttl.value.trim()};
      if (dirty('method')) patch.method = fields.method.value;
      if (dirty('message')) patch.message = fields.message.value;
      if (!Object.keys(patch).length) { report('Nothing has been changed.'); return; }
      await save(e.submitter || $('button', settings), patch, 'Applied.');
    });
    button('tofile').addEventListener('click', e => save(e.currentTarget,
      {rate: null, burst: null, max_active: null, message: null, method: null, enabled: null, session: {ttl: null}}, 'Returned to the configuration.'));
    async function save(b, patch, done) {
      const before = base;
      base = {}; // the response fills the form again
      if (!await act(b, () => api('PATCH', roomPath(id), patch), done)) {
        base = before;
        set($('.error', settings), $r('.said').textContent);
        report('');
      }
    }
    function fill(r) {
      const now = shown(r);
      for (const name of Object.keys(now)) {
        if (base[name] === undefined || !dirty(name)) {
          if (fields[name].value !== now[name]) fields[name].value = now[name];
          base[name] = now[name];
        }
      }
      const l = r.live, names = [];
      for (const [name, v] of Object.entries({rate: l.rate, burst: l.burst, max_active: l.max_active, session: l.session?.ttl,
        method: l.method, message: l.message, enabled: l.enabled})) if (v !== undefined) names.push(name);
      set($('[data-live]', settings), names.length ? 'Changed live, over the configuration: ' + names.join(', ') + '.' : 'All as configured.');
      button('tofile').disabled = !names.length;
    }

    // tickets
    const finder = $r('[data-form=ticket]'), found = $('[data-ticket]', finder), pairs = $('.pairs', finder);
    let ticket = '';
    async function find() {
      set($('.error', finder), '');
      try {
        const t = await api('GET', roomPath(id, '/tickets/' + encodeURIComponent(ticket)));
        pairs.replaceChildren();
        const row = (k, v) => { if (v !== undefined) pairs.append(make('dt', k), make('dd', v)); };
        row('State', t.state + (t.parked ? ', parked (no recent heartbeat)' : ''));
        row('Reason', t.reason);
        row('Position', t.position && whole.format(t.position));
        row('Waiting for', t.waited_seconds === undefined ? undefined : span(t.waited_seconds));
        row('Last heartbeat', t.seen_seconds_ago === undefined ? undefined : span(t.seen_seconds_ago) + ' ago');
        row('Admitted', t.admitted_at && new Date(t.admitted_at).toLocaleString());
        button('remove').hidden = t.state !== 'waiting' && t.state !== 'admitted';
        button('revoke').hidden = t.state !== 'active';
        found.hidden = false;
      } catch (e) {
        found.hidden = true;
        set($('.error', finder), e.message);
      }
    }
    finder.addEventListener('submit', e => { e.preventDefault(); ticket = finder.elements.jti.value.trim(); find(); });
    button('remove').addEventListener('click', async e => {
      if (await act(e.currentTarget, () => api('DELETE', roomPath(id, '/tickets/' + encodeURIComponent(ticket))), 'Removed ' + ticket + '.')) find();
    });
    button('revoke').addEventListener('click', async e => {
      if (await act(e.currentTarget, () => api('POST', roomPath(id, '/sessions/' + encodeURIComponent(ticket) + '/revoke')), 'Revoked ' + ticket + '.')) find();
    });

    const card = {
      root,
      show(r) {
        room = r;
        const p = r.policy, limit = r.budget ? Math.min(p.rate, r.budget.expected) : p.rate;
        const tags = [];
        if (!p.enabled) tags.push(['switched off', 'bad']);
        if (p.method === 'reject') tags.push(['closed', 'bad']);
        if (p.method === 'passthrough') tags.push(['passthrough', 'warn']);
        const when = t => new Date(t).toLocaleString([], {dateStyle: 'medium', timeStyle: 'short'});
        const called = e => e.name || e.method || 'event';
        if (r.lottery && !r.lottery.drawn) tags.push(['lottery, ' + whole.format(r.lottery.gathered) + ' gathered, opens ' + when(r.lottery.opens_at), 'warn']);
        if (r.lottery && r.lottery.drawn) tags.push(['lottery, drawn', '']);
        if (r.event) tags.push([called(r.event) + ' until ' + when(r.event.ends_at), 'warn']);
        if (r.next_event) tags.push(['next: ' + called(r.next_event) + ' ' + when(r.next_event.prequeue_at || r.next_event.starts_at), '']);
        if (r.paused) tags.push(['paused', 'warn']);
        if (r.draining) tags.push(['draining', 'warn']);
        if (r.store_age_seconds === undefined || r.store_age_seconds > stale) tags.push(['store unreachable', 'bad']);
        if (r.adaptive && r.adaptive.unmoved) tags.push(['at min rate, origin still unhealthy', 'bad']);
        if (!tags.length) tags.push([r.waiting ? 'running, with a queue' : 'running, no queue', '']);
        const list = $r('.tags');
        if (list.textContent !== tags.map(t => t[0]).join('')) list.replaceChildren(...tags.map(t => make('li', t[0], t[1])));
        set(f('waiting'), whole.format(r.waiting));
        set(f('parked'), r.parked ? whole.format(r.parked) + ' parked' : '');
        set(f('active'), whole.format(r.active));
        set(f('admitted'), [p.max_active ? 'of ' + whole.format(p.max_active) : '', r.admitted ? whole.format(r.admitted) + ' admitted, not entered yet' : ''].filter(Boolean).join(', '));
        set(f('rate'), measured(r.rate));
        set(f('limit'), r.budget ? 'of ' + some.format(limit) + '/s, budget ' + some.format(r.budget.rate) + '/s' : 'of ' + some.format(limit) + '/s, burst ' + some.format(p.burst));
        set(f('eta'), r.eta ? span(r.eta.seconds) : '–');
        set(f('oldest'), r.eta && r.eta.seconds ? span(r.eta.low) + ' to ' + span(r.eta.high) : r.oldest_wait_seconds ? 'longest so far ' + span(r.oldest_wait_seconds) : '');
        const share = limit > 0 ? Math.min(1, r.rate / limit) : 0;
        $r('.bar i').style.width = (100 * share).toFixed(1) + '%';
        set($r('.health'), [r.oldest_wait_seconds ? 'Longest wait so far ' + span(r.oldest_wait_seconds) : '',
          r.guard ? 'refused joins ' + measured(Object.values(r.guard.joins_refused).reduce((a, b) => a + b, 0)) + (r.guard.proof_number ? ', a proof takes ' + measured(r.guard.proof_number) + ' hashes at most' : '') : '',
          r.eta_error ? 'announced / real wait ' + measured(r.eta_error) + ', in range ' + Math.round(100 * (r.eta_coverage || 0)) + ' %' : '',
          r.adaptive ? 'origin ' + r.adaptive.state + (r.adaptive.pinned ? ', rate set by an operator' : '') + (r.adaptive.target === undefined ? '' :
            ', target ' + some.format(r.adaptive.target) + '/s of ' + some.format(r.adaptive.min_rate) + ' to ' + some.format(r.adaptive.max_rate) + (r.adaptive.shadow ? ' (shadow)' : '')) +
            (r.adaptive.score === undefined ? '' : ', score ' + measured(r.adaptive.score)) +
            (r.adaptive.at_min_rate_seconds ? ', at min rate for ' + span(r.adaptive.at_min_rate_seconds) + ' without improvement' : '') : '',
          r.adaptive ? 'p95 ' + Math.round(r.adaptive.p95_seconds * 1000) + ' of ' + Math.round(r.adaptive.target_p95_seconds * 1000) + ' ms, errors ' + measured(r.adaptive.error_rate * 100) + ' %' :
          'origin p95 ' + Math.round(r.origin.p95_seconds * 1000) + ' ms, errors ' + measured(r.origin.error_rate * 100) + ' %'].filter(Boolean).join(' · '));
        button('pause').hidden = r.paused;
        button('drain').hidden = r.draining;
        button('resume').hidden = !r.paused && !r.draining;
        fill(r);
      },
      async history() {
        let all;
        try {
          all = (await api('GET', roomPath(id, '/history?minutes=60'))).buckets;
        } catch { return; } // the alarm shows the error, and the old curve stays
        // The curve of a new room begins with the room.
        const first = all.findIndex(b => b.joins || b.admissions || b.waiting);
        const buckets = all.slice(Math.max(0, Math.min(first < 0 ? all.length : first - 1, all.length - 15)));
        draw($r('[data-c=waiting]'), buckets, ['waiting'], true);
        draw($r('[data-c=flow]'), buckets, ['joins', 'admissions'], false);
      },
    };
    return card;
  }

  // -- charts
  const words = {waiting: 'waiting', joins: 'joined', admissions: 'admitted'};
  function draw(svg, buckets, series, area) {
    const w = 400, h = 96, top = Math.max(1, ...buckets.flatMap(b => series.map(s => b[s])));
    const x = i => buckets.length < 2 ? w : i * w / (buckets.length - 1), y = v => h - 2 - v / top * (h - 8);
    const path = (d, cls) => {
      const e = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      e.setAttribute('d', d);
      e.setAttribute('class', cls);
      return e;
    };
    const line = s => buckets.map((b, i) => (i ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(b[s]).toFixed(1)).join('');
    const parts = [.25, .5, .75, 1].map(g => path('M0 ' + y(top * g) + 'H' + w, 'grid'));
    if (area && buckets.length) parts.push(path(line(series[0]) + 'V' + h + 'H' + x(0) + 'Z', 'area'));
    if (buckets.length) series.forEach(s => parts.push(path(line(s), s)));
    const cursor = path('', 'cursor');
    svg.replaceChildren(...parts, cursor);
    const out = $('output', svg.parentNode), last = buckets.at(-1);
    const text = b => clock(b.at) + ' ' + series.map(s => whole.format(b[s]) + ' ' + words[s]).join(', ');
    const rest = !last ? 'no history yet' : 'top ' + whole.format(Math.max(...buckets.flatMap(b => series.map(s => b[s])))) + (area ? ', ' : ' a minute, ') + buckets.length + ' min';
    set(out, rest);
    svg.setAttribute('aria-label', last ? series.map(s => words[s]).join(' and ') + ' over the last ' + buckets.length + ' minutes. Now: ' + text(last) + '. Highest: ' + whole.format(top) + '.' : 'No history yet');
    svg.onpointermove = e => {
      if (!last) return;
      const box = svg.getBoundingClientRect();
      const i = Math.max(0, Math.min(buckets.length - 1, Math.round((e.clientX - box.left) / box.width * (buckets.length - 1))));
      cursor.setAttribute('d', 'M' + x(i) + ' 0V' + h);
      set(out, text(buckets[i]));
    };
    svg.onpointerleave = () => { cursor.setAttribute('d', ''); set(out, rest); };
  }

  // -- history and changes
  async function records() {
    const mine = generation;
    await Promise.all([...cards.values()].map(c => c.history()));
    let entries;
    try {
      entries = (await api('GET', 'audit?limit=50')).entries;
    } catch { return; } // the alarm shows the error
    if (mine !== generation) return;
    const body = $('#log tbody');
    body.replaceChildren(...entries.map(e => {
      const row = make('tr');
      row.append(make('td', new Date(e.at).toLocaleString(), 'when'), make('td', e.who), make('td', e.room), make('td', e.action), make('td', difference(e.before, e.after), 'what'));
      return row;
    }));
    $('#log table').hidden = !entries.length;
    $('[data-empty]').hidden = entries.length > 0;
  }
  // difference returns what an entry changed, as "rate 10 → 5".
  function difference(before, after) {
    const flat = (v, at = '', to = {}) => {
      if (v && typeof v === 'object' && !Array.isArray(v)) for (const k in v) flat(v[k], at ? at + '.' + k : k, to);
      else if (v !== null && v !== undefined) to[at] = v;
      return to;
    };
    const a = flat(before), b = flat(after), text = v => v === undefined ? 'configuration' : typeof v === 'string' ? '“' + v + '”' : String(v);
    return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(k => a[k] !== b[k])
      .map(k => (k ? k + ' ' : '') + (k in a || k in b ? text(a[k]) + ' → ' + text(b[k]) : '')).join(', ');
  }

  // -- reset
  const dialog = $('#confirm'), typed = $('input', dialog), sure = $('[type=submit]', dialog);
  let wanted = '', answered = () => {};
  function confirmReset(id) {
    wanted = id;
    set($('h2', dialog), 'Empty the room ' + id + '?');
    set($('label span', dialog), 'Type ' + id + ' to confirm');
    typed.value = '';
    sure.disabled = true;
    dialog.returnValue = '';
    dialog.showModal();
    typed.focus();
    return new Promise(resolve => { answered = resolve; });
  }
  typed.addEventListener('input', () => { sure.disabled = typed.value !== wanted; });
  $('form', dialog).addEventListener('submit', e => { e.preventDefault(); if (typed.value === wanted) dialog.close('yes'); });
  $('[data-a=cancel]', dialog).addEventListener('click', () => dialog.close(''));
  dialog.addEventListener('close', () => answered(dialog.returnValue === 'yes'));

  start();
})();
