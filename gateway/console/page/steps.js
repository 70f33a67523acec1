// What to do about an incident that no lever of the console ends: its steps, with the runbook and the gateways one click away.

import {open} from './dialog.js';
import {make} from './dom.js';

const runbooks = 'https://github.com/anteroom/anteroom/blob/main/docs/runbooks.md#';

// openSteps shows the steps {title, text, list, runbook}. Its button calls show, which opens the table of gateways.
export function openSteps({title, text, list, runbook}, show) {
  const link = make('a', {href: runbooks + runbook, target: '_blank', rel: 'noopener noreferrer', textContent: 'The runbook'});
  open({title, text, fields: [make('ol', {className: 'steps'}, ...list.map(t => make('li', {textContent: t}))), make('p', {}, link)],
    label: 'Show the gateways', act: () => { show(); return ''; }});
}
