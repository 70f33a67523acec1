// Numbers, times and differences in words.

const whole = new Intl.NumberFormat('en', {maximumFractionDigits: 0});
const some = new Intl.NumberFormat('en', {maximumFractionDigits: 3});

export const count = n => whole.format(n);
export const exact = n => some.format(n);
export const rate = n => n === undefined ? '–' : new Intl.NumberFormat('en', {maximumFractionDigits: n < 10 ? 1 : 0}).format(n);
export const percent = share => new Intl.NumberFormat('en', {maximumFractionDigits: share < .1 ? 1 : 0}).format(share * 100) + ' %';
export const millis = seconds => count(seconds * 1000) + ' ms';

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min' + (s % 60 && s < 600 ? ' ' + s % 60 + ' s' : '');
  if (s < 172800) return Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' days';
}

export const clock = at => new Date(at).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'});
export const second = at => new Date(at).toLocaleTimeString('en-GB');
export const moment = at => new Date(at).toLocaleString('en-GB', {dateStyle: 'medium', timeStyle: 'short'});
export const ago = (at, now = Date.now()) => span((now - Date.parse(at)) / 1000) + ' ago';

// difference returns what an entry of the audit log changed, as "rate 10 → 5".
export function difference(before, after) {
  const a = flatten(before), b = flatten(after);
  const text = (v, k) => v === undefined ? k.startsWith('events ') ? 'none' : 'configuration' : typeof v === 'string' ? '“' + v + '”' : String(v);
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter(k => a[k] !== b[k])
    .map(k => k + ' ' + text(a[k], k) + ' → ' + text(b[k], k)).join(', ');
}

function flatten(value, at = '', to = {}) {
  if (value && typeof value === 'object' && !Array.isArray(value)) {
    for (const key of Object.keys(value)) flatten(value[key], at ? at + '.' + key : key, to);
  } else if (value !== null && value !== undefined) {
    if (!Array.isArray(value)) to[at] = value;
    else for (const e of value) to[at + ' ' + (e.name || e.id)] = moment(e.starts_at) + ' to ' + moment(e.ends_at) + (e.method ? ', ' + e.method : '') + (e.rate ? ', ' + exact(e.rate) + '/s' : '');
  }
  return to;
}
