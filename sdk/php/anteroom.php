<?php

/**
 * Verifies the passes of an Anteroom gateway in a backend, without a request to the gateway for each pass.
 *
 * Send a visitor without a pass to /.waiting-room/{room}/: redirect a navigation, and return 401 with application/problem+json
 * from an API. Treat every state but "pass" in this way: a backend that serves such visitors has no waiting room.
 */

declare(strict_types=1);

namespace Anteroom;

final class Refusal extends \Exception
{
    public function __construct(public readonly string $reason, public readonly string $session = '', public readonly int $expires = 0) {}
}

/** Verifier verifies passes. Processes share what they fetched through files in cache_dir. */
final class Verifier
{
    private const RANK = ['none', 'invalid', 'expired', 'revoked', 'pass'];
    private const COOKIE = '/^[ \t]*([^=]*?)[ \t]*=[ \t]*(?:"(.*)"|(.*?))[ \t]*$/sD';
    private const MEMBER = '/("(?:[^"\\\\]|\\\\.)*+")[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\\\]|\\\\.)*+"|[^ \t\r\n,}[{"]+|[[{])/';
    private const KNOWN = '/^(iss|aud|jti|sid|ep|ah|bnd|iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi|off|acc|nbf)=/';
    private const TYPED = '/^((iss|aud|jti|sid|ep|ah|bnd)="|(off|acc)=(true|false)$|(iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi)=(0|[1-9]\d{0,14}|[1-8]\d{15})$)/D';
    private const OTHER = '/^[a-z0-9_]{1,32}=[^[{]/'; // a claim of a newer gateway
    private const ID = '/^[A-Za-z0-9_-]{21}[AQgw]$/D';
    private const P256 = "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04"; // of a public key in DER

    private array $config;

    /**
     * issuer: the gateway's tokens.issuer. algorithms: those allowed of ES256, EdDSA and HS256; all by default. jwks_url: the
     * gateway's https://HOST/.waiting-room/jwks.json. jwks: instead of it, a decoded key set. secrets: of HS256 by kid, at least 32 bytes
     * each.
     * revoked_url: the gateway's https://HOST/.waiting-room/{room}/revoked with the text {room}.
     * cache_dir: a directory that only this application may write. jwks_url and revoked_url need it.
     * plain_http: the site has no TLS, so the cookie's name has no prefix __Host-. accept_bound: accept passes that are bound to a
     * network or browser, without checking the binding. now: function returning the time in Unix seconds.
     * fetch: function (string $url, string $etag): [int $status, string $etag, string $body], instead of PHP's streams.
     */
    public function __construct(array $config)
    {
        $this->config = $c = $config + ['issuer' => '', 'algorithms' => ['ES256', 'EdDSA', 'HS256'], 'jwks_url' => '', 'jwks' => null, 'secrets' => [], 'revoked_url' => '',
            'cache_dir' => '', 'plain_http' => false, 'accept_bound' => false, 'fetch' => self::fetch(...), 'now' => fn (): float => microtime(true)];
        if ($c['issuer'] === '' || !$c['jwks_url'] && !$c['jwks'] && !$c['secrets'] || $c['revoked_url'] && !str_contains($c['revoked_url'], '{room}')) {
            throw new \InvalidArgumentException('anteroom: set issuer; jwks_url, jwks or secrets; and in revoked_url the text {room}');
        }
        if (($c['jwks_url'] || $c['revoked_url']) && (!is_dir($c['cache_dir']) || !is_writable($c['cache_dir']) || (fileperms($c['cache_dir']) & 0022))) {
            throw new \InvalidArgumentException('anteroom: cache_dir is not a directory that this user alone may write; create one with mode 0700');
        }
        if (array_filter($c['secrets'], fn (string $secret): bool => strlen($secret) < 32)) {
            throw new \InvalidArgumentException('anteroom: secrets: one is shorter than 32 bytes');
        }
    }

    /**
     * Returns the state, reason, session and expires of a request's visitor in a room. $server is $_SERVER. Tries the header field
     * X-Waiting-Room-Pass, then at most four cookies, until a pass is valid. If none is, the result is that of a revoked pass, else of an
     * expired one, else of the first one.
     */
    public function verify(array $server, string $room): array
    {
        $cookie = ($this->config['plain_http'] ? '' : '__Host-') . "wr_{$room}_pass";
        $tokens = [$server['HTTP_X_WAITING_ROOM_PASS'] ?? ''];
        foreach (explode(';', $server['HTTP_COOKIE'] ?? '') as $pair) {
            if (preg_match(self::COOKIE, $pair, $m) && $m[1] === $cookie && $m[2] . ($m[3] ?? '') !== '' && count($tokens) < 5) {
                $tokens[] = $m[2] . ($m[3] ?? '');
            }
        }
        $result = ['state' => 'none', 'reason' => '', 'session' => '', 'expires' => 0];
        foreach ($tokens as $raw) {
            try {
                $one = $raw === '' || $result['state'] === 'pass' ? $result : $this->token($raw, $room);
            } catch (Refusal $r) {
                $one = ['state' => in_array($r->reason, self::RANK, true) ? $r->reason : 'invalid', 'reason' => $r->reason, 'session' => $r->session, 'expires' => $r->expires];
            }
            $result = array_search($one['state'], self::RANK, true) > array_search($result['state'], self::RANK, true) ? $one : $result;
        }
        return $result;
    }

