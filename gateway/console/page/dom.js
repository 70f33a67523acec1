// Helpers for the document. Text reaches it by textContent alone, so no text of a room, visitor or header becomes HTML.

export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// make returns a new element. props sets properties; a name with a dash, and role, set attributes.
export function make(name, props = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key.includes('-') || key === 'role' || key === 'for') e.setAttribute(key, value);
    else e[key] = value;
  }
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

// set writes text where it differs: an unchanged element keeps a reader's selection, and live regions stay silent.
export function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// fillIf replaces the children of e where key differs from that of the last call.
export function fillIf(e, key, build) {
  if (e.dataset.key === key) return;
  e.dataset.key = key;
  e.replaceChildren(...build());
}

const svgSpace = 'http://www.w3.org/2000/svg';
export function svg(name, attributes = {}) {
  const e = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  return e;
}
