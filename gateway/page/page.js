const {ceil, floor, log2, max, min, random} = Math;
const main = document.querySelector("[data-room]");
const data = main.dataset;
const root = document.documentElement;
const text = JSON.parse(document.getElementById("text").textContent);
const {say, number, count, wait} = words(text, root.lang);
const base = "/.waiting-room/";
const absence = +data.absence;
const key = "waiting-room " + data.room;
// An operator's own template may leave parts out: those are written to an element outside the document.
const find = id => document.getElementById(id) || document.createElement("p");
const read = id => find(id).textContent;
const put = (id, value) => {
  if (read(id) !== value) find(id).textContent = value;
};

// Storage may be forbidden; the state is then lost on a reload.
const recall = store => {
  try { return JSON.parse(window[store].getItem(key)) || {}; } catch { return {}; }
};
const remember = (store, value) => {
  try { window[store].setItem(key, JSON.stringify(value)); return true; } catch { return false; }
};

const relative = new Intl.RelativeTimeFormat(root.lang);
let announced = read("opens"), opens = new Date(data.begins), skew, steps = 0;
// The visitor's clock may be wrong, so the countdown uses the server's.
const clock = now => skew = Date.parse(now) - Date.now() || 0;
clock(data.now);
let refresh = +data.refresh, failures = 0, asked = 0, timer, busy, gone = data.state === "proof", doubted, back, milestone, sound;
// A page that a check has shown has refresh 0: before it polls, the script takes a ticket, or finds the one that the visitor has.
let beside = !refresh, take = beside;
refresh ||= 2;
let line = recall("localStorage");
let visit = recall("sessionStorage");
let note = data.state === "expired" ? read("note") : visit.why ? lost(visit.why) : "";
remember("sessionStorage", {at: visit.at});

// lost returns the sentences that a place was lost, and that there is a new one.
function lost(why) {
  return why === "evacuated" ? text[why] : (text[why] || text.late) + " " + text.anew;
}

// place shows the visitor's position. The number does not grow unless people came back: a rise within 2 % is the error of
// the estimate, and a larger rise is shown once two responses in a row have it.
function place(status) {
  const n = status.position;
  if (!line.shown || line.joined !== status.joined_at) line = {joined: status.joined_at, first: n, shown: n, done: .02};
  const rise = n > line.shown * 1.02;
  if (n <= line.shown || rise && doubted) {
    back = n > line.shown || back && n === line.shown;
    line.shown = n;
  }
  doubted = rise;
  line.done = max(line.done, 1 - n / line.first);
  remember("localStorage", line);
  put("place", number(line.shown));
  put("ahead", line.shown > 1 ? count("ahead", line.shown - 1) : text.next);
  const bar = find("bar");
  bar.hidden = false;
  bar.value = line.done;
  document.title = say("t_waiting", {n: number(line.shown), site: data.site});
}

// facts shows what the room publishes: a script of the gateway for each version. It is the same to run it again.
const facts = to => to && (root.appendChild(document.createElement("script")).src = to + "&js");

function show(status) {
  failures = 0;
  facts(status.facts?.url);
  const state = status.state;
  if (state !== data.state) announced = "";
  data.state = state;
  opens = new Date(status.opens_at || status.closes_at);
  tick();
  const why = state === "rejected" ? (text["h_" + status.reason] ? status.reason : "closed") : state === "expired" ? "waiting" : state;
  const heading = text["h_" + why];
  document.title = heading + " · " + data.site;
  put("heading", heading);
  put("lead", text["l_" + why]);
  put("paused", status.paused ? text.paused : "");
  put("message", status.message || "");
  if (status.position) place(status);
  else {
    put("place", "…");
    put("ahead", "");
  }
  const eta = status.eta;
  put("wait", eta ? wait(eta.low || eta.seconds, eta.high || eta.seconds) : text.unknown);
  put("waiting", number(max(status.waiting || 0, line.shown || 0)));
  put("note", note || (back ? text.back : ""));
  link();
}

