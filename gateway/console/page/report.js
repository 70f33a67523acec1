// Saves the report of the last day as a file.

import {absent, request, Refused, roomPath} from './api.js';
import {make, set} from './dom.js';

const formats = ['html', 'csv', 'json'];

// reports returns the buttons. room returns the id of the room.
export function reports(room) {
  const error = make('p', {className: 'error', role: 'alert'});
  const root = make('div', {}, make('div', {className: 'actions'}, make('span', {className: 'note', textContent: 'Report of the last 24 h:'}), ...formats.map(format => {
    const b = make('button', {type: 'button', className: 'quiet small', textContent: format.toUpperCase()});
    b.addEventListener('click', async () => {
      set(error, '');
      b.disabled = true;
      try {
        await save(room(), format);
      } catch (e) {
        if (e instanceof Refused && absent(e)) root.hidden = true;
        else set(error, e.message);
      } finally {
        b.disabled = false;
      }
    });
    return b;
  })), error);
  return root;
}

async function save(room, format) {
  const r = await request('GET', roomPath(room, '/report?format=' + format), undefined, AbortSignal.timeout(60000));
  const url = URL.createObjectURL(await r.blob());
  make('a', {href: url, download: 'report-' + room + '-' + new Date().toISOString().slice(0, 10) + '.' + format}).click();
  URL.revokeObjectURL(url);
}