    private function token(string $raw, string $room): array
    {
        $parts = explode('.', $raw);
        self::refuse(strlen($raw) > 4096, 'too_long');
        self::refuse(count($parts) !== 3, 'malformed');
        $header = self::members($parts[0], 'header');
        [$alg, $kid, $typ] = array_map(fn ($name) => self::text($header[$name] ?? ''), ['alg', 'kid', 'typ']);
        self::refuse(isset($header['crit']), 'crit');
        self::refuse(array_diff_key($header, ['alg' => 1, 'kid' => 1, 'typ' => 1]) !== [], 'header');
        self::refuse(!in_array($alg, $this->config['algorithms'], true), 'alg');
        [$kind, $key] = $this->key($alg, $kid);
        self::refuse($kind !== $alg, 'alg');
        self::refuse($typ !== 'pass+jwt', 'type');
        self::refuse(!self::signed($kind, $key, "$parts[0].$parts[1]", self::decode($parts[2], 'signature')), 'signature');
        $claims = self::members($parts[1], 'claims');
        foreach ($claims as $name => $value) {
            $typed = preg_match(self::TYPED, "$name=$value") || !preg_match(self::KNOWN, "$name=$value") && preg_match(self::OTHER, "$name=$value");
            self::refuse(!$typed, $name === 'iss' ? 'issuer' : ($name === 'aud' ? 'audience' : 'claims'));
        }
        self::refuse(self::text($claims['iss'] ?? '') !== $this->config['issuer'], 'issuer');
        self::refuse($room === '' || self::text($claims['aud'] ?? '') !== $room, 'audience');
        [$exp, $now, $session] = [(int) ($claims['exp'] ?? 0), (int) ($this->config['now'])(), self::text($claims['sid'] ?? '')];
        self::refuse(!isset($claims['iat']) || $exp < 1 || $exp - $now > 366 * 24 * 3600, 'claims');
        self::refuse(!preg_match(self::ID, self::text($claims['jti'] ?? '')) || !preg_match(self::ID, $session), 'claims');
        self::refuse((int) $claims['iat'] > $now + 5, 'future');
        self::refuse($now >= $exp + 5, 'expired', $session, $exp);
        self::refuse(self::text($claims['bnd'] ?? '') !== '' && !$this->config['accept_bound'], 'bound');
        if ($this->config['revoked_url']) {
            $list = $this->load(str_replace('{room}', $room, $this->config['revoked_url']), 'revoked', 2);
            self::refuse($list === null, 'revocations');
            $out = array_column($list, 'evacuated')[0] ?? null; // sessions that were claimed by then have ended
            $ended = $out !== null && (isset($claims['ct']) ? (int) $claims['ct'] <= $out['ct'] : (int) $claims['iat'] <= $out['iat']);
            self::refuse($ended || in_array($session, array_column($list, 'sid'), true), 'revoked', $session, $exp);
        }
        return ['state' => 'pass', 'reason' => '', 'session' => $session, 'expires' => $exp];
    }

    /** Returns the algorithm and the key of a kid: the secret of HS256, the point of ES256, or the bytes of EdDSA. */
    private function key(string $alg, string $kid): array
    {
        if (isset($this->config['secrets'][$kid])) {
            return ['HS256', $this->config['secrets'][$kid]];
        }
        $fetched = (bool) $this->config['jwks_url'];
        $keys = $fetched ? $this->load($this->config['jwks_url'], 'keys', 300) : $this->config['jwks']['keys'] ?? [];
        $found = self::find($keys ?? [], $kid);
        if (!$found && $fetched && $alg !== 'HS256') {
            $keys = $this->load($this->config['jwks_url'], 'keys', 30, true);
            $found = self::find($keys ?? [], $kid);
        }
        self::refuse($keys === null, 'keys');
        self::refuse(!$found, 'kid');
        return $found;
    }

    private static function find(array $keys, string $kid): ?array
    {
        foreach ($keys as $k) {
            $x = is_array($k) && is_string($k['x'] ?? null) ? (string) base64_decode(strtr($k['x'], '-_', '+/'), true) : '';
            if (strlen($x) !== 32 || $kid === '' || ($k['kid'] ?? null) !== $kid || ($k['use'] ?? 'sig') !== 'sig') {
                continue;
            }
            if ([$k['kty'] ?? '', $k['crv'] ?? '', $k['alg'] ?? 'EdDSA'] === ['OKP', 'Ed25519', 'EdDSA']) {
                return ['EdDSA', $x];
            }
            $pem = "-----BEGIN PUBLIC KEY-----\n" . base64_encode(self::P256 . $x . base64_decode(strtr((string) ($k['y'] ?? ''), '-_', '+/'))) . "\n-----END PUBLIC KEY-----\n";
            if ([$k['kty'] ?? '', $k['crv'] ?? '', $k['alg'] ?? 'ES256'] === ['EC', 'P-256', 'ES256'] && openssl_pkey_get_public($pem)) {
                return ['ES256', $pem];
            }
        }
        return null;
    }

