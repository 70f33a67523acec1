// Who uses this page, what they may do, and what waits for a second person.

import {api, hasToken, optional, useCSRF} from './api.js';
import {open} from './dialog.js';
import {$, fillIf, make, set} from './dom.js';
import * as words from './words.js';

const ranks = {viewer: 1, operator: 2, admin: 3};
let me; // undefined: a gateway without /me, whose answers decide

// signedIn reads who is signed in.
export async function signedIn() {
  me = await optional('me', 'GET', 'me');
  useCSRF(me?.csrf);
  set($('#who'), me && me.via !== 'local' ? me.name : '');
  $('#leave').hidden = !(hasToken() || me?.via === 'oidc');
}

// may reports whether the person has at least a role in a room.
export function may(role, room) {
  return !me || (me.grants || []).some(g => (!g.rooms || g.rooms.includes(room)) && (ranks[g.role] || 0) >= ranks[role]);
}

// offer shows the ways to sign in that the gateway has.
export async function offer() {
  let ways;
  try { ways = await api('GET', '/auth'); } catch { return; } // a gateway with tokens alone
  $('#provider').hidden = !ways.oidc;
  if (ways.oidc) {
    $('#provider a').href = ways.oidc.login;
    set($('#provider span'), ways.oidc.ready ? '' : 'The provider does not respond.');
  }
}

export async function signOut() {
  if (me?.via === 'oidc') await api('POST', '/auth/logout').catch(() => {}); // an ended session needs none
  me = undefined;
  set($('#who'), '');
}

// showPending shows the actions that wait for a second person.
export async function showPending(changed) {
  if (!me?.two_person?.length) return;
  const r = await optional('pending', 'GET', 'pending'), list = r?.pending || [], root = $('#pending');
  root.hidden = !list.length;
  fillIf(root, JSON.stringify(list), () => list.map(p => {
    const button = (label, act, danger) => {
      const b = make('button', {type: 'button', className: 'small' + (danger ? ' danger' : ''), textContent: label});
      b.addEventListener('click', () => open({title: label, text: p.action + ' of ' + p.room + ', asked by ' + p.by + '.', label, danger, act: async () => {
        await act();
        changed();
        return label + ': done.';
      }}));
      return b;
    };
    const path = 'pending/' + encodeURIComponent(p.id);
    return make('li', {}, make('b', {textContent: p.by + ' asks: ' + p.action + ' ' + p.room}), make('span', {className: 'evidence', textContent: 'Until ' + words.clock(p.expires_at) + (p.yours ? '. A second person has to confirm it.' : '.')}),
      p.yours ? null : button('Confirm ' + p.action, () => api('POST', path + '/confirm', {}), true), button('Withdraw', () => api('DELETE', path)));
  }));
}
