import java.math.BigInteger;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.*;
import java.security.interfaces.ECPublicKey;
import java.security.spec.ECFieldFp;
import java.security.spec.X509EncodedKeySpec;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.regex.*;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Verifies the passes of an Anteroom gateway in a backend, without a request to the gateway for each pass. Safe for concurrent use.
 *
 * <p>Send a visitor without a pass to /.waiting-room/{room}/: redirect a navigation, and return 401 with application/problem+json
 * from an API. Treat every state but "pass" in this way: a backend that serves such visitors has no waiting room.
 */
public final class Anteroom {
    /** The result of verify. The state is pass, none, invalid, expired or revoked; session and expires (Unix seconds) are set in pass, expired and revoked. */
    public record Result(String state, String reason, String session, long expires) {}

    /** The issuer, and one of jwksUrl, jwks and secrets, are required. */
    public static final class Config {
        public String issuer; // the gateway's tokens.issuer
        public List<String> algorithms = List.of("ES256", "EdDSA", "HS256"); // those allowed
        public String jwksUrl; // the gateway's https://HOST/.waiting-room/jwks.json
        public String jwks; // instead of jwksUrl: a key set
        public Map<String, String> secrets = Map.of(); // secrets of HS256 by kid, at least 32 bytes each
        public String revokedUrl; // the gateway's https://HOST/.waiting-room/{room}/revoked with the text {room}
        public boolean plainHttp; // the site has no TLS: the cookie's name has no prefix __Host-
        public boolean acceptBound; // accept passes that are bound to a network or browser, without checking the binding
        public LongSupplier millis = System::currentTimeMillis; // the time in Unix milliseconds
    }

    private record Key(String alg, java.security.Key material) {}

    private static final class Refusal extends RuntimeException {
        private static final long serialVersionUID = 1;
        final Result result;

        Refusal(String reason, String session, long expires) {
            super(reason, null, false, false);
            result = new Result(RANK.contains(reason) ? reason : "invalid", reason, session, expires);
        }
    }

