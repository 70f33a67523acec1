// Breakers and limits, which concern all tenants.

const limits = $('#limits'), everywhere = limits.querySelectorAll('[name=global],[name=per_tenant]');

// Open breakers.
function showBreakers({breakers}) {
  $('#breakers').hidden = !breakers.length;
  rows($('#breakers tbody'), breakers, b => b.processor + '@' + (b.tenant ?? ''), newBreaker);
}
function newBreaker({processor, tenant}) {
  const tr = copyOf('#breaker'), button = $('button', tr), what = 'obs of ' + processor + (tenant ? ' of ' + tenant : '');
  button.setAttribute('aria-label', 'Start the j' + what);
  button.addEventListener('click', async () => {
    try {
      const left = await ask('breakers?' + new URLSearchParams(tenant ? {processor, tenant} : {processor}), {method: 'DELETE'});
      const focused = document.activeElement === button;
      showBreakers(left);
      if (focused && !button.isConnected) ($('#breakers button') || $('#main')).focus();
      say('J' + what + ' start again.');
    } catch (e) {
      say(e.message, true);
    }
    wake();
  });
  tr.show = b => put(tr, {processor, tenant: tenant ?? 'all', state: b.state === 'open' ? 'open, probes at ' + new Date(b.probe_at).toLocaleTimeString() : 'probes with ' + b.probes,
    since: new Date(b.opened_at).toLocaleTimeString(), code: b.code});
  return tr;
}

// -- limits
// follow shows the value in force in a field that is not being edited.
const follow = (input, now) => {
  if (input.dataset.now === undefined || input.value === input.dataset.now) input.value = now;
  input.dataset.now = now;
};
// fault shows an error beside its fields.
const fault = (inputs, text) => set($('.error', inputs === everywhere ? $('form', limits) : $('#own')), text);
const isRate = text => /^\d+(\.\d+)?$/.test(text);
// changesIn returns the changed values, or undefined after showing an error for an invalid number. Fields without a limit in
// force may be empty.
function changesIn(inputs, of = '') {
  const change = {};
  for (const input of inputs) {
    const text = input.value.trim(), exact = input.name === 'concurrency';
    if (!text && input.dataset.now === undefined) continue;
    if (!(isRate(text) && !(exact && text.includes('.')))) {
      fault(inputs, of + input.name + ': “' + text + '” is not a ' + (exact ? 'whole number such as 10' : 'number such as 100 or 2.5'));
      return input.focus();
    }
    if (text !== input.dataset.now) change[input.name] = Number(text);
  }
  fault(inputs, '');
  if (Object.keys(change).length) return change;
  say('Nothing has been changed.');
}
// relimit changes limits. The given fields then show the values in force; other fields keep their edits.
async function relimit(change, text, inputs) {
  let changed = false;
  try {
    const now = await ask('limits', {method: 'PATCH', body: change});
    for (const input of inputs) delete input.dataset.now;
    fill(now);
    fault(inputs, '');
    say(text);
    changed = true;
  } catch (e) {
    fault(inputs, e.message);
  }
  wake();
  return changed;
}
function fill(rates) {
  for (const input of everywhere) follow(input, String(rates[input.name]));
  const own = Object.entries(rates.processors ?? {}).map(([name, p]) => ({name, ...p})).sort((a, b) => a.name < b.name ? -1 : 1);
  $('#processors').hidden = !own.length;
  rows($('#processors tbody'), own, p => p.name, newProcessor);
  set($('.note', limits), rates.adaptive ? 'Adaptive.' : rates.live ? 'Changed live, over the configuration.' : 'As configured.');
}
$('form', limits).addEventListener('submit', e => {
  e.preventDefault();
  const change = changesIn(everywhere);
  if (change) relimit(change, 'The limits are changed.', everywhere);
});
$('[data-a=tofile]').addEventListener('click', () => relimit({global: null, per_tenant: null}, 'The limits are as configured.', everywhere));

// A processor with limits of its own.
function newProcessor({name}) {
  const tr = copyOf('#processor'), inputs = [...tr.querySelectorAll('input')], form = $('form', tr), [apply, back] = tr.querySelectorAll('button');
  form.id = 'limits-' + name;
  for (const input of inputs) {
    input.setAttribute('form', form.id);
    input.setAttribute('aria-label', (input.name === 'rate' ? 'Jobs a second of ' : 'Jobs at once of ') + name);
  }
  for (const b of [apply, back]) b.setAttribute('aria-label', b.textContent + ': ' + name);
  form.addEventListener('submit', e => {
    e.preventDefault();
    const change = changesIn(inputs, name + ' ');
    if (change) relimit({processors: {[name]: change}}, 'The limits of ' + name + ' are changed.', inputs);
  });
  back.addEventListener('click', async () => {
    if (await relimit({processors: {[name]: {rate: null, concurrency: null}}}, 'The limits of ' + name + ' are as configured.', inputs) &&
      [back, document.body].includes(document.activeElement)) (tr.isConnected ? inputs[0] : another.elements.name).focus();
  });
  tr.show = p => {
    put(tr, {name, inflight: p.concurrency ? whole(p.in_flight) : '–'});
    for (const input of inputs) follow(input, String(p[input.name]));
    back.disabled = !p.live;
  };
  return tr;
}
// A processor without limits of its own.
const another = $('#another');
another.addEventListener('submit', async e => {
  e.preventDefault();
  const {name: field, rate, concurrency} = another.elements, name = field.value.trim(), inputs = [rate, concurrency];
  if (!name) {
    fault(inputs, 'Name the processor.');
    return field.focus();
  }
  const change = changesIn(inputs, name + ' ');
  if (change && await relimit({processors: {[name]: change}}, 'The limits of ' + name + ' are changed.', inputs)) another.reset();
});