    private static function signed(string $alg, string $key, string $text, string $signature): bool
    {
        if ($alg === 'HS256') {
            return hash_equals(hash_hmac('sha256', $text, $key, true), $signature);
        } elseif ($alg === 'EdDSA' || strlen($signature) !== 64) {
            return strlen($signature) === 64 && sodium_crypto_sign_verify_detached($signature, $text, $key);
        }
        $der = '';
        foreach (str_split($signature, 32) as $number) {
            $number = "\0" . ltrim($number, "\0");
            $number = strlen($number) > 1 && ord($number[1]) < 128 ? substr($number, 1) : $number;
            $der .= "\x02" . chr(strlen($number)) . $number;
        }
        return openssl_verify($text, "\x30" . chr(strlen($der)) . $der, $key, OPENSSL_ALGO_SHA256) === 1;
    }

    /** Returns the members of a JSON object with their values as written. Refuses a token that names one twice. */
    private static function members(string $part, string $twice): array
    {
        $text = self::decode($part, 'malformed');
        self::refuse(!is_array(json_decode($text, true)) || !str_starts_with(ltrim($text), '{'), 'malformed');
        preg_match_all(self::MEMBER, $text, $found, PREG_SET_ORDER);
        $members = [];
        foreach ($found as [, $name, $value]) {
            self::refuse(isset($members[self::text($name)]), $twice);
            $members[self::text($name)] = $value;
        }
        return $members;
    }

    /** Returns a JSON string, and '' for another value. */
    private static function text(string $value): string
    {
        return str_starts_with($value, '"') ? json_decode($value) : '';
    }

    /** Decodes base64url in its only spelling (RFC 4648 §3.5). */
    private static function decode(string $part, string $reason): string
    {
        $bytes = (string) base64_decode(strtr($part, '-_', '+/'), true);
        self::refuse(rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=') !== $part, $reason);
        return $bytes;
    }

    private static function refuse(bool $when, string $reason, string $session = '', int $expires = 0): void
    {
        if ($when) {
            throw new Refusal($reason, $session, $expires);
        }
    }

    /**
     * Returns the list $member of a JSON document, null if no fetch ever succeeded. Fetches it if the last fetch began at least
     * $every seconds ago; concurrent processes share the fetch. Waits for the fetch of another process if $wait is set, if the
     * last one ended long ago, or if there is no list.
     */
    private function load(string $url, string $member, float $every, bool $wait = false): ?array
    {
        $path = $this->config['cache_dir'] . '/anteroom-' . hash('sha256', $url);
        $read = fn (): array => (json_decode(@file_get_contents("$path.json") ?: '', true) ?? []) + ['tried' => 0, 'done' => 0, 'etag' => '', 'list' => null];
        $due = fn (array $s): bool => abs(($this->config['now'])() - $s['tried']) >= ($s['list'] === null ? 3 : $every);
        if (!$due($state = $read())) {
            return $state['list'];
        }
        $lock = fopen("$path.lock", 'c');
        if (flock($lock, LOCK_EX | LOCK_NB) && $due($state = $read())) {
            $state['tried'] = ($this->config['now'])();
            [$status, $etag, $body] = ($this->config['fetch'])($url, $state['etag']);
            $document = $status === 200 ? json_decode($body, true) : null;
            $list = $document[$member] ?? null;
            if (is_array($list)) {
                if (isset($document['evacuated'])) { // of a list of revoked sessions
                    $list[] = ['evacuated' => $document['evacuated']];
                }
                $state = ['list' => $list, 'etag' => $etag] + $state;
            } elseif ($status !== 304) {
                error_log("anteroom: cannot fetch $url: status $status; using the last list");
            }
            $state['done'] = ($this->config['now'])();
            file_put_contents("$path.new", json_encode($state));
            rename("$path.new", "$path.json");
        } elseif ($wait || $state['list'] === null || abs(($this->config['now'])() - $state['done']) >= $every * 1.5) {
            flock($lock, LOCK_SH);
            $state = $read();
        }
        fclose($lock);
        return $state['list'];
    }

    private static function fetch(string $url, string $etag): array
    {
        $context = stream_context_create(['http' => ['timeout' => 2, 'follow_location' => 0, 'ignore_errors' => true, 'header' => $etag === '' ? '' : "If-None-Match: $etag"]]);
        [$stream, $end, $body] = [@fopen($url, 'r', false, $context), microtime(true) + 2, ''];
        while ($stream && !feof($stream) && microtime(true) < $end) {
            $body .= fread($stream, 65536);
        }
        $lines = $stream && feof($stream) ? stream_get_meta_data($stream)['wrapper_data'] : [''];
        $etag = preg_filter('/^etag:\s*/i', '', $lines);
        return [(int) (explode(' ', $lines[0])[1] ?? 0), (string) array_pop($etag), $body];
    }
}
