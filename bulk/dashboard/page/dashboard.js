'use strict';
// The dashboard: asks the public API under /v1 and shows the answers. It never builds HTML from text, and the token goes
// into a header only.
(() => {
  const every = 2000, groupsAPage = 25, deadAPage = 20;
  const $ = (s, root = document) => root.querySelector(s);
  const ended = g => ['COMPLETED', 'FAILED', 'CANCELLED'].includes(g.status);
  let token = sessionStorage.getItem('token') || '';
  let view = new AbortController(), held = false, again = false, go = () => {};

  // -- words
  const whole = v => new Intl.NumberFormat('en').format(v || 0);
  const number = v => new Intl.NumberFormat('en', {maximumFractionDigits: v < 10 ? 2 : v < 1000 ? 1 : 0}).format(v || 0);
  const perSecond = v => new Intl.NumberFormat('en', {maximumFractionDigits: 3}).format(v);
  const span = s => {
    if (s < 10) return number(s) + ' s';
    const t = Math.round(s), h = Math.floor(t / 3600), min = Math.floor(t % 3600 / 60);
    if (t < 60) return t + ' s';
    if (t < 3600) return min + ' min' + (t < 600 && t % 60 ? ' ' + t % 60 + ' s' : '');
    return h < 48 ? h + ' h ' + min + ' min' : Math.floor(h / 24) + ' d ' + h % 24 + ' h';
  };
  const moment = t => new Date(t).toLocaleString();
  const tones = {RUNNING: 'on', AGGREGATING: 'on', COMPLETED: 'good', FAILED: 'bad', none: '', low: 'good', moderate: 'warn', high: 'bad', critical: 'bad'};
  const level = v => v || 'none';

  // -- elements
  const make = (name, text, cls) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  };
  const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };
  const put = (root, texts) => { for (const name in texts) set($('[data-f=' + name + ']', root), texts[name]); };
  const tags = (list, words) => {
    if (list.textContent !== words.map(w => w[0]).join('')) list.replaceChildren(...words.map(w => make('li', w[0], 'tag ' + (w[1] || ''))));
  };
  // A table that is laid out as cards would lose what it is to some screen readers.
  const role = {TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TR: 'row', TD: 'cell', TH: 'columnheader', row: 'rowheader'};
  const roles = root => {
    for (const e of [root, ...root.querySelectorAll('*')]) if (role[e.scope || e.tagName]) e.setAttribute('role', role[e.scope || e.tagName]);
    return root;
  };
  document.querySelectorAll('.cards').forEach(roles);
  const copyOf = id => roles($(id).content.firstElementChild.cloneNode(true));
  // rows keeps a table's rows by their key, so that what has the focus or is open stays.
  const rows = (body, items, key, create) => {
    const kept = new Map([...body.children].map(e => [e.dataset.key, e])), keys = items.map(key);
    for (const [k, e] of kept) if (!keys.includes(k)) e.remove();
    items.forEach((item, i) => {
      const e = kept.get(keys[i]) || create(item);
      e.dataset.key = keys[i];
      e.show?.(item);
      if (body.children[i] !== e) body.insertBefore(e, body.children[i] || null);
    });
  };
  const heat = (root, text) => {
    const e = $('[data-f=congestion]', root);
    set(e, text);
    e.className = 'tag ' + (tones[text] || '');
  };
  const say = (text, bad) => { set($('#said'), text); $('#said').classList.toggle('bad', !!bad); };
  const alarm = text => { $('#alarm').hidden = !text; set($('#alarm'), text); };
  const show = (...names) => { for (const n of ['enter', 'totals', 'list', 'group']) $('#' + n).hidden = !names.includes(n); };

  // -- the API
  class Refused extends Error {
    constructor(status, p, after) {
      const faults = (p.problems || []).map(f => [f.path, f.problem, f.allowed].filter(Boolean).join(': '));
      super(faults.length ? faults.join('\n') : p.detail || 'The bulk worker answered ' + status + '.');
      Object.assign(this, {status, after});
    }
  }
  async function ask(path, {method = 'GET', body, signal, lines} = {}) {
    const headers = token ? {Authorization: 'Bearer ' + token} : {};
    if (body) headers['Content-Type'] = 'application/json';
    const limit = AbortSignal.timeout(method === 'GET' ? 15000 : 600000); // a redrive goes through all its jobs
    const r = await fetch('/v1/' + path, {method, headers, body: body && JSON.stringify(body), cache: 'no-store', credentials: 'omit',
      redirect: 'error', signal: signal ? AbortSignal.any([signal, limit]) : limit});
    if (!r.ok) throw new Refused(r.status, await r.json().catch(() => ({})), r.headers.get('Retry-After'));
    return lines === undefined ? r.json() : first(r.body, lines);
  }
  // first reads up to n lines of NDJSON and leaves the rest unread, however long it is.
  async function first(stream, n) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader(), got = [];
    let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      const parts = (rest + (done ? '\n' : value)).split('\n');
      rest = parts.pop();
      for (const line of parts) if (line.trim() && got.length < n) got.push(JSON.parse(line));
      if (got.length >= n) reader.cancel().catch(() => {});
      if (done || got.length >= n) return got;
    }
  }
  const of = (id, rest = '') => 'groups/' + encodeURIComponent(id) + rest;

  // -- coming and going
  const form = $('#enter'), field = $('#token');
  function askForToken(why) {
    view.abort();
    sessionStorage.removeItem('token');
    token = '';
    show('enter');
    $('#leave').hidden = $('#hold').hidden = true;
    alarm('');
    say('');
    set($('.error', form), why);
    set($('#link'), 'Not connected');
    document.title = 'Anteroom bulk';
    field.focus();
  }
  form.addEventListener('submit', e => {
    e.preventDefault();
    token = field.value.trim();
    field.value = '';
    if (/^[\x21-\x7e]*$/.test(token)) open();
    else askForToken('A token has printable ASCII characters and no blanks.');
  });
  $('#leave').addEventListener('click', () => askForToken(''));
  $('#hold').addEventListener('click', e => {
    held = !held;
    e.currentTarget.setAttribute('aria-pressed', held);
    awake() ? wake() : rest();
  });
  document.addEventListener('visibilitychange', () => { awake() ? wake() : rest(); });
  const awake = () => !document.hidden && !held;
  const wake = () => { again = true; go(); };
  const rest = () => { if (form.hidden) set($('#link'), held ? 'Held: the figures stand still' : 'Paused while this tab is hidden'); };

  // loop repeats work, while somebody looks, until the view is left. What is done by hand wakes it.
  async function loop(work, {signal}) {
    for (;;) {
      again = false;
      try {
        await work(signal);
        if (signal.aborted) return;
        if (token) sessionStorage.setItem('token', token);
        alarm('');
        awake() ? set($('#link'), 'Connected') : rest();
      } catch (e) {
        if (signal.aborted) return;
        if (e.status === 401 || e.status === 429) {
          return askForToken(e.status === 401 && !token ? '' : e.message + (e.after ? ' Try again in ' + span(+e.after) + '.' : ''));
        }
        set($('#link'), 'Not connected');
        alarm(e.status ? e.message : 'The bulk worker does not answer; what is shown is old.');
      }
      if (!again) await new Promise(r => { go = r; if (awake()) setTimeout(r, every); });
      if (signal.aborted) return;
    }
  }

  // open shows what the address asks for: #group/<id>, or the list, as #?tenant=acme&status=RUNNING.
  let came = '';
  function open() {
    view.abort();
    view = new AbortController();
    $('#leave').hidden = !token;
    $('#hold').hidden = false;
    say('');
    const at = location.hash.slice(1);
    if (at.startsWith('group/')) {
      let id = at.slice(6);
      try { id = decodeURIComponent(id); } catch { /* then it is meant as it stands */ }
      openGroup(id);
    } else {
      openList(new URLSearchParams(at.replace(/^\?/, '')));
    }
  }
  addEventListener('hashchange', open);

  // -- actions on a group
  const done = {pause: 'is paused: nothing of it starts.', resume: 'runs again.', cancel: 'is cancelled.'};
  async function act(g, verb, shown) {
    if (verb === 'cancel' && !await confirmed(g)) return;
    try {
      const now = await ask(of(g.id, '/' + verb), {method: 'POST'});
      say(g.id + ' ' + done[verb]);
      shown(now);
    } catch (e) {
      if (e.status === 401) return askForToken(e.message);
      say(g.id + ': ' + e.message, true);
    }
    wake();
  }
  // A button that is disabled while it works would lose the focus.
  function buttons(root, current, shown) {
    let busy = false;
    for (const verb of Object.keys(done)) {
      $('[data-a=' + verb + ']', root).addEventListener('click', async e => {
        const b = e.currentTarget;
        if (busy) return;
        busy = true;
        await act(current(), verb, shown);
        busy = false;
        if (b.hidden && [b, document.body].includes(document.activeElement)) $('[data-a]:not([hidden])', root)?.focus();
      });
    }
  }
  const choose = (root, g) => {
    $('[data-a=pause]', root).hidden = g.paused || ended(g);
    $('[data-a=resume]', root).hidden = !g.paused || ended(g);
    $('[data-a=cancel]', root).hidden = ended(g);
  };
  const dialog = $('#confirm');
  function confirmed(g) {
    set($('h2', dialog), 'Cancel ' + g.id + '?');
    set($('p', dialog), whole(waitingOf(g)) + ' jobs that have not begun never will; ' + whole(g.in_flight) + ' in flight end as they do. This cannot be undone.');
    dialog.returnValue = '';
    dialog.showModal();
    return new Promise(settle => dialog.addEventListener('close', () => settle(dialog.returnValue === 'yes'), {once: true}));
  }

  // -- figures of a group
  const waitingOf = g => (g.pending || 0) + (g.ready || 0) + (g.non_ready || 0);
  const doneOf = g => (g.succeeded || 0) + (g.failed || 0) + (g.dead || 0) + (g.cancelled || 0);
  const percent = g => Math.floor(g.progress * 1000) / 10 + ' %';
  const etaOf = g => ended(g) ? [g.finished_at ? 'took ' + span((Date.parse(g.finished_at) - Date.parse(g.created_at)) / 1000) : '–', ''] : !g.eta ? [g.paused ? 'paused' : '–', '']
    : [span(g.eta.seconds), g.eta.high > g.eta.low ? span(g.eta.low) + ' to ' + span(g.eta.high) : ''];
  const stateOf = g => [[g.status, tones[g.status]], ...(g.paused && !ended(g) ? [['paused', 'warn']] : [])];

  // -- the list
  const list = $('#list'), body = $('#list tbody'), filter = $('#filter'), pager = $('#list nav');
  let pages = [''];
  function openList(query) {
    const tenant = query.get('tenant') || '', status = query.get('status') || '';
    const {elements: f} = filter;
    f.tenant.value = tenant;
    f.status.value = status;
    if (f.status.selectedIndex < 0) f.status.value = '';
    pages = [''];
    $('#back').href = location.hash || '#';
    const leaving = came;
    came = '';
    let fresh = true;
    const totals = newTotals();
    loop(async signal => {
      const here = pages.at(-1);
      const q = new URLSearchParams({limit: groupsAPage});
      for (const [k, v] of Object.entries({tenant, status, cursor: here})) if (v) q.set(k, v);
      const [answer] = await Promise.all([ask('groups?' + q, {signal}), totals(signal)]);
      if (here !== pages.at(-1)) return;
      show('totals', 'list');
      rows(body, answer.groups, g => g.id, newRow);
      pager.hidden = pages.length < 2 && !answer.next;
      $('[data-a=newer]').disabled = pages.length < 2;
      $('[data-a=older]').disabled = !answer.next;
      $('[data-a=older]').value = answer.next || '';
      const none = !answer.groups.length, narrowed = tenant || status || pages.length > 1;
      $('table', list).hidden = none;
      $('#nomatch').hidden = !none || !narrowed;
      $('#first').hidden = !none || narrowed;
      filter.hidden = none && !narrowed;
      if (fresh) {
        fresh = false;
        // Back from a group, or from the token: go on where one was.
        if (leaving) ($('[data-key=' + CSS.escape(leaving) + '] a', body) || $('#listhead')).focus();
        else if (document.activeElement === document.body && token) $('#main').focus({preventScroll: true});
      }
    }, view);
  }
  function newRow({id}) {
    const tr = copyOf('#row'), link = $('a', tr), bar = $('progress', tr);
    let last;
    link.textContent = id;
    link.href = '#group/' + encodeURIComponent(id);
    bar.setAttribute('aria-label', 'Progress of ' + id);
    for (const b of tr.querySelectorAll('button')) b.setAttribute('aria-label', b.textContent.replace('…', '') + ' ' + id);
    tr.show = g => {
      if (last && !ended(last) && ended(g)) say(id + ' is ' + g.status + '.', g.status === 'FAILED');
      last = g;
      const eta = etaOf(g), lost = g.failed + g.dead;
      put(tr, {type: g.type || '', tenant: g.tenant, progress: percent(g) + ' of ' + whole(g.total), succeeded: whole(g.succeeded), failed: whole(lost),
        dead: g.dead ? whole(g.dead) + ' dead' : '', rate: ended(g) ? '–' : number(g.rate) + '/s', eta: eta[0], range: eta[1]});
      heat(tr, ended(g) ? '' : level(g.congestion));
      $('[data-f=failed]', tr).classList.toggle('red', lost > 0);
      tags($('.tags', tr), stateOf(g));
      bar.value = g.progress;
      choose(tr, g);
      tr.classList.toggle('over', ended(g));
    };
    buttons(tr, () => last, tr.show);
    return tr;
  }
  const search = () => {
    const q = new URLSearchParams([...new FormData(filter)].map(([k, v]) => [k, v.trim()]).filter(([, v]) => v)).toString();
    if (location.hash.slice(1) === (q && '?' + q)) open();
    else location.hash = q && '?' + q;
  };
  filter.addEventListener('submit', e => { e.preventDefault(); search(); });
  filter.elements.status.addEventListener('change', search);
  $('[data-a=older]').addEventListener('click', e => { pages.push(e.currentTarget.value); turn(); });
  $('[data-a=newer]').addEventListener('click', () => { pages.pop(); turn(); });
  function turn() {
    say('Page ' + pages.length);
    $('#listhead').focus();
    wake();
  }
  const command = () => "printf '%s\\n' '{\"payload\":{\"hello\":\"world\"}}' '{\"payload\":{\"hello\":\"again\"}}' |\n  curl -sS --data-binary @- -H 'Content-Type: application/x-ndjson' \\\n"
    + (token ? '    -H "Authorization: Bearer $TOKEN" \\\n' : '') + "    '" + location.origin + '/v1/bulk?tenant=acme&type=' + encodeURIComponent(document.body.dataset.type) + "&id=first'";

  // -- totals, limits, tenants
  const limits = $('#limits'), asked = $('form', limits).elements, tenants = $('#tenants tbody');
  let inForce = {};
  function newTotals() {
    let before;
    return async signal => {
      const [seen, rates] = await Promise.all([ask('congestion', {signal}), ask('limits', {signal})]);
      set($('#first pre'), command());
      set($('#first code'), document.body.dataset.type);
      const {tenants: all, summary: sum} = seen, waiting = sum.pending + sum.non_ready;
      const worst = level(sum.level), from = worst !== 'none' && all.find(t => t.level === worst);
      const now = {at: performance.now(), by: new Map(all.map(t => [t.tenant, t.finished]))};
      // A tenant whose last group ended begins anew from zero.
      let rate = 0;
      if (before) for (const [t, n] of now.by) rate += Math.max(0, n - (before.by.get(t) ?? n)) / (now.at - before.at) * 1000;
      put($('#totals'), {
        pending: whole(waiting), waiting: sum.non_ready ? whole(sum.non_ready) + ' back off' : '',
        inflight: whole(sum.in_flight), tenants: whole(all.length) + (all.length === 1 ? ' tenant' : ' tenants'),
        rate: before ? number(rate) : '–', limit: 'of at most ' + perSecond(rates.global), congestion: worst, worst: from ? 'worst for ' + from.tenant : '',
      });
      before = now;
      $('#used').value = Math.min(1, rate / rates.global);
      document.title = (waiting ? whole(waiting) + ' pending · ' : '') + 'Anteroom bulk';
      fill(rates);
      $('#tenants').hidden = !all.length;
      const few = all.slice(0, 200), names = few.map(t => t.tenant);
      set($('#tenants summary'), all.length > few.length ? 'Tenants, the first ' + few.length + ' of ' + whole(all.length) : 'Tenants');
      if ([...$('#names').children].map(o => o.value).join() !== names.join()) {
        $('#names').replaceChildren(...names.map(n => { const o = make('option'); o.value = n; return o; }));
      }
      if ($('#tenants').open) rows(tenants, few, t => t.tenant, newTenant);
    };
  }
  function newTenant({tenant}) {
    const tr = copyOf('#tenant'), link = $('a', tr);
    link.textContent = tenant;
    link.href = '#?' + new URLSearchParams({tenant});
    tr.show = t => {
      put(tr, {pending: whole(t.pending), inflight: whole(t.in_flight), nonready: whole(t.non_ready), rate: number(t.rate) + '/s', backoff: span(t.backoff_seconds || 0),
        throttles: number(t.throttles_per_job), estimate: t.estimate_seconds ? span(t.estimate_seconds) : '–'});
      heat(tr, level(t.level));
    };
    return tr;
  }
  $('#tenants').addEventListener('toggle', wake);
  // A field that is being edited is not overwritten.
  function fill(rates) {
    for (const name of ['global', 'per_tenant']) {
      const old = inForce[name], now = String(rates[name]);
      if (old === undefined || asked[name].value === old) asked[name].value = now;
      inForce[name] = now;
    }
    set($('.note', limits), rates.live ? 'Changed live, over the configuration.' : 'As configured.');
  }
  async function relimit(change, text) {
    try {
      const now = await ask('limits', {method: 'PATCH', body: change});
      inForce = {};
      fill(now);
      set($('.error', limits), '');
      say(text);
    } catch (e) {
      set($('.error', limits), e.message);
    }
    wake();
  }
  const isRate = text => /^\d+(\.\d+)?$/.test(text);
  $('form', limits).addEventListener('submit', e => {
    e.preventDefault();
    const change = {};
    for (const name of ['global', 'per_tenant']) {
      const text = asked[name].value.trim();
      if (!isRate(text)) {
        set($('.error', limits), name + ': “' + text + '” is not a number such as 100 or 2.5');
        return asked[name].focus();
      }
      if (text !== inForce[name]) change[name] = Number(text);
    }
    set($('.error', limits), '');
    if (Object.keys(change).length) relimit(change, 'The limits are changed.');
    else say('Nothing differs from what is in force.');
  });
  $('[data-a=tofile]').addEventListener('click', () => relimit({global: null, per_tenant: null}, 'The limits are as configured.'));

  // -- one group
  const page = $('#group'), dead = $('#dead'), letters = $('tbody', dead);
  let shown, wanted = deadAPage, redriving = false;
  function openGroup(id) {
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
      // What costs more is read less often, and once more when the group has ended.
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
    tags($('.tags', page), [...stateOf(g), ...(ended(g) ? [] : [['congestion ' + level(g.congestion), tones[level(g.congestion)]]])]);
    put(page, {
      about: [g.tenant, g.type, g.priority && 'priority ' + g.priority, 'created ' + moment(g.created_at), g.finished_at && 'ended ' + moment(g.finished_at),
        g.redrive_of && 'redrive of ' + g.redrive_of, g.error].filter(Boolean).join(' · '),
      done: percent(g), of: whole(doneOf(g)) + ' of ' + whole(g.total), succeeded: whole(g.succeeded), failed: whole(g.failed + g.dead),
      dead: [g.dead && whole(g.dead) + ' dead', g.cancelled && whole(g.cancelled) + ' cancelled'].filter(Boolean).join(', '),
      pending: whole(waitingOf(g)), nonready: g.non_ready ? whole(g.non_ready) + ' back off' : '', inflight: whole(g.in_flight),
      throttles: number(g.throttles_per_job) + ' throttles a job', rate: ended(g) ? '–' : number(g.rate), cap: g.rate_limit ? 'of at most ' + perSecond(g.rate_limit) : '', eta: eta[0], range: eta[1],
    });
    let x = 0;
    const svg = $('svg.parts');
    svg.replaceChildren(...[['good', g.succeeded], ['bad', g.failed + g.dead], ['warn', g.cancelled]].map(([tone, n]) => {
      const r = document.createElementNS(svg.namespaceURI, 'rect'), w = g.total ? 1000 * (n || 0) / g.total : 0;
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
    dead.hidden = !g.dead && !lines.length;
    const part = lines.slice(0, wanted);
    set($('.note', dead), whole(g.dead) + (g.dead === 1 ? ' job is' : ' jobs are') + ' dead: out of tries, or nothing can run it. A redrive runs them again as a group of their own.');
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
    try {
      const g = await ask(of(shown.id, '/redrive'), {method: 'POST', body: text ? {rate: Number(text)} : {}});
      location.hash = 'group/' + encodeURIComponent(g.id);
      addEventListener('hashchange', () => say(g.id + ' runs the dead jobs again.'), {once: true});
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
    draw($('[data-c=non_ready]'), points.map(p => [Date.parse(p.at), p.non_ready || 0]), whole);
    draw($('[data-c=backoff]'), points.map(p => [Date.parse(p.at), p.backoff_seconds || 0]), v => number(v) + ' s');
  }
  // draw makes a curve of [time, value] points; of many it keeps the highest in each stretch.
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

  const copy = $('#first button');
  copy.hidden = !navigator.clipboard;
  copy.addEventListener('click', () => navigator.clipboard.writeText(command()).then(() => say('Copied.'), () => say('The browser did not let the page copy; select the command.', true)));

  open();
})();
