// What a page does before it may join: it proves work, in workers that run this very file, answers a CAPTCHA where the room
// has one, and joins. The text of the language stands before it.
const worker = typeof document === "undefined";

// search looks for the number in steps, beside other workers. Salt and number are one block of SHA-256, and of its eight
// words the first tells all but one of four thousand million apart.
function search({challenge, salt, maxnumber, first, step}) {
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every(p => n % p)) primes.push(n);
  const part = x => (x - Math.floor(x)) * 2 ** 32 | 0;
  const K = Int32Array.from(primes, p => part(Math.cbrt(p)));
  const I = Int32Array.from(primes.slice(0, 8), p => part(Math.sqrt(p)));
  const want = Int32Array.from(challenge.match(/.{8}/g), word => parseInt(word, 16) | 0);
  const block = new Uint8Array(64), view = new DataView(block.buffer), W = new Int32Array(64), H = new Int32Array(8);
  const at = salt.length, from = at >> 2;
  block.set(new TextEncoder().encode(salt));
  for (let i = 0; i < from; i++) W[i] = view.getInt32(i * 4);
  let told = 0;
  for (let number = first; number <= maxnumber; number += step) {
    let end = at + 1;
    for (let n = number; n > 9; n = n / 10 | 0) end++;
    for (let n = number, i = end; i > at; n = n / 10 | 0) block[--i] = 48 + n % 10;
    block[end] = 128;
    for (let i = from; i < 15; i++) W[i] = view.getInt32(i * 4);
    W[15] = end * 8;
    for (let i = 16; i < 64; i++) {
      const x = W[i - 15], y = W[i - 2];
      W[i] = W[i - 16] + W[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10) | 0;
    }
    let a = I[0], b = I[1], c = I[2], d = I[3], e = I[4], f = I[5], g = I[6], h = I[7];
    for (let i = 0; i < 64; i++) {
      const t = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (g ^ e & (f ^ g)) + K[i] + W[i] | 0;
      const u = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + t | 0; d = c; c = b; b = a; a = t + u | 0;
    }
    if ((a + I[0] | 0) === want[0]) {
      H.set([a, b, c, d, e, f, g, h]);
      if (H.every((word, i) => (word + I[i] | 0) === want[i])) return postMessage({number});
    }
    if (++told % 65536 === 0) postMessage({tried: 65536});
  }
}
const pause = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1e3));

// solve lets a few workers look for the number. progress is told the share that is tried.
const solve = (challenge, progress) => new Promise((resolve, reject) => {
  const step = Math.min(navigator.hardwareConcurrency || 2, 4), all = [];
  let tried = 0;
  const stop = then => value => {
    all.forEach(one => one.terminate());
    then(value);
  };
  for (let first = 0; first < step; first++) {
    const one = new Worker(script);
    all.push(one);
    one.onerror = stop(reject);
    one.onmessage = ({data}) => {
      if (data.number >= 0) return stop(resolve)(data.number);
      progress((tried += data.tried) / challenge.maxnumber);
    };
    one.postMessage({...challenge, first, step});
  }
});

// widgets are the scripts of those who make CAPTCHAs: the one thing here that is asked of another site.
const widgets = {
  turnstile: ["turnstile", "https://challenges.cloudflare.com/turnstile/v0/api.js"],
  hcaptcha: ["hcaptcha", "https://js.hcaptcha.com/1/api.js"],
  recaptcha: ["grecaptcha", "https://www.google.com/recaptcha/api.js"],
};

// person shows a CAPTCHA and gives its answer.
const person = ({provider, site_key}, box) => new Promise((resolve, reject) => {
  const [name, src] = widgets[provider];
  const render = () => {
    box.textContent = "";
    const place = box.appendChild(document.createElement("div"));
    window[name].render(place, {sitekey: site_key, callback: resolve, "error-callback": reject, hl: document.documentElement.lang});
  };
  if (window[name]) return render();
  window.captchaIsHere = render;
  document.head.append(Object.assign(document.createElement("script"), {src: src + "?render=explicit&onload=captchaIsHere", onerror: reject}));
});

// get asks for JSON; an answer that is none is an error.
const get = async (url, options) => {
  const answer = await fetch(url, {...options, headers: {Accept: "application/json", "Content-Type": "application/json"}});
  return {status: answer.status, retry: +answer.headers.get("Retry-After"), body: await answer.json()};
};

async function join(main) {
  const room = "/.waiting-room/" + main.dataset.room + "/", find = id => document.getElementById(id) || document.createElement("p");
  const bar = document.createElement("progress"), box = document.createElement("div"), now = document.createElement("p");
  bar.setAttribute("aria-label", text.bar);
  bar.value = 0;
  box.id = "captcha";
  now.id = "proof";
  (find("lead").isConnected ? find("lead") : main).after(bar, now, box);
  let milestone;
  const say = (words, step = words) => {
    now.textContent = words;
    // A screen reader hears of each quarter, not of each hundredth.
    if (milestone !== step) find("live").textContent = words;
    milestone = step;
  };
  const progress = share => {
    bar.value = Math.min(share, 1);
    say(text.working.replace("{n}", Math.floor(bar.value * 100)), Math.floor(bar.value * 4));
  };
  let made, till = 0, body;
  for (;;) {
    try {
      if (Date.now() > till) {
        made = (await get(room + "challenge")).body;
        till = Date.now() + 24e4;
        body = {};
        if (made.challenge) {
          progress(0);
          const {algorithm, challenge, salt, signature} = made;
          body.altcha = btoa(JSON.stringify({algorithm, challenge, number: await solve(made, progress), salt, signature}));
        }
      }
      if (made.captcha) {
        bar.hidden = true;
        say(text.person.replace("{name}", {turnstile: "Cloudflare Turnstile", hcaptcha: "hCaptcha", recaptcha: "Google reCAPTCHA"}[made.captcha.provider]));
        body.captcha = await person(made.captcha, box);
      }
      bar.value = 1;
      say(text.joining);
      const {status, retry, body: answer} = await get(room + "tickets", {method: "POST", body: JSON.stringify(body)});
      // The ticket is a cookie by now: the page that was asked for shows the place, or is the site's.
      if (status < 300) {
        if (location.hash) history.replaceState(null, "", location.pathname + location.search);
        return location.reload();
      }
      if (/^proof|captcha/.test(answer.code)) till = 0;
      say(status === 429 ? text.many : text.again);
      await pause(retry || 5);
    } catch {
      say(text.again);
      till = 0;
      await pause(5);
    }
  }
}

if (worker) onmessage = event => search(event.data);
else {
  var script = document.currentScript.src;
  const main = document.querySelector("[data-state=proof]");
  if (main) join(main);
}
