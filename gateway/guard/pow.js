// A guarded page solves the proof of work in workers that run this same script, lets the visitor solve the CAPTCHA if the room has one,
// and joins. The gateway puts text (in the language of the page), simd (pow.wasm) and search.js in front of this file.
const worker = typeof document === "undefined";

const pause = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1e3));

// solve searches for the number in a few workers. It calls progress with the share of the numbers that were tried.
const solve = (challenge, progress) => new Promise((resolve, reject) => {
  const parts = Math.min(navigator.hardwareConcurrency || 2, 4), all = [];
  let tried = 0, left = parts;
  const stop = then => value => {
    all.forEach(one => one.terminate());
    then(value);
  };
  for (let part = 0; part < parts; part++) {
    const one = new Worker(script);
    all.push(one);
    one.onerror = stop(reject);
    one.onmessage = ({data}) => {
      if (data.tried) progress((tried += data.tried) / challenge.maxnumber);
      else if (data.number >= 0) stop(resolve)(data.number);
      else if (!--left) stop(reject)(); // there is none
    };
    one.postMessage({...challenge, part, parts});
  }
});

// widgets are the scripts of the CAPTCHA providers, the only requests of this script to other sites.
const widgets = {
  turnstile: ["turnstile", "https://challenges.cloudflare.com/turnstile/v0/api.js"],
  hcaptcha: ["hcaptcha", "https://js.hcaptcha.com/1/api.js"],
  recaptcha: ["grecaptcha", "https://www.google.com/recaptcha/api.js"],
};

// person shows a CAPTCHA and returns its solution.
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

// get fetches JSON; any other response is an error.
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
    // A screen reader announces each quarter, not each hundredth.
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
      // The browser now has the ticket as a cookie: the reload shows the place in the queue, or the site.
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

if (worker) {
  let tried = 0;
  onmessage = ({data}) => postMessage({number: search(data, n => {
    if ((tried += n) < 65536) return;
    postMessage({tried});
    tried = 0;
  })});
} else {
  var script = document.currentScript.src;
  const main = document.querySelector("[data-state=proof]");
  if (main) join(main);
}
