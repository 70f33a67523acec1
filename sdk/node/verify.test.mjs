// Runs the cases of ../vectors.json. With --lines it verifies the requests in each line of its input instead, and prints the
// results as a line, for test/sdk.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import { Verifier } from './anteroom.mjs';

function verifier(c, now) {
  const config = { issuer: c.issuer, algorithms: c.algorithms, jwks: c.jwks, jwksUrl: c.jwks_url, secrets: c.secrets, revokedUrl: c.revoked_url, plainHttp: c.plain_http, acceptBound: c.accept_bound, now, onError() {} };
  if (c.revoked) {
    config.revokedUrl = 'http://gateway.test/.waiting-room/{room}/revoked';
    config.fetch = async () => Response.json({ evacuated: c.evacuated, revoked: c.revoked.map((sid) => ({ sid })) });
  }
  return new Verifier(config);
}

/** Returns header fields as node:http does. */
function request(fields) {
  const headers = {};
  for (const [name, value] of fields) {
    const key = name.toLowerCase();
    headers[key] = key in headers ? headers[key] + (key === 'cookie' ? '; ' : ', ') + value : value;
  }
  return { headers };
}

if (process.argv.includes('--lines')) {
  const verifiers = new Map();
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, config, now, requests, concurrent } = JSON.parse(line);
    if (!verifiers.has(id)) {
      const clock = { now };
      verifiers.set(id, { clock, verifier: verifier(config, () => clock.now) });
    }
    const { clock, verifier: v } = verifiers.get(id);
    clock.now = now;
    const one = (r) => v.verify(request(r.headers), r.room);
    const results = [];
    if (concurrent) results.push(...(await Promise.all(requests.map(one))));
    else for (const r of requests) results.push(await one(r));
    console.log(JSON.stringify(results));
  }
} else {
  const cases = JSON.parse(readFileSync(new URL('../vectors.json', import.meta.url)));
  let failed = 0;
  for (const c of cases) {
    const got = await verifier(c.config, () => c.now).verify(request(c.headers), c.room);
    if (isDeepStrictEqual(got, c.want)) continue;
    failed++;
    console.error(`${c.name}: ${JSON.stringify(got)}, want ${JSON.stringify(c.want)}`);
  }
  console.log(`node: ${cases.length - failed} of ${cases.length} cases`);
  process.exitCode = failed ? 1 : 0;
}
