"""Verifies the passes of an Anteroom gateway in a backend, without a request to the gateway for each pass.

Send a visitor without a pass to /.waiting-room/{room}/: redirect a navigation, and return 401 with application/problem+json
from an API. Treat every state but "pass" in this way: a backend that serves such visitors has no waiting room.

HS256 needs the standard library only. ES256 and EdDSA need the package cryptography.
"""

import base64
import hashlib
import hmac
import json
import logging
import re
import threading
import time
import urllib.request
from collections import namedtuple

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
except ImportError:
    ec = None

COOKIE = re.compile(r'[ \t]*([^=]*?)[ \t]*=[ \t]*(?:"(.*)"|(.*?))[ \t]*', re.S)
TYPES = {"nbf": None, "off": bool, "acc": bool, **dict.fromkeys(["iss", "aud", "jti", "sid", "ep", "ah", "bnd"], str)}
TYPES.update(dict.fromkeys(["iat", "exp", "ord", "seen", "hold", "hd", "fn", "ct", "used", "eta", "elo", "ehi"], int))
ID = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
RANK = ["none", "invalid", "expired", "revoked", "pass"]
log = logging.getLogger("anteroom")
# session and expires (Unix seconds) are set in the states pass, expired and revoked.
Result = namedtuple("Result", ["state", "reason", "session", "expires"], defaults=["", "", 0])


class Refusal(Exception):
    pass


def refuse(when, reason, *session):
    if when:
        raise Refusal(Result(reason if reason in RANK else "invalid", reason, *session))


