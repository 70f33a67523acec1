// The console: signs in, follows the rooms and shows one of them.

import {hasToken, keepToken, Refused, useToken, validToken} from './api.js';
import {isOpen, open} from './dialog.js';
import {$, fillIf, make, set} from './dom.js';
import {follow} from './feed.js';
import {offer, showPending, signedIn, signOut} from './person.js';
import {colour, RoomView, word} from './room.js';
import * as words from './words.js';

const stale = 5; // seconds without the store before the page warns
const view = new RoomView();
const form = $('#enter');
let stop = () => {}, rooms = [];

function signIn(why) {
  stop();
  useToken('');
  rooms = [];
  form.hidden = false;
  offer();
  for (const id of ['#room', '#none', '#alarm', '#leave']) $(id).hidden = true;
  $('#rooms').replaceChildren();
  set($('.error', form), why);
  set($('#link'), 'Not connected');
  $('#token').focus();
}

form.addEventListener('submit', e => {
  e.preventDefault();
  const token = $('#token').value.trim();
  $('#token').value = '';
  if (!validToken(token)) return signIn('A token has printable ASCII characters and no blanks.');
  useToken(token);
  setInterval(() => { if (!document.hidden && form.hidden) showPending(() => view.changed()).catch(() => {}); }, 3000);
start();
});
$('#leave').addEventListener('click', async () => { await signOut(); signIn(''); });

async function start() {
  stop();
  set($('.error', form), '');
  try {
    await signedIn();
  } catch (e) {
    if (e instanceof Refused && e.status < 500) return refused(e);
  }
  stop = follow({rooms: show, fleet: gateways => view.showFleet(gateways), lost, refused});
}

function refused(e) {
  const first = e.status === 401 && !hasToken();
  signIn(first ? '' : e.message + (e.after ? ' Try again in ' + words.span(+e.after) + '.' : ''));
}

function lost(e) {
  set($('#link'), 'Not connected');
  alarm('The gateway does not respond; the page shows old data. ' + (e instanceof Refused ? e.message : ''));
}

function alarm(text) {
  $('#alarm').hidden = !text;
  set($('#alarm'), text);
}

function show({at, rooms: list}) {
  keepToken();
  form.hidden = true;
  $('#none').hidden = list.length > 0;
  rooms = list;
  view.record(list, at);
  const id = decodeURIComponent(location.hash.slice(1)), room = list.find(r => r.id === id) || list[0];
  fillIf($('#rooms'), JSON.stringify([room?.id, list.map(r => [r.id, r.state, r.waiting])]), () => list.map(r => {
    const a = make('a', {href: '#' + encodeURIComponent(r.id), className: colour(r), title: word(r)}, make('i', {'aria-hidden': 'true'}), r.id, make('b', {textContent: words.count(r.waiting)}));
    if (r === room) a.setAttribute('aria-current', 'page');
    return a;
  }));
  if (room) view.show(room); else $('#room').hidden = true;
  const never = list.some(r => r.store_age_seconds === undefined), age = Math.max(0, ...list.map(r => r.store_age_seconds || 0));
  set($('#link'), list.length ? 'Live' + (never ? '' : ', store read ' + (age < 1 ? 'just now' : words.span(age) + ' ago')) : 'Live');
  alarm(never ? 'The gateway has not reached the store since it started: new visitors follow on_store_error.'
    : age > stale ? 'The gateway has not reached the store for ' + words.span(age) + '. New visitors follow on_store_error; changes are refused until it is back.' : '');
  const waiting = list.reduce((n, r) => n + r.waiting, 0);
  document.title = (waiting ? words.count(waiting) + ' waiting · ' : '') + 'Anteroom console';
}

addEventListener('hashchange', () => { if (rooms.length) show({at: new Date().toISOString(), rooms}); });

// Keys
const keys = [['p', 'Pause or resume'], ['r', 'Rate'], ['/', 'Look up a ticket'], ['?', 'These keys'], ['[ and ]', 'Room before, room after'], ['Escape', 'Close a dialog']];
const help = () => open({title: 'Keys', fields: [make('dl', {className: 'pairs'}, ...keys.flatMap(([key, what]) => [make('dt', {}, make('kbd', {textContent: key})), make('dd', {textContent: what})]))],
  label: 'Close', act: () => ''});
$('#keys').addEventListener('click', help);

document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || isOpen() || e.target.matches?.('input, textarea, select')) return;
  const room = view.room, at = rooms.findIndex(r => r.id === room?.id);
  const go = n => { location.hash = encodeURIComponent(rooms[(n + rooms.length) % rooms.length].id); };
  const act = {'?': help, ...(form.hidden && room ? {
    p: () => view.levers.open(room.paused || room.draining ? 'resume' : 'pause'), r: () => view.levers.open('rate'),
    '/': () => { view.tabs.open('find'); view.lookup.focus(); }, '[': () => go(at - 1), ']': () => go(at + 1),
  } : {})}[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});

setInterval(() => { if (!document.hidden && form.hidden) showPending(() => view.changed()).catch(() => {}); }, 3000);
start();
