// Tabs of the panels beside the plots.

import {make} from './dom.js';

export class Tabs {
  // panels: {key: {label, open}}; open is called when a panel is shown.
  constructor(list, root, panels) {
    this.panels = panels;
    this.current = '';
    this.tabs = {};
    for (const [key, panel] of Object.entries(panels)) {
      const tab = make('button', {type: 'button', role: 'tab', id: 'tab-' + key, 'aria-controls': 'panel-' + key, textContent: panel.label});
      panel.root = make('div', {id: 'panel-' + key, className: 'panel', role: 'tabpanel', 'aria-labelledby': 'tab-' + key, tabIndex: 0, hidden: true});
      tab.addEventListener('click', () => this.open(key));
      list.append(tab);
      root.append(panel.root);
      this.tabs[key] = tab;
    }
    list.addEventListener('keydown', e => {
      const keys = Object.keys(this.tabs).filter(k => !this.tabs[k].hidden), at = keys.indexOf(this.current);
      const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1}[e.key];
      if (to === undefined) return;
      e.preventDefault();
      const key = keys[(to + keys.length) % keys.length];
      this.open(key);
      this.tabs[key].focus();
    });
  }

  root(key) { return this.panels[key].root; }
  hide(key, hidden) {
    this.tabs[key].hidden = hidden;
    if (hidden && this.current === key) this.open(Object.keys(this.tabs)[0]);
  }

  open(key) {
    this.current = key;
    for (const [k, tab] of Object.entries(this.tabs)) {
      const chosen = k === key;
      tab.setAttribute('aria-selected', String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      this.panels[k].root.hidden = !chosen;
    }
    this.panels[key].open?.();
  }
}