    private static final List<String> RANK = List.of("none", "invalid", "expired", "revoked", "pass");
    private static final String TEXT = "\"(?:[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|u[0-9A-Fa-f]{4}))*+\"", BLANK = "[ \\t\\r\\n]*+";
    private static final Pattern MEMBER = Pattern.compile(BLANK + "(" + TEXT + ")" + BLANK + ":" + BLANK + "(" + TEXT + "|-?(?:0|[1-9]\\d*+)(?:\\.\\d++)?(?:[eE][-+]?\\d++)?|true|false|null|[\\[{])" + BLANK);
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(.{4})|(.))"), OBJECT = Pattern.compile("\\{[^{}]*+}"), EMPTY = Pattern.compile(BLANK + "\\{" + BLANK + "}" + BLANK);
    private static final Pattern COOKIE = Pattern.compile("[ \t]*([^=]*?)[ \t]*=[ \t]*(?:\"(.*)\"|(.*?))[ \t]*", Pattern.DOTALL);
    private static final Pattern KNOWN = Pattern.compile("(iss|aud|jti|sid|ep|ah|bnd|iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi|off|acc|nbf)=.*", Pattern.DOTALL);
    private static final Pattern EVACUATED = Pattern.compile("\"evacuated\"\\s*:\\s*(\\{[^{}]*\\})");
    private static final Pattern TYPED = Pattern.compile("(iss|aud|jti|sid|ep|ah|bnd)=\".*|(off|acc)=(true|false)|(iat|exp|ord|seen|hold|hd|fn|ct|used|eta|elo|ehi)=(0|[1-9]\\d{0,14}|[1-8]\\d{15})", Pattern.DOTALL);
    private static final Pattern OTHER = Pattern.compile("[a-z0-9_]{1,32}=[^\\[{].*", Pattern.DOTALL), ID = Pattern.compile("[A-Za-z0-9_-]{21}[AQgw]");
    private static final Base64.Encoder BASE64 = Base64.getUrlEncoder().withoutPadding();

    private final Config config;
    private final Map<String, Key> secrets = new HashMap<>();
    private final Document keys;
    private final Map<String, Document> revoked = new ConcurrentHashMap<>();
    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    public Anteroom(Config config) {
        if (config.issuer == null || config.jwksUrl == null && config.jwks == null && config.secrets.isEmpty() || config.revokedUrl != null && !config.revokedUrl.contains("{room}"))
            throw new IllegalArgumentException("anteroom: set issuer; jwksUrl, jwks or secrets; and in revokedUrl the text {room}");
        this.config = config;
        config.secrets.forEach((kid, secret) -> {
            byte[] bytes = secret.getBytes(StandardCharsets.UTF_8);
            if (bytes.length < 32) throw new IllegalArgumentException("anteroom: secrets: \"" + kid + "\" is shorter than 32 bytes");
            secrets.put(kid, new Key("HS256", new SecretKeySpec(bytes, "HmacSHA256")));
        });
        keys = new Document(config.jwksUrl, "keys");
        if (config.jwksUrl == null) keys.entries = parse(config.jwks == null ? "{\"keys\":[]}" : config.jwks, "keys");
    }

    /**
     * Returns the state of a request's visitor in a room. Tries the header field X-Waiting-Room-Pass, then at most four cookies, until a
     * pass is valid. If none is, the result is that of a revoked pass, else of an expired one, else of the first one.
     *
     * @param headers returns the lines of a header field; of a servlet: {@code name -> Collections.list(request.getHeaders(name))}
     */
    public Result verify(Function<String, List<String>> headers, String room) {
        String cookie = (config.plainHttp ? "" : "__Host-") + "wr_" + room + "_pass";
        List<String> tokens = new ArrayList<>();
        headers.apply("X-Waiting-Room-Pass").stream().limit(1).filter(raw -> !raw.isEmpty()).forEach(tokens::add);
        Arrays.stream(String.join(";", headers.apply("Cookie")).split(";")).map(COOKIE::matcher).filter(m -> m.matches() && m.group(1).equals(cookie))
            .map(m -> m.group(2) != null ? m.group(2) : m.group(3)).filter(raw -> !raw.isEmpty()).limit(4).forEach(tokens::add);
        Result result = new Result("none", "", "", 0);
        for (String raw : tokens) {
            Result one;
            try {
                one = token(raw, room);
            } catch (Refusal refusal) {
                one = refusal.result;
            }
            if (RANK.indexOf(one.state) > RANK.indexOf(result.state)) result = one;
            if (result.state.equals("pass")) break;
        }
        return result;
    }

    private Result token(String raw, String room) {
        String[] parts = raw.split("\\.", -1);
        refuse(raw.getBytes(StandardCharsets.UTF_8).length > 4096, "too_long");
        refuse(parts.length != 3, "malformed");
        Map<String, String> header = object(decode(parts[0], "malformed"), "header");
        String alg = text(header.get("alg")), kid = text(header.get("kid"));
        refuse(header.containsKey("crit"), "crit");
        refuse(!Set.of("alg", "kid", "typ").containsAll(header.keySet()), "header");
        refuse(!config.algorithms.contains(alg), "alg");
        Key key = secrets.get(kid);
        if (key == null) {
            key = keys.load(300, false).get(kid);
            if (key == null && !alg.equals("HS256")) key = keys.load(30, true).get(kid);
            refuse(keys.entries == null, "keys");
        }
        refuse(key == null, "kid");
        refuse(!key.alg.equals(alg), "alg");
        refuse(!text(header.get("typ")).equals("pass+jwt"), "type");
        refuse(!signed(key, (parts[0] + "." + parts[1]).getBytes(StandardCharsets.UTF_8), decode(parts[2], "signature")), "signature");
        Map<String, String> claims = object(decode(parts[1], "malformed"), "claims");
        claims.forEach((name, value) -> {
            String claim = name + "=" + value;
            boolean typed = TYPED.matcher(claim).matches() || !KNOWN.matcher(claim).matches() && OTHER.matcher(claim).matches();
            refuse(!typed, name.equals("iss") ? "issuer" : name.equals("aud") ? "audience" : "claims");
        });
        refuse(!text(claims.get("iss")).equals(config.issuer), "issuer");
        refuse(room.isEmpty() || !text(claims.get("aud")).equals(room), "audience");
        long now = Math.floorDiv(config.millis.getAsLong(), 1000), exp = Long.parseLong(claims.getOrDefault("exp", "0"));
        String session = text(claims.get("sid"));
        refuse(exp < 1 || exp - now > 366 * 24 * 3600 || !claims.containsKey("iat"), "claims");
        refuse(!ID.matcher(text(claims.get("jti"))).matches() || !ID.matcher(session).matches(), "claims");
        refuse(Long.parseLong(claims.get("iat")) > now + 5, "future");
        if (now >= exp + 5) throw new Refusal("expired", session, exp);
        refuse(!text(claims.get("bnd")).isEmpty() && !config.acceptBound, "bound");
        if (config.revokedUrl != null) {
            Document list = revoked.computeIfAbsent(room, name -> new Document(config.revokedUrl.replace("{room}", name), "revoked"));
            boolean found = list.load(2, false).containsKey(session);
            refuse(list.entries == null, "revocations");
            Map<String, String> out = list.evacuated; // sessions that were claimed by then have ended
            if (out != null) found |= Long.parseLong(claims.getOrDefault("ct", claims.get("iat"))) <= Long.parseLong(out.get(claims.containsKey("ct") ? "ct" : "iat"));
            if (found) throw new Refusal("revoked", session, exp);
        }
        return new Result("pass", "", session, exp);
    }

    private static void refuse(boolean when, String reason) {
        if (when) throw new Refusal(reason, "", 0);
    }

    private static boolean signed(Key key, byte[] text, byte[] signature) {
        try {
            if (key.alg.equals("HS256")) {
                Mac mac = Mac.getInstance("HmacSHA256");
                mac.init(key.material);
                return MessageDigest.isEqual(mac.doFinal(text), signature);
            }
            Signature verifier = Signature.getInstance(key.alg.equals("ES256") ? "SHA256withECDSAinP1363Format" : "Ed25519");
            verifier.initVerify((PublicKey) key.material);
            verifier.update(text);
            return signature.length == 64 && verifier.verify(signature);
        } catch (GeneralSecurityException e) {
            return false; // r, s or a point is out of range
        }
    }

    /** Decodes base64url in its only spelling (RFC 4648 §3.5). */
    private static byte[] decode(String part, String reason) {
        try {
            byte[] bytes = Base64.getUrlDecoder().decode(part);
            if (BASE64.encodeToString(bytes).equals(part)) return bytes;
        } catch (IllegalArgumentException e) {
            refuse(true, reason);
        }
        throw new Refusal(reason, "", 0);
    }

    /** Returns the members of a flat JSON object with their values as written. Refuses a token that names one twice. */
    private static Map<String, String> object(byte[] bytes, String twice) {
        Map<String, String> members = new LinkedHashMap<>();
        String json;
        try {
            json = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new Refusal("malformed", "", 0);
        }
        if (EMPTY.matcher(json).matches()) return members;
        Matcher member = MEMBER.matcher(json);
        int at = json.indexOf('{') + 1;
        refuse(at == 0 || !json.substring(0, at - 1).matches(BLANK), "malformed");
        for (char next = ','; next != '}'; at = member.end() + 1) {
            refuse(next != ',' || !member.region(at, json.length()).lookingAt(), "malformed");
            refuse(members.put(text(member.group(1)), member.group(2)) != null, twice);
            if ("[{".contains(member.group(2))) return members; // refused in any case
            next = member.end() < json.length() ? json.charAt(member.end()) : ' ';
        }
        refuse(!json.substring(at).matches(BLANK), "malformed");
        return members;
    }

    /** Returns a JSON string, and "" for another value. */
    private static String text(String value) {
        if (value == null || !value.startsWith("\"")) return "";
        return ESCAPE.matcher(value.substring(1, value.length() - 1)).replaceAll(m -> Matcher.quoteReplacement(String.valueOf(
            m.group(1) != null ? (char) Integer.parseInt(m.group(1), 16) : "\b\f\n\r\t\"\\/".charAt("bfnrt\"\\/".indexOf(m.group(2))))));
    }

    /** Returns the keys for ES256 and EdDSA of a key set (RFC 7517) by kid, or the revoked sessions of a list. */
    private static Map<String, Key> parse(String json, String list) {
        Matcher start = Pattern.compile("\"" + list + "\"" + BLANK + ":" + BLANK + "\\[").matcher(json), object = OBJECT.matcher(json);
        if (!start.find()) throw new IllegalArgumentException("anteroom: the JSON has no list " + list);
        Map<String, Key> entries = new HashMap<>();
        for (boolean found = object.find(start.end()); found; found = object.find()) {
            try {
                Map<String, String> k = object(object.group().getBytes(StandardCharsets.UTF_8), "twice");
                String kind = text(k.get("kty")) + text(k.get("crv")), alg = kind.equals("ECP-256") ? "ES256" : kind.equals("OKPEd25519") ? "EdDSA" : "";
                boolean usable = !text(k.get("kid")).isEmpty() && text(k.getOrDefault("use", "\"sig\"")).equals("sig") && text(k.getOrDefault("alg", '"' + alg + '"')).equals(alg);
                if (list.equals("revoked")) entries.put(text(k.get("sid")), null);
                else if (usable && !alg.isEmpty()) entries.put(text(k.get("kid")), new Key(alg, publicKey(alg, decode(text(k.get("x")), "x"), decode(text(k.get("y")), "y"))));
            } catch (GeneralSecurityException | Refusal e) {
                continue; // a broken key does not affect the others
            }
        }
        return entries;
    }

    private static PublicKey publicKey(String alg, byte[] x, byte[] y) throws GeneralSecurityException {
        String head = alg.equals("ES256") ? "3059301306072a8648ce3d020106082a8648ce3d03010703420004" : "302a300506032b6570032100"; // of a public key in DER
        byte[] der = ByteBuffer.allocate(head.length() / 2 + x.length + y.length).put(HexFormat.of().parseHex(head)).put(x).put(y).array();
        PublicKey key = KeyFactory.getInstance(alg.equals("ES256") ? "EC" : "Ed25519").generatePublic(new X509EncodedKeySpec(der));
        if (key instanceof ECPublicKey ec) { // Java does not check that the point is on the curve
            BigInteger p = ((ECFieldFp) ec.getParams().getCurve().getField()).getP(), u = ec.getW().getAffineX(), v = ec.getW().getAffineY();
            BigInteger right = u.pow(3).add(ec.getParams().getCurve().getA().multiply(u)).add(ec.getParams().getCurve().getB());
            if (!v.pow(2).subtract(right).mod(p).equals(BigInteger.ZERO)) throw new InvalidKeyException("the point is not on the curve");
        }
        return key;
    }

    /** A key set or a list of revoked sessions. The entries are null until a fetch succeeds. */
    private final class Document {
        final String url, list;
        volatile Map<String, Key> entries;
        volatile Map<String, String> evacuated; // ct and iat of the last evacuation in a list of revoked sessions; null: none
        volatile String etag = "";
        long tried, done;
        CompletableFuture<Void> running;

        Document(String url, String list) {
            this.url = url;
            this.list = list;
        }

        /**
         * Returns the entries. Fetches them if the last fetch began at least a number of seconds ago; concurrent calls share the fetch. Waits
         * for the fetch if wait is set, if the last one ended long ago, or if there are no entries.
         */
        Map<String, Key> load(long seconds, boolean wait) {
            CompletableFuture<Void> fetch;
            synchronized (this) {
                long now = config.millis.getAsLong();
                wait |= entries == null || Math.abs(now - done) >= seconds * 1500;
                if (url != null && running == null && Math.abs(now - tried) >= (entries == null ? 3000 : seconds * 1000)) {
                    tried = now;
                    running = fetch();
                    if (running.isDone()) running = null;
                }
                fetch = running;
            }
            if (fetch != null && wait) fetch.join();
            return entries == null ? Map.of() : entries;
        }

        CompletableFuture<Void> fetch() {
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url));
            if (!etag.isEmpty()) request.header("If-None-Match", etag);
            return http.sendAsync(request.build(), BodyHandlers.ofString()).orTimeout(2, TimeUnit.SECONDS).thenAccept(response -> {
                if (response.statusCode() != 200 && response.statusCode() != 304) throw new IllegalStateException("status " + response.statusCode());
                if (response.statusCode() == 200) {
                    Matcher out = EVACUATED.matcher(response.body());
                    evacuated = out.find() ? object(out.group(1).getBytes(StandardCharsets.UTF_8), "twice") : null;
                    entries = parse(response.body(), list);
                }
                if (response.statusCode() == 200) etag = response.headers().firstValue("etag").orElse("");
            }).handle((nothing, error) -> {
                if (error != null) System.getLogger("anteroom").log(System.Logger.Level.WARNING, "cannot fetch " + url + "; using the last value: " + error);
                synchronized (this) {
                    done = config.millis.getAsLong();
                    running = null;
                }
                return null;
            });
        }
    }
}
