// The live seat map: a WebSocket, and where that does not work, server-sent events.
"use strict";
(() => {
  const form = document.querySelector("form[data-live]");
  if (!form) return;
  const max = Number(form.dataset.max);
  const seats = new Map([...form.querySelectorAll("input[name=seats]")].map((s) => [s.value, s]));
  const free = form.querySelector("[data-free]");
  const chosen = form.querySelector("[data-chosen]");
  const button = form.querySelector("button");
  const live = form.querySelector(".live");

  function count() {
    const mine = [...seats.values()].filter((s) => s.checked).map((s) => s.value);
    chosen.textContent = mine.length ? "Yours: " + mine.join(", ") + "." : "Choose up to " + max + " on the map.";
    button.disabled = mine.length === 0;
    return mine.length;
  }
  form.addEventListener("change", (e) => {
    if (e.target.name === "seats" && count() > max) {
      e.target.checked = false;
      count();
    }
  });

  function sell(message, fresh) {
    for (const name of message.sold) {
      const s = seats.get(name);
      if (!s || s.disabled) continue;
      s.checked = false;
      s.disabled = true;
      if (fresh) s.parentElement.classList.add("fresh");
    }
    free.textContent = message.free;
    count();
  }
  function state(on, how) {
    live.dataset.state = on ? "on" : "off";
    live.textContent = on ? "live (" + how + ")" : "connecting";
  }

  function events() {
    const source = new EventSource(form.dataset.live + "/stream");
    source.onopen = () => state(true, "events");
    source.onerror = () => state(false);
    source.addEventListener("seats", (e) => sell(JSON.parse(e.data), false));
    source.addEventListener("change", (e) => sell(JSON.parse(e.data), true));
  }
  let attempts = 0;
  function socket() {
    const url = new URL(form.dataset.live + "/ws", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const ws = new WebSocket(url);
    ws.onopen = () => { attempts = 0; state(true, "WebSocket"); };
    ws.onmessage = (e) => { const m = JSON.parse(e.data); sell(m, m.kind === "change"); };
    ws.onclose = () => {
      state(false);
      if (++attempts >= 3) events();
      else setTimeout(socket, 1000 * attempts + 500 * Math.random());
    };
  }
  count();
  socket();
})();
