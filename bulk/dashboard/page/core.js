// The dashboard calls the public API under /v1. It never builds HTML from text, and sends the token
// in a header only. This file has what the views share; list.js, limits.js, workers.js, job.js and group.js follow it in the same function, then open().

const every = 2000, groupsAPage = 25, deadAPage = 20;
const $ = (s, root = document) => root.querySelector(s);
const ended = g => ['COMPLETED', 'FAILED', 'CANCELLED'].includes(g.status);
let token = sessionStorage.getItem('token') || '';
let view = new AbortController(), held = false, again = false, go = () => {};

// -- words
const whole = v => new Intl.NumberFormat('en').format(v);
const number = v => new Intl.NumberFormat('en', {maximumFractionDigits: v < 10 ? 2 : v < 1000 ? 1 : 0}).format(v);
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
// Some screen readers do not recognize a table that is laid out as cards.
const role = {TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TR: 'row', TD: 'cell', TH: 'columnheader', row: 'rowheader'};
const roles = root => {
  for (const e of [root, ...root.querySelectorAll('*')]) if (role[e.scope || e.tagName]) e.setAttribute('role', role[e.scope || e.tagName]);
  return root;
};
document.querySelectorAll('.cards').forEach(roles);
const copyOf = id => roles($(id).content.firstElementChild.cloneNode(true));
// rows keeps a table's rows by key, so that focus and open details stay.
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
    super(faults.length ? faults.join('\n') : p.detail || 'The bulk worker responded ' + status + '.');
    Object.assign(this, {status, after});
  }
}
async function ask(path, {method = 'GET', body, signal, lines} = {}) {
  const headers = token ? {Authorization: 'Bearer ' + token} : {};
  if (body) headers['Content-Type'] = 'application/json';
  const limit = AbortSignal.timeout(method === 'GET' ? 15000 : 600000); // a redrive visits all its jobs
  const r = await fetch('/v1/' + path, {method, headers, body: body && JSON.stringify(body), cache: 'no-store', credentials: 'omit',
    redirect: 'error', signal: signal ? AbortSignal.any([signal, limit]) : limit});
  if (!r.ok) throw new Refused(r.status, await r.json().catch(() => ({})), r.headers.get('Retry-After'));
  return lines === undefined ? parse(await r.text()) : first(r.body, lines);
}
// parse keeps whole numbers that JavaScript would round, such as ids in payloads.
const parse = text => JSON.parse(text, (k, v, c) => Number.isInteger(v) && !Number.isSafeInteger(v) && c && JSON.rawJSON ? JSON.rawJSON(c.source) : v);
// first reads up to n lines of NDJSON and leaves the rest unread.
async function first(stream, n) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader(), got = [];
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    const parts = (rest + (done ? '\n' : value)).split('\n');
    rest = parts.pop();
    for (const line of parts) if (line.trim() && got.length < n) got.push(parse(line));
    if (got.length >= n) reader.cancel().catch(() => {});
    if (done || got.length >= n) return got;
  }
}
const of = (id, rest = '') => 'groups/' + encodeURIComponent(id) + rest;

// -- token and connection
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
const rest = () => { if (form.hidden) set($('#link'), held ? 'Held: updates are stopped' : 'Paused while this tab is hidden'); };

// loop repeats work while the tab is visible, until the view changes. Actions wake it.
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
      alarm(e.status ? e.message : 'The bulk worker does not respond; the page shows old data.');
    }
    if (!again) await new Promise(r => { go = r; if (awake()) setTimeout(r, every); });
    if (signal.aborted) return;
  }
}

// open shows what the address asks for: #group/<id>, #group/<id>/<job>, or the list, as #?tenant=acme&status=RUNNING.
let came = '';
function open() {
  view.abort();
  view = new AbortController();
  dialog.close('');
  $('#leave').hidden = !token;
  $('#hold').hidden = false;
  say('');
  const at = location.hash.slice(1);
  if (at.startsWith('group/')) {
    const [id, job] = at.slice(6).split('/', 2).map(text => {
      try { return decodeURIComponent(text); } catch { return text; } // not encoded
    });
    openGroup(id, job || '');
  } else {
    openList(new URLSearchParams(at.replace(/^\?/, '')));
  }
}
addEventListener('hashchange', open);

// -- actions on a group
const done = {pause: 'is paused: no more of its jobs start.', resume: 'runs again.', release: 'no longer waits for its downstream.', cancel: 'is cancelled.'};
async function act(g, verb, shown) {
  const here = view; // the page may show another group by then
  if (verb === 'cancel' && !await confirmedGroup(g)) return;
  try {
    const now = await ask(of(g.id, '/' + verb), {method: 'POST'});
    say(g.id + ' ' + done[verb]);
    if (here === view) shown(now);
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
  $('[data-a=release]', root).hidden = ended(g) || !(g.non_ready || g.gated_by === 'downstream');
  $('[data-a=cancel]', root).hidden = ended(g);
};
const dialog = $('#confirm');
const confirmedGroup = g => confirmed('Cancel ' + g.id + '?', whole(waitingOf(g)) + ' jobs have not started and will not start; ' + whole(g.in_flight) + ' in flight run to their end.', 'Cancel the group');
function confirmed(title, text, yes) {
  set($('h2', dialog), title);
  set($('p', dialog), text + ' This cannot be undone.');
  set($('[value=yes]', dialog), yes);
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise(settle => dialog.addEventListener('close', () => settle(dialog.returnValue === 'yes'), {once: true}));
}

// -- counts of a group
const waitingOf = g => g.pending + g.ready + g.non_ready;
const doneOf = g => g.succeeded + g.failed + g.dead + g.cancelled;
const percent = g => Math.floor(g.progress * 1000) / 10 + ' %';
const etaOf = g => ended(g) ? [g.finished_at ? 'took ' + span((Date.parse(g.finished_at) - Date.parse(g.created_at)) / 1000) : '–', ''] : !g.eta ? [g.paused ? 'paused' : g.gated_by === 'start_at' ? 'starts ' + moment(g.start_at) : '–', '']
  : [span(g.eta.seconds), g.eta.high > g.eta.low ? span(g.eta.low) + ' to ' + span(g.eta.high) : ''];
const stateOf = g => [[g.status, tones[g.status]], ...(g.paused && !ended(g) ? [['paused', 'warn']] : []), ...(g.unserved ? [['no processor', 'bad']] : []), ...heldBy(g)];
const heldBy = g => [[!ended(g) && g.gated_by === 'start_at', 'scheduled', ''], [!ended(g) && g.gated_by === 'after', 'waits for ' + (g.waits_for || []).join(', '), ''],
  [!ended(g) && g.gated_by === 'quiet_hours', 'quiet hours', ''], [g.expired, 'expired', 'warn'], [g.skipped, 'skipped', 'warn']].filter(t => t[0]).map(t => t.slice(1));
