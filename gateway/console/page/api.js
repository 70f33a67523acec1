// Requests to /admin/v1.

// Refused is a response other than 2xx.
export class Refused extends Error {
  constructor(status, problem, after) {
    const lines = (problem.problems || []).map(f => f.path + ' ' + f.problem + (f.allowed ? ': ' + f.allowed : ''));
    super(lines.length ? lines.join('\n') : problem.detail || 'The gateway responded ' + status + '.');
    this.status = status;
    this.code = problem.code;
    this.after = after;
  }
}

let token = sessionStorage.getItem('token') || '';
let csrf = '';
const missing = new Set(); // kinds of routes that this gateway, or this operator's role, does not have

export const hasToken = () => token !== '';
export const validToken = text => /^[\x21-\x7e]*$/.test(text);

// useToken sends a token from now on; keepToken keeps it for this tab.
export function useToken(text) {
  token = text;
  csrf = '';
  missing.clear();
  if (!text) sessionStorage.removeItem('token');
}
export function keepToken() {
  if (token) sessionStorage.setItem('token', token);
}

// useCSRF sets the token that changes need in a session with a cookie.
export function useCSRF(text) { csrf = text || ''; }

// request sends a request and returns its response, or throws Refused.
export async function request(method, path, body, signal = AbortSignal.timeout(10000)) {
  const headers = token ? {Authorization: 'Bearer ' + token} : {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (csrf && method !== 'GET') headers['X-CSRF-Token'] = csrf;
  const r = await fetch(path.startsWith('/') ? path : '/admin/v1/' + path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store', credentials: token ? 'omit' : 'same-origin', redirect: 'error', signal});
  if (r.ok) return r;
  throw new Refused(r.status, await r.json().catch(() => ({})), r.headers.get('Retry-After'));
}

export async function api(method, path, body) {
  const r = await request(method, path, body);
  return r.status === 204 ? null : r.json();
}

// optional is api for a route that may be missing: it then returns undefined, and kind is not requested again.
export async function optional(kind, method, path, body) {
  if (missing.has(kind)) return undefined;
  try {
    return await api(method, path, body);
  } catch (e) {
    if (!(e instanceof Refused) || !absent(e)) throw e;
    missing.add(kind);
    return undefined;
  }
}

// absent reports whether a route does not exist here or is not allowed, unlike a room or ticket that does not exist.
export const absent = e => e.status === 403 || e.status === 405 || e.status === 404 && (e.code === 'not_found' || e.code === undefined);
export const isMissing = kind => missing.has(kind);

export const roomPath = (id, rest = '') => 'rooms/' + encodeURIComponent(id) + rest;
