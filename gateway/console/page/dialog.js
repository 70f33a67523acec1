// The one dialog of the page: a lever, which shows its effect before it acts, or the keys.

import {$, make, set} from './dom.js';

const dialog = $('#dialog');

let silence;

// say shows what was done, for six seconds.
function say(text) {
  set($('#said'), text);
  clearTimeout(silence);
  silence = setTimeout(() => set($('#said'), ''), 6000);
}

export const isOpen = () => dialog.open;

// open shows a dialog. It closes on Escape, on its Cancel, and when act succeeds. act returns the text that the page then shows.
export function open({title, text, fields = [], effect, ready, label, danger, act, also = []}) {
  const error = make('p', {className: 'error', role: 'alert'});
  const submit = make('button', {type: 'submit', textContent: label, className: danger ? 'danger' : ''});
  const cancel = make('button', {type: 'button', textContent: 'Cancel', className: 'quiet'});
  const others = also.map(a => make('button', {type: 'button', textContent: a.label, className: 'quiet'}));
  const box = effect ? make('div', {className: 'effect', 'aria-live': 'polite'}) : null;
  const form = make('form', {noValidate: true}, make('h2', {id: 'dialog-head', textContent: title}), text ? make('p', {textContent: text}) : null,
    ...fields, box, error, make('div', {className: 'actions'}, submit, ...others, cancel));
  dialog.replaceChildren(form);

  let timer, turn = 0;
  const check = () => {
    submit.disabled = ready ? !ready(form.elements) : false;
    if (!effect) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = ++turn;
      let parts;
      try {
        parts = await effect(form.elements);
      } catch (e) {
        parts = [make('p', {textContent: e.message})];
      }
      if (mine === turn) { box.replaceChildren(...parts); box.hidden = !parts.length; }
    }, 200);
  };
  const run = async (button, what) => {
    set(error, '');
    button.disabled = true;
    try {
      const done = await what(form.elements);
      if (done === false) return;
      dialog.close();
      say(done);
    } catch (e) {
      set(error, e.message);
    } finally {
      button.disabled = false;
      check();
    }
  };
  form.addEventListener('input', check);
  form.addEventListener('submit', e => { e.preventDefault(); if (!submit.disabled) run(submit, act); });
  others.forEach((b, i) => b.addEventListener('click', () => run(b, also[i].act)));
  cancel.addEventListener('click', () => dialog.close());
  if (box) box.hidden = true;
  check();
  dialog.showModal();
  ($('input,select,textarea', form) || (danger ? cancel : submit)).focus();
  $('input', form)?.select();
}

// field returns a labelled control.
export function field(name, label, control, note) {
  control.name = name;
  return make('label', {}, label + ' ', control, note ? make('span', {className: 'note', textContent: note}) : null);
}

export const input = (props = {}) => make('input', {autocomplete: 'off', spellcheck: false, ...props});
export const choice = (options, value) => {
  const e = make('select', {}, ...options.map(([v, text]) => make('option', {value: v, textContent: text})));
  e.value = value;
  return e;
};
