// Looks up tickets and sessions, by id, account or address.

import {api, roomPath} from './api.js';
import {field, input, open} from './dialog.js';
import {$, make, set} from './dom.js';
import {may} from './person.js';
import * as words from './words.js';

const isNetwork = text => /^[0-9a-f.:]*[.:][0-9a-f.:]*(\/\d{1,3})?$/i.test(text);
const isID = text => /^[A-Za-z0-9_-]{22}$/.test(text);

export class Lookup {
  constructor(root, context) {
    this.context = context;
    this.error = make('p', {className: 'error', role: 'alert'});
    this.found = make('div', {'aria-live': 'polite'});
    const query = input({maxLength: 256, required: true, placeholder: 'id of 22 characters, account, or network'});
    this.form = make('form', {}, make('div', {className: 'inline'}, field('query', 'Ticket, session, account or address', query), make('button', {type: 'submit', textContent: 'Look up'})), this.error, this.found);
    this.form.addEventListener('submit', e => { e.preventDefault(); this.find(query.value.trim()); });
    root.append(make('h3', {textContent: 'Ticket look-up'}), this.form);
  }

  focus() { $('input', this.form).focus(); }

  async find(text) {
    const id = this.context().room.id;
    set(this.error, '');
    this.found.replaceChildren();
    try {
      if (isID(text)) {
        this.found.replaceChildren(this.card(id, await api('GET', roomPath(id, '/tickets/' + encodeURIComponent(text)))));
        return;
      }
      if (isNetwork(text)) {
        const r = await api('GET', roomPath(id, '/clients?address=' + encodeURIComponent(text)));
        const more = r.total > r.clients.length ? 'The newest ' + r.clients.length + ' of ' + words.count(r.total) : words.count(r.total);
        this.found.replaceChildren(make('p', {className: 'note', textContent: more + ' from ' + r.prefix + ' at gateway ' + r.gateway + (r.gateways > 1 ? ', one of ' + r.gateways + '; the others have their own.' : '.')}),
          ...r.clients.map(c => this.card(id, c.ticket, c)));
        return;
      }
      const {tickets} = await api('GET', roomPath(id, '/tickets?account=' + encodeURIComponent(text)));
      this.found.replaceChildren(...(tickets.length ? tickets.map(t => this.card(id, t)) : [make('p', {className: 'note', textContent: 'The account has no place in this room.'})]));
    } catch (e) {
      set(this.error, e.message);
    }
  }

  card(room, t, client) {
    const rows = [['Address', client && client.address + ', ' + words.ago(client.at)], ['State', t.state + (t.parked ? ', parked: no recent poll' : '')], ['Reason', t.reason], ['Position', t.position && words.count(t.position)],
      ['Waits for', t.waited_seconds === undefined ? undefined : words.span(t.waited_seconds)], ['Last poll', t.seen_seconds_ago === undefined ? undefined : words.span(t.seen_seconds_ago) + ' ago'],
      ['Admitted', t.admitted_at && words.moment(t.admitted_at)]];
    const list = make('dl', {className: 'pairs'});
    for (const [name, value] of rows) if (value) list.append(make('dt', {textContent: name}), make('dd', {textContent: value}));
    const actions = make('div', {className: 'actions'}), path = encodeURIComponent(t.jti);
    const add = (label, text, method, rest) => {
      const b = make('button', {type: 'button', className: 'danger', textContent: label});
      b.addEventListener('click', () => open({title: label, text, label, danger: true, act: async () => {
        await api(method, roomPath(room, rest));
        this.context().changed();
        this.find(t.jti);
        return label + ': done.';
      }}));
      actions.append(b);
    };
    if (may('operator', room) && (t.state === 'waiting' || t.state === 'admitted')) add('Remove ticket', 'The place is lost; its holder gets a new one at the end of the queue.', 'DELETE', '/tickets/' + path);
    if (may('operator', room) && t.state === 'active') add('Revoke session', 'The pass is void on every gateway within a second.', 'POST', '/sessions/' + path + '/revoke');
    return make('div', {className: 'ticket'}, make('code', {textContent: t.jti}), list, actions);
  }
}
