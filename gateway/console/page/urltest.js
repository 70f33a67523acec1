// The URL tester: what the gateway would do with a request, and why.

import {isMissing, optional} from './api.js';
import {choice, field, input} from './dialog.js';
import {make, set} from './dom.js';

export const available = () => !isMissing('explain');

export class URLTester {
  constructor(root) {
    const error = make('p', {className: 'error', role: 'alert'}), result = make('div', {'aria-live': 'polite'});
    const headers = make('textarea', {rows: 3, placeholder: 'Accept: text/html', spellcheck: false});
    const form = make('form', {}, make('div', {className: 'inline'}, field('method', 'Method', choice(['GET', 'POST', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'].map(m => [m, m]), 'GET')),
      field('url', 'URL', input({required: true, placeholder: 'https://shop.example/sale?x=1', inputMode: 'url'}))),
      field('headers', 'Header fields, one a line', headers), field('address', 'Address of the client, optional', input({placeholder: '203.0.113.7'})),
      make('div', {className: 'actions'}, make('button', {type: 'submit', textContent: 'Explain'})), error, result);
    form.addEventListener('submit', async e => {
      e.preventDefault();
      set(error, '');
      result.replaceChildren();
      try {
        const f = form.elements, r = await optional('explain', 'POST', 'explain', read(f.url.value.trim(), f.method.value, f.headers.value, f.address.value.trim()));
        if (r === undefined) throw new Error('This gateway does not explain requests.');
        result.replaceChildren(...show(r));
      } catch (err) {
        set(error, err.message);
      }
    });
    root.append(make('h3', {textContent: 'URL tester'}), form);
  }
}

// read returns the body of a request to explain.
export function read(text, method, lines, address) {
  const parts = /^(?:(https?):\/\/)?([^/?#]*)([/?][^#]*)?/i.exec(text);
  const body = {method, https: (parts[1] || 'https').toLowerCase() === 'https', host: parts[2], path: parts[3]?.startsWith('?') ? '/' + parts[3] : parts[3] || '/'};
  const headers = {};
  for (const line of lines.split('\n').map(l => l.trim()).filter(Boolean)) {
    const at = line.indexOf(':');
    if (at < 1) throw new Error('Not a header field: ' + line + '. Write Name: value.');
    headers[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  if (Object.keys(headers).length) body.headers = headers;
  if (address) body.address = address;
  return body;
}

export function show(r) {
  const rule = r.rule && [r.rule.kind, r.rule.host, r.rule.path].filter(Boolean).join(' ');
  const rows = [['Decision', r.decision], ['Why', r.why], ['Room', r.room || 'none'], ['Rule', rule], ['Status', r.status && String(r.status)], ['Code', r.code], ['Origin', r.origin],
    ['Kind', r.kind], ['Pass', r.token?.pass], ['Ticket', r.token?.ticket], ['Read as', r.readings?.length > 1 ? r.readings.join(' , ') : undefined]];
  const list = make('dl', {className: 'pairs'});
  for (const [name, value] of rows) if (value) list.append(make('dt', {textContent: name}), make('dd', {textContent: value}));
  return [make('p', {textContent: r.text || ''}), list];
}
