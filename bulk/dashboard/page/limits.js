// Breakers and limits, which concern all tenants.

const limits = $('#limits'), asked = $('form', limits).elements;
let inForce = {};

// The breakers that are open.
function showBreakers({breakers}) {
  $('#breakers').hidden = !breakers.length;
  rows($('#breakers tbody'), breakers, b => b.processor + '@' + (b.tenant ?? ''), newBreaker);
}
function newBreaker({processor, tenant}) {
  const tr = copyOf('#breaker');
  $('button', tr).addEventListener('click', async () => {
    try {
      showBreakers(await ask('breakers?' + new URLSearchParams(tenant ? {processor, tenant} : {processor}), {method: 'DELETE'}));
      say('Jobs of ' + processor + (tenant ? ' of ' + tenant : '') + ' start again.');
    } catch (e) {
      say(e.message, true);
    }
    wake();
  });
  tr.show = b => put(tr, {processor, tenant: tenant ?? 'all', state: b.state === 'open' ? 'open, probes at ' + new Date(b.probe_at).toLocaleTimeString() : 'probes with ' + b.probes,
    since: new Date(b.opened_at).toLocaleTimeString(), code: b.code});
  return tr;
}
// The processors that have limits of their own.
function newProcessor({name}) {
  const tr = copyOf('#processor'), button = $('button', tr);
  button.addEventListener('click', () => relimit({processors: {[name]: {rate: null, concurrency: null}}}, 'The limits of ' + name + ' are as configured.'));
  tr.show = p => {
    put(tr, {name, rate: p.rate ? number(p.rate) : 'any', concurrency: p.concurrency ? whole(p.concurrency) : 'any', inflight: p.concurrency ? whole(p.in_flight) : '–'});
    button.disabled = !p.live;
  };
  return tr;
}
// A field that is being edited is not overwritten.
function fill(rates) {
  for (const name of ['global', 'per_tenant']) {
    const old = inForce[name], now = String(rates[name]);
    if (old === undefined || asked[name].value === old) asked[name].value = now;
    inForce[name] = now;
  }
  const own = Object.entries(rates.processors ?? {}).map(([name, p]) => ({name, ...p})).sort((a, b) => a.name < b.name ? -1 : 1);
  $('#processors').hidden = !own.length;
  rows($('#processors tbody'), own, p => p.name, newProcessor);
  set($('.note', limits), rates.adaptive ? 'Adaptive.' : rates.live ? 'Changed live, over the configuration.' : 'As configured.');
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
