// The list of groups, with what concerns all tenants above it.

const list = $('#list'), body = $('#list tbody'), filter = $('#filter'), pager = $('#list nav');
let pages = [''];
function openList(query) {
  const tenant = query.get('tenant') || '', status = query.get('status') || '', label = query.get('label') || '';
  const {elements: f} = filter;
  f.tenant.value = tenant;
  f.status.value = status;
  f.label.value = label;
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
    // A value may have commas: one ends a label only before the key of another.
    for (const l of label.split(/,(?=\s*[a-z0-9._-]+=)/)) if (l.trim()) q.append('label', l.trim());
    const [answer] = await Promise.all([ask('groups?' + q, {signal}), totals(signal)]);
    if (here !== pages.at(-1)) return;
    show('totals', 'list');
    rows(body, answer.groups, g => g.id, newRow);
    pager.hidden = pages.length < 2 && !answer.next;
    $('[data-a=newer]').disabled = pages.length < 2;
    $('[data-a=older]').disabled = !answer.next;
    $('[data-a=older]').value = answer.next || '';
    const none = !answer.groups.length, narrowed = tenant || status || label || pages.length > 1;
    $('table', list).hidden = none;
    $('#nomatch').hidden = !none || !narrowed;
    const away = answer.shards_away || [];
    $('#away').hidden = !away.length;
    $('#away').textContent = away.length ? 'Not all groups are shown: no reply from shard ' + away.join(', ') + '.' : '';
    $('#first').hidden = !none || narrowed;
    filter.hidden = none && !narrowed;
    if (fresh) {
      fresh = false;
      // Back from a group or the token form: restore the position.
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
    put(tr, {type: g.type, tenant: g.tenant, progress: percent(g) + ' of ' + whole(g.total), succeeded: whole(g.succeeded), failed: whole(lost),
      dead: g.dead ? whole(g.dead) + ' dead' : '', rate: ended(g) ? '–' : number(g.rate) + '/s', eta: eta[0], range: eta[1]});
    heat(tr, ended(g) ? '' : g.congestion);
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

// -- totals, tenants
const tenants = $('#tenants tbody');
function newTotals() {
  let before;
  return async signal => {
    const [seen, rates, held] = await Promise.all([ask('congestion', {signal}), ask('limits', {signal}), ask('breakers', {signal}), readWorkers(signal), readSchedules(signal)]);
    set($('#first pre'), command());
    set($('#first code'), document.body.dataset.type);
    const {tenants: all, summary: sum} = seen, waiting = sum.pending + sum.non_ready;
    const worst = sum.level, from = worst !== 'none' && all.find(t => t.level === worst);
    const now = {at: performance.now(), by: new Map(all.map(t => [t.tenant, t.finished]))};
    // The count of a tenant whose last group ended restarts at zero.
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
    showBreakers(held);
    $('#tenants').hidden = !all.length;
    const few = all.slice(0, 200), names = few.map(t => t.tenant);
    set($('#tenants summary'), all.length > few.length ? 'Tenants, the first ' + few.length + ' of ' + whole(all.length) : 'Tenants');
    if ([...$('#names').children].map(o => o.value).join() !== names.join()) {
      $('#names').replaceChildren(...names.map(n => { const o = make('option'); o.value = n; return o; }));
    }
    if ($('#tenants').open) rows(tenants, few, t => t.tenant, newTenant);
  };
}
const plans = $('#schedules');
async function readSchedules(signal) {
  if (!plans.open) return;
  const {schedules} = await ask('schedules', {signal});
  $('.note', plans).hidden = schedules.length > 0;
  $('.scroll', plans).hidden = !schedules.length;
  rows($('tbody', plans), schedules.slice(0, 500), s => s.id, newSchedule);
}
function newSchedule() {
  const tr = copyOf('#schedule'), link = $('a', tr);
  tr.show = s => {
    put(tr, {id: s.id, tenant: s.tenant, cron: s.cron, zone: s.time_zone, next: s.paused ? 'paused' : s.next_runs.length ? moment(s.next_runs[0]) : '–',
      started: whole(s.started), skipped: whole(s.skipped), missed: whole(s.missed), failed: whole(s.failed)});
    set(link, s.last_group || '');
    link.hidden = !s.last_group;
    link.href = '#group/' + encodeURIComponent(s.last_group || '');
    tr.title = s.error || '';
  };
  return tr;
}
plans.addEventListener('toggle', wake);
function newTenant({tenant}) {
  const tr = copyOf('#tenant'), link = $('a', tr);
  link.textContent = tenant;
  link.href = '#?' + new URLSearchParams({tenant});
  tr.show = t => {
    put(tr, {pending: whole(t.pending), inflight: whole(t.in_flight) + (t.concurrency ? ' of ' + whole(t.concurrency) : ''), nonready: whole(t.non_ready), rate: number(t.rate) + '/s', backoff: span(t.backoff_seconds),
      throttles: number(t.throttles_per_job), estimate: t.estimate_seconds ? span(t.estimate_seconds) : '–'});
    heat(tr, t.level);
  };
  return tr;
}
$('#tenants').addEventListener('toggle', wake);

const copy = $('#first button');
copy.hidden = !navigator.clipboard;
copy.addEventListener('click', () => navigator.clipboard.writeText(command()).then(() => say('Copied.'), () => say('Not copied: select the command.', true)));