// link shows when the page was updated, and announces changes in the live region: a new state, a note, a lost
// connection, each halving of the position and of the time until the opening. Not each poll.
function link() {
  const cut = failures || !navigator.onLine;
  put("link", !navigator.onLine ? text.offline : failures ? text.reconnecting :
    say("updated", {t: new Date().toLocaleTimeString(root.lang)}));
  find("link").className = cut ? "off" : "";
  speak(cut);
}

// tick counts down, from two days on and in the last minute each second. The live region does not announce the seconds.
function tick() {
  const left = (opens - skew - Date.now()) / 1e3;
  const n = left < 60 ? 1 : left < 5400 ? 60 : 3600;
  steps = floor(log2(ceil(left / 60)));
  let at = +opens ? announced.replace(/\d.*C/, opens.toLocaleString(root.lang, {dateStyle: "long", timeStyle: "short"})) : "";
  if (at && left > 0 && left < 2e5) at += " · " + relative.format(ceil(left / n), n < 2 ? "second" : n < 61 ? "minute" : "hour");
  put("opens", at);
}

// speak announces changes in the live region.
function speak(cut) {
  const parts = ["heading", "note", "paused", "message"].map(read);
  const now = parts + floor(log2(line.shown || 1)) + (failures > 1) + steps;
  if (milestone && milestone !== now) {
    if (read("opens")) parts.push(read("opens"));
    if (data.state === "waiting") parts.push(read("ahead"), text.eta + ": " + read("wait"));
    if (cut) parts.push(read("link"));
    put("live", parts.filter(Boolean).join(" "));
  }
  milestone = now;
}

// load opens an address with GET. With a fragment the browser would only scroll, so the own address is changed first.
function load(to) {
  gone = true;
  if (location.hash) history.replaceState(null, "", base + data.room + "/");
  location.replace(to);
}

// again reports whether ms have passed since the page was last reloaded, and notes a reload now.
function again(ms, why) {
  const now = Date.now();
  return now - (visit.at || 0) > ms && remember("sessionStorage", visit = {at: now, why});
}

// goOn opens the requested page. A page that a check has shown does so at most once a minute: if the browser keeps no cookies, the check
// shows the page again, and the script would take one session after another.
function goOn() {
  if (gone) return;
  if (beside && !again(6e4)) return rejoin("missing");
  const to = location.pathname.startsWith(base) ? "/" : location.href;
  find("go").href = to;
  show({state: "admitted"});
  document.title = say("t_turn", {site: data.site});
  gone = true;
  if (!sound) return load(to);
  chime();
  setTimeout(() => load(to), 900);
}

// rejoin reloads the page, which takes a new place: at most once a minute, and if the browser sends no token at all, at
// most once in the time that a place is kept.
function rejoin(why) {
  if (again(why === "missing" ? absence * 1e3 : 6e4, why)) return load(location.href);
  failures++;
  note = why === "missing" ? text.cookies : lost(why);
  put("note", note);
  link();
}

function hear(status) {
  if (gone) return;
  if (note === text.cookies) note = "";
  refresh = status.refresh_after || 2;
  const state = status.state;
  if (state === "admitted" || state === "active") return goOn();
  if (state === "lapsed" || state === "ended") return rejoin(state);
  if (state === "expired" && !status.token) return rejoin(status.reason);
  if (/joins|sold/.test(status.reason)) return load(location.href);
  if (state !== "rejected" && status.reason) note = lost(status.reason);
  show(status);
}

// Tabs of one room share one poller: the tab that polls informs the others, which then wait longer than its next poll.
// When it stops, the tab whose wait ends first polls next. There is no lock, because a frozen or hidden tab would hold
// it. A visible tab waits for less time than a hidden one.
const channel = window.BroadcastChannel && new BroadcastChannel(key);
const tell = message => channel && channel.postMessage(message);
if (channel) channel.onmessage = event => {
  const {status, broken} = event.data;
  asked = Date.now();
  if (status) hear(status);
  if (broken) {
    failures = broken;
    link();
  }
  plan(true);
};

