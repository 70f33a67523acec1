// Shows what the room publishes below the operator's message. The waiting page loads it for each version; to run it again changes nothing.
(() => {
"use strict";
const content = {/*document*/};
const texts = {/*texts*/};
const root = document.documentElement;
const main = document.querySelector("[data-room]");
const words = texts[root.lang] || texts.en;

// The style is one for all versions. A template of the operator's own may style #facts itself.
if (!window.roomFacts) {
  window.roomFacts = new CSSStyleSheet();
  window.roomFacts.replaceSync(`
    #facts { margin-top: 18px; }
    #facts:empty { display: none; }
    #facts p { display: flex; flex-wrap: wrap; gap: 2px 14px; }
    #facts .item { padding: 8px 0; border-bottom: 1px solid var(--r); }
    #facts .notice { display: block; margin-bottom: 10px; padding: 11px 15px; border-radius: 12px; font-size: 15px; white-space: pre-line; background: var(--t); color: var(--i); }
    #facts .warning, #facts .urgent { background: var(--w); color: var(--d); }
    #facts .urgent { border: 2px solid var(--d); font-weight: 600; }
    #facts .item > :first-child { flex: 1 1 30%; }
    #facts .item > :last-child { min-width: 5.5em; margin-inline-start: auto; text-align: end; font-size: 14px; font-weight: 600; }
    #facts .low > :last-child { color: var(--d); }
    #facts .sold_out { color: var(--s); }
    #facts a { color: inherit; }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, window.roomFacts];
}

let box = document.getElementById("facts");
if (!box) {
  box = document.createElement("div");
  box.id = "facts";
  const before = document.getElementById("message");
  if (before) before.after(box);
  else main.append(box);
}
box.setAttribute("aria-live", "polite");

// cell returns an element with text alone: what the room publishes is never read as HTML.
function cell(text, lang, link) {
  const e = document.createElement(link ? "a" : "span");
  e.textContent = text;
  if (lang) {
    e.lang = lang;
    e.dir = "auto";
  }
  if (link) {
    e.href = link;
    e.target = "_blank";
    e.rel = "noopener";
  }
  return e;
}

function row(kind, cells) {
  const p = document.createElement("p");
  p.className = kind;
  p.append(...cells);
  return p;
}

// inLanguage returns a text in the page's language, in English, or in the first language.
function inLanguage(byLanguage, link) {
  const base = root.lang.split("-")[0];
  const lang = [root.lang, base, "en"].find(l => l in byLanguage) || Object.keys(byLanguage)[0];
  return cell(byLanguage[lang], lang, link);
}

function money({from, to, currency}) {
  const f = new Intl.NumberFormat(root.lang, {style: "currency", currency});
  if (!(to > from)) return f.format(from);
  return f.formatRange ? f.formatRange(from, to) : f.format(from) + " – " + f.format(to);
}

const rows = [
  ...content.notices.map(n => row("notice " + n.level, [...(words[n.level] ? [cell(words[n.level] + ": ")] : []), inLanguage(n.text, n.link)])),
  ...content.items.map(i => row("item " + i.state, [inLanguage(i.label), ...(i.price ? [cell(money(i.price))] : []), cell(words[i.state])])),
];
// Only rows that differ are replaced, so that the live region announces these alone.
rows.forEach((next, i) => {
  const old = box.children[i];
  if (!old) box.append(next);
  else if (!old.isEqualNode(next)) old.replaceWith(next);
});
while (box.children.length > rows.length) box.lastChild.remove();

// A page of a closed room polls no status, so it learns of newer facts here.
clearTimeout(window.roomFactsTimer);
const url = "/.waiting-room/" + main.dataset.room + "/facts";
async function look() {
  window.roomFactsTimer = setTimeout(look, 2e4 + 2e4 * Math.random());
  if (main.dataset.state !== "rejected") return;
  try {
    const answer = await fetch(url, {method: "HEAD"});
    const version = (answer.headers.get("ETag") || "").replace(/"|W\//g, "");
    if (answer.ok && version) {
      const next = document.createElement("script");
      next.src = url + "?v=" + version + "&js";
      root.append(next);
    }
  } catch { /* the next look tries again */ }
}
window.roomFactsTimer = setTimeout(look, 2e4 + 2e4 * Math.random());
})();
