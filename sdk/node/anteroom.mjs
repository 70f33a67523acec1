// Verifies the passes of an Anteroom gateway in a backend, without a request to the gateway for each pass.
//
// Send a visitor without a pass to /.waiting-room/{room}/: redirect a navigation, and return 401 with application/problem+json
// from an API. Treat every state but "pass" in this way: a backend that serves such visitors has no waiting room.

import { createHmac, createPublicKey, timingSafeEqual, verify as verifySignature } from 'node:crypto';

const MEMBER = /("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*"|[^ \t\r\n,}[{"]+|[[{])/g;
const COOKIE = /^[ \t]*([^=]*?)[ \t]*=[ \t]*(?:"(.*)"|(.*?))[ \t]*$/s;
const KNOWN = /^(iss|aud|jti|sid|ep|ah|bnd|iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi|off|acc|nbf)=/;
const TYPED = /^((iss|aud|jti|sid|ep|ah|bnd)="|(off|acc)=[tf]|(iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi)=(0|[1-9]\d{0,14}|[1-8]\d{15})$)/;
const OTHER = /^[a-z0-9_]{1,32}=[^[{]/; // a claim of a newer gateway
const ID = /^[A-Za-z0-9_-]{21}[AQgw]$/;
const RANK = ['none', 'invalid', 'expired', 'revoked', 'pass'];

class Refusal extends Error {
  constructor(reason, session = '', expires = 0) {
    super(reason);
    Object.assign(this, { reason, session, expires });
  }
}

function refuse(when, reason, session, expires) {
  if (when) throw new Refusal(reason, session, expires);
}

/** Decodes base64url in its only spelling (RFC 4648 §3.5). */
function decode(part, reason) {
  const bytes = Buffer.from(part, 'base64url');
  refuse(bytes.toString('base64url') !== part, reason);
  return bytes;
}

/** Returns the members of a flat JSON object with their values as written. Refuses a token that names one twice. */
function object(part, twice) {
  const members = new Map();
  let json;
  try {
    json = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(decode(part, 'malformed'));
    refuse(!/^[ \t\r\n]*\{/.test(json) || !JSON.parse(json), 'malformed');
  } catch {
    throw new Refusal('malformed');
  }
  for (const [, name, value] of json.matchAll(MEMBER)) {
    refuse(members.has(JSON.parse(name)), twice);
    members.set(JSON.parse(name), value);
  }
  return members;
}

/** Returns a JSON string, and '' for another value. */
const text = (value) => (value?.[0] === '"' ? JSON.parse(value) : '');

/** Returns the keys for ES256 and EdDSA of a key set (RFC 7517) by kid. */
function parseKeys(set) {
  const keys = new Map();
  for (const k of set.keys) {
    const alg = { 'EC P-256': 'ES256', 'OKP Ed25519': 'EdDSA' }[`${k?.kty} ${k?.crv}`];
    if (!alg || !k.kid || typeof k.kid !== 'string' || (k.use ?? 'sig') !== 'sig' || (k.alg ?? alg) !== alg) continue;
    try {
      const key = createPublicKey({ key: k, format: 'jwk' });
      const [hash, options] = alg === 'ES256' ? ['sha256', { key, dsaEncoding: 'ieee-p1363' }] : [null, key];
      keys.set(k.kid, { alg, verify: (signed, signature) => signature.length === 64 && verifySignature(hash, signed, options, signature) });
    } catch {
      continue; // a broken key does not affect the others
    }
  }
  return keys;
}

function parseRevoked(list) {
  const sessions = new Set(list.revoked.map((entry) => entry.sid));
  return { sessions, evacuated: list.evacuated };
}

/** A key set or a list of revoked sessions. The value is undefined until a fetch succeeds. */
class Document {
  constructor(config, url, parse) {
    Object.assign(this, { config, url, parse, tried: -Infinity, done: -Infinity });
  }

  /**
   * Returns the value. Fetches it if the last fetch began at least `every` seconds ago; concurrent calls share the fetch. Waits
   * for the fetch if `wait` is set, if the last one ended long ago, or if there is no value.
   */
  async load(every, wait) {
    const now = this.config.now();
    wait ||= !this.value || Math.abs(now - this.done) >= every * 1.5;
    if (!this.running && this.url && Math.abs(now - this.tried) >= (this.value ? every : 3)) {
      this.tried = now;
      this.running = this.fetch().finally(() => {
        this.done = this.config.now();
        this.running = undefined;
      });
    }
    if (wait) await this.running;
    return this.value;
  }

  async fetch() {
    try {
      const headers = this.etag ? { 'If-None-Match': this.etag } : {};
      const response = await this.config.fetch(this.url, { headers, redirect: 'error', signal: AbortSignal.timeout(2000) });
      if (response.status === 304) return;
      if (response.status !== 200) throw new Error(`status ${response.status}`);
      this.value = this.parse(await response.json());
      this.etag = response.headers.get('etag');
    } catch (cause) {
      this.config.onError(new Error(`anteroom: cannot fetch ${this.url}`, { cause }));
    }
  }
}

export class Verifier {
  #revoked = new Map(); // room: Document

  /**
   * @param {object} config
   * @param {string} config.issuer the gateway's tokens.issuer
   * @param {string[]} [config.algorithms] those allowed of ES256, EdDSA and HS256; all by default
   * @param {string} [config.jwksUrl] the gateway's https://HOST/.waiting-room/jwks.json
   * @param {object} [config.jwks] instead of jwksUrl: a key set
   * @param {Object<string, string>} [config.secrets] secrets of HS256 by kid, at least 32 bytes each
   * @param {string} [config.revokedUrl] the gateway's https://HOST/.waiting-room/{room}/revoked with the text {room}
   * @param {boolean} [config.plainHttp] the site has no TLS: the cookie's name has no prefix __Host-
   * @param {boolean} [config.acceptBound] accept passes that are bound to a network or browser, without checking the binding
   * @param {function(Error)} [config.onError] called when a fetch fails; the data of the last successful fetch stays in use
   * @param {function} [config.fetch] instead of the global fetch
   * @param {function(): number} [config.now] the time in Unix seconds
   */
  constructor(config) {
    const c = { onError: (error) => console.error(error.message, error.cause?.message), fetch: globalThis.fetch, now: () => Date.now() / 1000, ...config };
    c.algorithms ??= ['ES256', 'EdDSA', 'HS256'];
    if (!c.issuer || !(c.jwksUrl || c.jwks || c.secrets) || (c.revokedUrl && !c.revokedUrl.includes('{room}'))) {
      throw new Error('anteroom: set issuer; jwksUrl, jwks or secrets; and in revokedUrl the text {room}');
    }
    this.config = c;
    this.secrets = new Map();
    for (const [kid, secret] of Object.entries(c.secrets ?? {})) {
      if (Buffer.byteLength(secret) < 32) throw new Error(`anteroom: secrets: "${kid}" is shorter than 32 bytes`);
      const mac = (signed) => createHmac('sha256', secret).update(signed).digest();
      this.secrets.set(kid, { alg: 'HS256', verify: (signed, signature) => signature.length === 32 && timingSafeEqual(mac(signed), signature) });
    }
    this.keys = new Document(c, c.jwksUrl, parseKeys);
    if (!c.jwksUrl) this.keys.value = parseKeys(c.jwks ?? { keys: [] });
  }

  /**
   * Returns the state of a request's visitor in a room. Tries the header field X-Waiting-Room-Pass, then at most four cookies,
   * until a pass is valid. If none is, the result is that of a revoked pass, else of an expired one, else of the first one.
   * @param {{headers: object}} request one of node:http, Express or fetch
   * @param {string} room
   * @returns {Promise<{state: 'pass'|'none'|'invalid'|'expired'|'revoked', reason: string, session: string, expires: number}>}
   */
  async verify(request, room) {
    const field = (name) => (typeof request.headers.get === 'function' ? request.headers.get(name) : request.headers[name]) ?? '';
    const cookie = `${this.config.plainHttp ? '' : '__Host-'}wr_${room}_pass`;
    const tokens = [];
    for (const pair of [field('cookie')].flat().join(';').split(';')) {
      const [, name, quoted, plain] = pair.match(COOKIE) ?? [];
      if (name === cookie && (quoted || plain) && tokens.length < 4) tokens.push(quoted || plain);
    }
    if (field('x-waiting-room-pass')) tokens.unshift([field('x-waiting-room-pass')].flat()[0]);
    let result = { state: 'none', reason: '', session: '', expires: 0 };
    for (const raw of tokens) {
      const one = await this.#result(raw, room);
      if (RANK.indexOf(one.state) > RANK.indexOf(result.state)) result = one;
      if (result.state === 'pass') break;
    }
    return result;
  }

  async #result(raw, room) {
    try {
      return { state: 'pass', reason: '', ...(await this.#token(raw, room)) };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { reason, session, expires } = error;
      return { state: RANK.includes(reason) ? reason : 'invalid', reason, session, expires };
    }
  }

  async #token(raw, room) {
    const { issuer, algorithms, acceptBound, revokedUrl, now: clock } = this.config;
    refuse(Buffer.byteLength(raw) > 4096, 'too_long');
    const parts = raw.split('.');
    refuse(parts.length !== 3, 'malformed');
    const header = object(parts[0], 'header');
    refuse(header.has('crit'), 'crit');
    refuse([...header.keys()].some((name) => !['alg', 'kid', 'typ'].includes(name)), 'header');
    const [alg, kid] = [text(header.get('alg')), text(header.get('kid'))];
    refuse(!algorithms.includes(alg), 'alg');
    let key = this.secrets.get(kid);
    if (!key) {
      key = (await this.keys.load(300, false))?.get(kid);
      if (!key && alg !== 'HS256') key = (await this.keys.load(30, true))?.get(kid);
      refuse(!this.keys.value, 'keys');
    }
    refuse(!key, 'kid');
    refuse(key.alg !== alg, 'alg');
    refuse(text(header.get('typ')) !== 'pass+jwt', 'type');
    refuse(!key.verify(Buffer.from(`${parts[0]}.${parts[1]}`), decode(parts[2], 'signature')), 'signature');
    const claims = object(parts[1], 'claims');
    for (const [name, value] of claims) {
      const member = `${name}=${value}`;
      refuse(!TYPED.test(member) && (KNOWN.test(member) || !OTHER.test(member)), name === 'iss' ? 'issuer' : name === 'aud' ? 'audience' : 'claims');
    }
    refuse(text(claims.get('iss')) !== issuer, 'issuer');
    refuse(!room || text(claims.get('aud')) !== room, 'audience');
    const [iat, exp, now] = [Number(claims.get('iat')), Number(claims.get('exp')), Math.floor(clock())];
    const session = text(claims.get('sid'));
    refuse(Number.isNaN(iat) || !(exp >= 1) || exp - now > 366 * 24 * 3600 || !ID.test(text(claims.get('jti'))) || !ID.test(session), 'claims');
    refuse(iat > now + 5, 'future');
    refuse(now >= exp + 5, 'expired', session, exp);
    refuse(text(claims.get('bnd')) && !acceptBound, 'bound');
    if (revokedUrl) {
      if (!this.#revoked.has(room)) this.#revoked.set(room, new Document(this.config, revokedUrl.replaceAll('{room}', room), parseRevoked));
      const list = await this.#revoked.get(room).load(2, false);
      refuse(!list, 'revocations');
      const out = list.evacuated; // sessions that were claimed by then have ended
      const ended = out && (claims.has('ct') ? Number(claims.get('ct')) <= out.ct : iat <= out.iat);
      refuse(ended || list.sessions.has(session), 'revoked', session, exp);
    }
    return { session, expires: exp };
  }
}