function plan(other) {
  clearTimeout(timer);
  if (gone) return;
  let delay = min(refresh * 2 ** failures, max(refresh, 60));
  // Before an opening the server has spread the polls, and later ones have to be on time.
  const exact = data.state === "prequeue";
  if (document.hidden && !exact) delay *= 1.8;
  delay = other ? delay * 1.35 + 1 + 2 * random() : exact ? delay : delay * (.85 + .3 * random());
  timer = setTimeout(poll, 1e3 * min(delay, absence / (other ? 3 : 4)));
}

async function ask() {
  const shut = data.state === "rejected";
  const answer = await fetch(shut ? location.href : base + data.room + "/" + (take ? "tickets" : "status"), {
    method: shut ? "HEAD" : take ? "POST" : "GET",
    headers: {Accept: "application/json"},
    redirect: "manual",
    signal: AbortSignal.timeout?.(1e4),
  });
  clock(answer.headers.get("Date"));
  if (shut) {
    if (answer.headers.get("X-Waiting-Room") !== data.state && (beside || answer.status < 500 && answer.status !== 429)) return load(location.href);
    if (answer.status > 503) throw answer;
    refresh = +answer.headers.get("Retry-After") || 30;
    if (+opens) refresh = min(refresh, 30);
    failures = 0;
    return link();
  }
  // The room's own page says why it gives no ticket: an account, a proof of work, a limit.
  if (take && answer.status > 399 && answer.status < 500) return load(base + data.room + "/");
  if (answer.status === 401 || answer.status === 404) return rejoin("missing");
  let status = await answer.json();
  if (answer.status === 503 && /^room_/.test(status.code)) {
    data.reason = status.code.slice(5);
    status = {state: "rejected", reason: data.reason, refresh_after: +answer.headers.get("Retry-After") || 30};
  } else if (!answer.ok || !status.state) throw answer;
  take = 0;
  hear(status);
  // A lapsed or ended place is replaced by the reload of one tab, which then informs the others.
  if (!/lapsed|ended/.test(status.state)) tell({status});
}

async function poll() {
  if (busy || gone) return;
  busy = true;
  asked = Date.now();
  tell({});
  try {
    await ask();
  } catch {
    failures++;
    tell({broken: failures});
    link();
  }
  busy = false;
  plan();
}

const wake = () => Date.now() > asked + 1e3 && poll();
addEventListener("online", wake);
addEventListener("offline", link);
addEventListener("pageshow", event => event.persisted && wake());
document.addEventListener("visibilitychange", () => document.hidden || wake());

// The sound is opt-in: browsers play sound only after a click.
function chime() {
  [523, 659, 784].forEach((frequency, i) => {
    const voice = new OscillatorNode(sound, {frequency}), level = new GainNode(sound), at = sound.currentTime + i * .2;
    level.gain.setValueAtTime(.2, at);
    level.gain.exponentialRampToValueAtTime(.001, at + .5);
    voice.connect(level).connect(sound.destination);
    voice.start(at);
    voice.stop(at + .5);
  });
}
const button = find("sound");
button.hidden = !window.AudioContext;
button.onclick = () => {
  if (sound) sound = sound.close() && null;
  else {
    sound = new AudioContext();
    chime();
  }
  button.setAttribute("aria-pressed", !!sound);
};

tick();
setInterval(tick, 1e3);
if (data.joined && +data.place) place({position: +data.place, joined_at: data.joined});
put("note", note);
link();
facts(data.facts);
if (!gone) timer = setTimeout(poll, take ? 0 : 1e3 * (refresh > 3 ? refresh * (.85 + .3 * random()) : 1 + 2 * random()));