def decode(part, reason):
    """Decodes base64url in its only spelling (RFC 4648 §3.5)."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_")
        again = base64.urlsafe_b64encode(data).decode().rstrip("=")
    except ValueError:
        again = None
    refuse(again != part, reason)
    return data


def members(part, twice):
    """Returns the members of a JSON object. Refuses a token that names one twice."""

    def unique(pairs):
        refuse(len({name for name, _ in pairs}) != len(pairs), twice)
        return dict(pairs)

    def number(text):
        return complex(0) if text[0] == "-" else int(text)

    try:
        text = decode(part, "malformed").decode()
        found = json.loads(text, object_pairs_hook=unique, parse_int=number, parse_float=lambda _: complex(0), parse_constant=float)
    except (ValueError, RecursionError):
        found = None
    # A number that no claim of the gateway can be has become complex, and NaN or Infinity, which are not JSON, a float.
    refuse(not isinstance(found, dict) or any(isinstance(value, float) for value in found.values()), "malformed")
    return found


def has_type(name, value):
    """Reports whether a known claim has its type, or an unknown one can be a claim of a newer gateway."""
    newer = re.fullmatch("[a-z0-9_]{1,32}", name) and not isinstance(value, (dict, list))
    return type(value) is TYPES[name] and (type(value) is not int or value < 2**53) if name in TYPES else newer


def hs256(secret):
    return lambda text, signature: hmac.compare_digest(hmac.new(secret, text, hashlib.sha256).digest(), signature)


def public(verify, *options):
    """Returns a function that reports whether a signature is that of a text. verify raises InvalidSignature if it is not."""

    def check(text, signature):
        if options:
            signature = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
        try:
            return verify(signature, text, *options) is None
        except InvalidSignature:
            return False

    return lambda text, signature: len(signature) == 64 and check(text, signature)


def parse_keys(text):
    """Returns the keys for ES256 and EdDSA of a key set (RFC 7517), by kid: algorithm and function."""
    keys = {}
    for k in json.loads(text)["keys"]:
        try:
            kid, kind, x = k["kid"], (k["kty"], k["crv"]), decode(k["x"], "keys")
            usable = isinstance(kid, str) and kid and k.get("use", "sig") == "sig"
            if usable and kind == ("EC", "P-256") and k.get("alg", "ES256") == "ES256" and len(x) == 32:
                key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + x + decode(k["y"], "keys"))
                keys[kid] = ("ES256", public(key.verify, ec.ECDSA(SHA256())))
            elif usable and kind == ("OKP", "Ed25519") and k.get("alg", "EdDSA") == "EdDSA":
                keys[kid] = ("EdDSA", public(ed25519.Ed25519PublicKey.from_public_bytes(x).verify))
        except (KeyError, TypeError, ValueError, Refusal):
            continue  # a broken key does not affect the others
    return keys


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def revocations(text):
    """Returns the revoked sessions of a list, and its last evacuation or None."""
    listed = json.loads(text)
    return {entry["sid"] for entry in listed["revoked"]}, listed.get("evacuated")


class Document:
    """A key set or a list of revoked sessions. The value is None until a fetch succeeds."""

    def __init__(self, url, parse, now, value=None):
        self.url, self.parse, self.now, self.value = url, parse, now, value
        self.etag, self.running, self.lock = None, None, threading.Lock()
        self.tried = self.done = float("-inf")

    def load(self, every, wait=False):
        # Returns the value. Fetches it if the last fetch began at least `every` seconds ago; concurrent calls share the fetch. Waits for it, 2 s
        # at most, if `wait` is set, if the last one ended long ago, or if there is no value.
        with self.lock:
            now = self.now()
            wait = wait or self.value is None or abs(now - self.done) >= every * 1.5
            busy = self.running and abs(now - self.tried) < 10  # a process that forked has lost the thread
            if self.url and not busy and abs(now - self.tried) >= (3 if self.value is None else every):
                self.tried, self.running = now, threading.Event()
                threading.Thread(target=self.fetch, args=(self.running,), daemon=True).start()
            running = self.running
        if running and wait:
            running.wait(2)
        return self.value

    def fetch(self, running):
        try:
            request = urllib.request.Request(self.url, headers={"If-None-Match": self.etag} if self.etag else {})
            with urllib.request.build_opener(NoRedirect).open(request, timeout=2) as response:
                self.value, self.etag = self.parse(response.read(2**24)), response.headers.get("ETag")
        except Exception as error:  # whatever it is, the value of the last successful fetch stays in use
            if getattr(error, "code", None) != 304:
                log.warning("cannot fetch %s; using the last value: %r", self.url, error)
        with self.lock:
            self.done, self.running = self.now(), None
        running.set()


class Verifier:
    """Verifies passes. Safe for concurrent use by threads.

    issuer: the gateway's tokens.issuer. algorithms: those allowed of ES256, EdDSA and HS256; all by default.
    jwks_url: the gateway's https://HOST/.waiting-room/jwks.json. jwks: instead of it, the text of a key set. secrets: of HS256, by
    kid, at least 32 bytes each. now: returns the time in Unix seconds.
    revoked_url: the gateway's https://HOST/.waiting-room/{room}/revoked with the text {room}.
    plain_http: the site has no TLS, so the cookie's name has no prefix __Host-.
    accept_bound: accept passes that are bound to a network or browser, without checking the binding.
    """

    def __init__(self, issuer, *, algorithms=None, jwks_url=None, jwks=None, secrets=None, revoked_url=None, plain_http=False, accept_bound=False, now=time.time):
        if not issuer or not (jwks_url or jwks or secrets) or revoked_url and "{room}" not in revoked_url:
            raise ValueError("anteroom: set issuer; jwks_url, jwks or secrets; and in revoked_url the text {room}")
        if any(len(secret.encode()) < 32 for secret in (secrets or {}).values()):
            raise ValueError("anteroom: secrets: use at least 32 bytes for each")
        if ec is None and (jwks_url or jwks):
            raise ImportError("anteroom: jwks_url and jwks need the package cryptography: pip install cryptography, or use secrets of HS256")
        self.issuer, self.algorithms, self.now = issuer, algorithms or ["ES256", "EdDSA", "HS256"], now
        self.plain_http, self.accept_bound, self.revoked_url = plain_http, accept_bound, revoked_url
        self.secrets = {kid: ("HS256", hs256(secret.encode())) for kid, secret in (secrets or {}).items()}
        self.keys = Document(jwks_url, parse_keys, now, None if jwks_url else parse_keys(jwks or '{"keys":[]}'))
        self.revoked, self.lock = {}, threading.Lock()

    def verify(self, request, room):
        """Returns the state of a request's visitor in a room. Tries the header field X-Waiting-Room-Pass, then at most four cookies, until a
        pass is valid. If none is, the result is that of a revoked pass, else of an expired one, else of the first one.

        request is a WSGI environ, an object with headers (Django, Flask, Starlette), or pairs of names and values."""
        headers = getattr(request, "headers", request)
        if isinstance(headers, dict) and "wsgi.version" in headers:
            headers = [("cookie", headers.get("HTTP_COOKIE", "")), ("x-waiting-room-pass", headers.get("HTTP_X_WAITING_ROOM_PASS", ""))]
        cookie, cookies, fields = f"{'' if self.plain_http else '__Host-'}wr_{room}_pass", [], []
        for name, value in headers.items() if hasattr(headers, "items") else headers:
            name, value = (part.decode("latin-1") if isinstance(part, bytes) else part for part in (name, value))
            if name.lower() == "x-waiting-room-pass" and value:
                fields.append(value)
            for pair in value.split(";") if name.lower() == "cookie" else []:
                found = COOKIE.fullmatch(pair)
                if found and found[1] == cookie and (found[2] or found[3]):
                    cookies.append(found[2] or found[3])
        result = Result("none")
        for raw in fields[:1] + cookies[:4]:
            try:
                one = self._token(raw, room)
            except Refusal as refusal:
                one = refusal.args[0]
            if RANK.index(one.state) > RANK.index(result.state):
                result = one
            if result.state == "pass":
                break
        return result

    def _token(self, raw, room):
        parts = raw.split(".")
        refuse(len(raw.encode("utf-8", "replace")) > 4096, "too_long")
        refuse(len(parts) != 3, "malformed")
        header = members(parts[0], "header")
        alg, kid, typ = header.get("alg"), header.get("kid"), header.get("typ")
        refuse("crit" in header, "crit")
        refuse(header.keys() - {"alg", "kid", "typ"}, "header")
        refuse(alg not in self.algorithms, "alg")
        refuse(not isinstance(kid, str), "kid")
        key = self.secrets.get(kid)
        if not key:
            key = (self.keys.load(300) or {}).get(kid)
            if not key and alg != "HS256":
                key = (self.keys.load(30, wait=True) or {}).get(kid)
            refuse(self.keys.value is None, "keys")
        refuse(not key, "kid")
        refuse(key[0] != alg, "alg")
        refuse(typ != "pass+jwt", "type")
        refuse(not key[1](f"{parts[0]}.{parts[1]}".encode("utf-8", "replace"), decode(parts[2], "signature")), "signature")
        claims = members(parts[1], "claims")
        refuse(claims.get("iss") != self.issuer, "issuer")
        refuse(not room or claims.get("aud") != room, "audience")
        refuse(not all(has_type(name, value) for name, value in claims.items()), "claims")
        iat, exp, session, now = claims.get("iat"), claims.get("exp", 0), claims.get("sid", ""), int(self.now())
        refuse(iat is None or exp < 1 or exp - now > 366 * 24 * 3600, "claims")
        refuse(not ID.fullmatch(claims.get("jti", "")) or not ID.fullmatch(session), "claims")
        refuse(iat > now + 5, "future")
        refuse(now >= exp + 5, "expired", session, exp)
        refuse(claims.get("bnd") and not self.accept_bound, "bound")
        if self.revoked_url:
            with self.lock:
                if room not in self.revoked:
                    self.revoked[room] = Document(self.revoked_url.replace("{room}", room), revocations, self.now)
            loaded = self.revoked[room].load(2)
            refuse(loaded is None, "revocations")
            sessions, out = loaded
            # Sessions that were claimed by the last evacuation have ended.
            ended = out and (claims["ct"] <= out["ct"] if "ct" in claims else iat <= out["iat"])
            refuse(ended or session in sessions, "revoked", session, exp)
        return Result("pass", "", session, exp)
