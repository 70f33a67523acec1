// The visitors' page in each state and language.

import {optional, roomPath} from './api.js';
import {choice, field} from './dialog.js';
import {make} from './dom.js';

export class Preview {
  constructor(root, context) {
    this.context = context;
    this.states = choice([], '');
    this.languages = choice([], '');
    this.frame = make('iframe', {title: 'The page as visitors see it', sandbox: 'allow-scripts'});
    this.note = make('p', {className: 'note'});
    root.append(make('h3', {textContent: 'The visitors’ page'}), make('div', {className: 'inline'}, field('state', 'State', this.states), field('language', 'Language', this.languages)), this.note, this.frame);
    for (const c of [this.states, this.languages]) c.addEventListener('change', () => this.show());
  }

  async load() {
    const id = this.context().room.id;
    if (this.id !== id) {
      const r = await optional('preview', 'GET', roomPath(id, '/preview'));
      if (!r) { this.note.textContent = 'This gateway does not show the page.'; return; }
      this.id = id;
      for (const [c, list] of [[this.states, r.states], [this.languages, r.languages]]) c.replaceChildren(...list.map(v => make('option', {value: v, textContent: v})));
    }
    this.show();
  }

  show() {
    const query = new URLSearchParams({room: this.id, state: this.states.value, language: this.languages.value});
    this.frame.src = '/console/preview?' + query;
  }
}
