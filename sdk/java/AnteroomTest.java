import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;

/**
 * Runs the cases of vectors.json, whose path is the argument. With --lines it verifies the requests in each line of its input
 * instead, and prints the results as a line, for test/sdk.
 */
public final class AnteroomTest {
    private record Clocked(Anteroom verifier, AtomicLong millis) {}

    public static void main(String[] args) throws Exception {
        if (args[0].equals("--lines")) {
            lines();
            System.exit(0);
        }
        List<?> cases = (List<?>) new Json(Files.readString(Path.of(args[0]))).value();
        int failed = 0;
        try (Revoked revoked = new Revoked()) {
            for (Object entry : cases) {
                Map<?, ?> c = (Map<?, ?>) entry;
                Clocked made = verifier((Map<?, ?>) c.get("config"), revoked);
                made.millis.set((Long) c.get("now") * 1000);
                Map<?, ?> want = (Map<?, ?>) c.get("want");
                Anteroom.Result got = verify(made, c);
                if (got.equals(new Anteroom.Result((String) want.get("state"), (String) want.get("reason"), (String) want.get("session"), (Long) want.get("expires")))) continue;
                failed++;
                System.err.println(c.get("name") + ": " + got + ", want " + want);
            }
        }
        System.out.println("java: " + (cases.size() - failed) + " of " + cases.size() + " cases");
        System.exit(failed > 0 ? 1 : 0);
    }

    private static void lines() throws Exception {
        Map<Object, Clocked> verifiers = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            Map<?, ?> call = (Map<?, ?>) new Json(line).value();
            if (!verifiers.containsKey(call.get("id"))) verifiers.put(call.get("id"), verifier((Map<?, ?>) call.get("config"), null));
            Clocked made = verifiers.get(call.get("id"));
            made.millis.set((Long) call.get("now") * 1000);
            List<?> requests = (List<?>) call.get("requests");
            var pool = Executors.newFixedThreadPool(Boolean.TRUE.equals(call.get("concurrent")) ? requests.size() : 1);
            List<String> results = new ArrayList<>();
            for (var result : pool.invokeAll(requests.stream().map(r -> (java.util.concurrent.Callable<Anteroom.Result>) () -> verify(made, (Map<?, ?>) r)).toList())) {
                Anteroom.Result r = result.get();
                results.add("{\"state\":\"%s\",\"reason\":\"%s\",\"session\":\"%s\",\"expires\":%d}".formatted(r.state(), r.reason(), r.session(), r.expires()));
            }
            pool.shutdown();
            System.out.println("[" + String.join(",", results) + "]");
        }
    }

    private static Anteroom.Result verify(Clocked made, Map<?, ?> request) {
        List<?> headers = (List<?>) request.get("headers");
        return made.verifier.verify(name -> headers.stream().map(h -> (List<?>) h).filter(h -> name.equalsIgnoreCase((String) h.get(0))).map(h -> (String) h.get(1)).toList(), (String) request.get("room"));
    }

    @SuppressWarnings("unchecked")
    private static Clocked verifier(Map<?, ?> c, Revoked revoked) {
        Anteroom.Config config = new Anteroom.Config();
        AtomicLong millis = new AtomicLong();
        config.millis = millis::get;
        config.issuer = (String) c.get("issuer");
        if (c.containsKey("algorithms")) config.algorithms = (List<String>) c.get("algorithms");
        if (c.containsKey("secrets")) config.secrets = (Map<String, String>) c.get("secrets");
        config.jwks = c.containsKey("jwks") ? Json.text(c.get("jwks")) : null;
        config.jwksUrl = (String) c.get("jwks_url");
        config.revokedUrl = (String) c.get("revoked_url");
        if (c.containsKey("revoked")) config.revokedUrl = revoked.url((List<?>) c.get("revoked"), (Map<?, ?>) c.get("evacuated"));
        config.plainHttp = Boolean.TRUE.equals(c.get("plain_http"));
        config.acceptBound = Boolean.TRUE.equals(c.get("accept_bound"));
        return new Clocked(new Anteroom(config), millis);
    }

    /** A server for lists of revoked sessions; the path has their ids. */
    private static final class Revoked implements AutoCloseable {
        private final HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);

        Revoked() throws java.io.IOException {
            server.createContext("/", exchange -> {
                String[] path = exchange.getRequestURI().getPath().split("/"), sids = path[1].split(","), out = path[2].split(",");
                String evacuated = out.length == 2 ? "\"evacuated\":{\"ct\":%s,\"iat\":%s},".formatted(out[0], out[1]) : "";
                byte[] body = Arrays.stream(sids).map("{\"sid\":\"%s\",\"until\":1}"::formatted).collect(Collectors.joining(",", "{\"room\":\"sale\"," + evacuated + "\"revoked\":[", "]}")).getBytes(StandardCharsets.UTF_8);
                exchange.sendResponseHeaders(200, body.length);
                exchange.getResponseBody().write(body);
                exchange.close();
            });
            server.start();
        }

        String url(List<?> sids, Map<?, ?> evacuated) {
            String out = evacuated == null ? "none" : whole(evacuated.get("ct")) + "," + whole(evacuated.get("iat"));
            return "http://127.0.0.1:" + server.getAddress().getPort() + "/" + String.join(",", sids.stream().map(String::valueOf).toList()) + "/" + out + "/{room}";
        }

        private static String whole(Object number) {
            return new java.math.BigDecimal(String.valueOf(number)).toBigInteger().toString();
        }

        @Override
        public void close() {
            server.stop(0);
        }
    }

    /** Reads and writes valid JSON. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        private char next() {
            while (Character.isWhitespace(text.charAt(at)) || text.charAt(at) == ',' || text.charAt(at) == ':') at++;
            return text.charAt(at);
        }

        Object value() {
            char c = next();
            if (c == '{') {
                Map<String, Object> map = new LinkedHashMap<>();
                for (at++; next() != '}'; ) {
                    String name = (String) value();
                    map.put(name, value());
                }
                at++;
                return map;
            }
            if (c == '[') {
                List<Object> list = new ArrayList<>();
                for (at++; next() != ']'; ) list.add(value());
                at++;
                return list;
            }
            int start = at;
            if (c == '"') {
                for (at++; text.charAt(at) != '"'; at++) if (text.charAt(at) == '\\') at++;
                return unescape(text.substring(start + 1, at++));
            }
            while (at < text.length() && ",]} \n".indexOf(text.charAt(at)) < 0) at++;
            String word = text.substring(start, at);
            return word.equals("null") ? null : word.equals("true") || word.equals("false") ? (Object) Boolean.valueOf(word) : Long.valueOf(word);
        }

        private static String unescape(String s) {
            StringBuilder out = new StringBuilder();
            for (int i = 0; i < s.length(); i++) {
                char c = s.charAt(i);
                if (c == '\\') {
                    c = s.charAt(++i);
                    if (c == 'u') {
                        c = (char) Integer.parseInt(s.substring(i + 1, i + 5), 16);
                        i += 4;
                    } else if ("bfnrt".indexOf(c) >= 0) c = "\b\f\n\r\t".charAt("bfnrt".indexOf(c));
                }
                out.append(c);
            }
            return out.toString();
        }

        static String text(Object value) {
            if (value instanceof Map<?, ?> map) return map.entrySet().stream().map(e -> text(e.getKey()) + ":" + text(e.getValue())).collect(Collectors.joining(",", "{", "}"));
            if (value instanceof List<?> list) return list.stream().map(Json::text).collect(Collectors.joining(",", "[", "]"));
            return value instanceof String s ? '"' + s.replace("\\", "\\\\").replace("\"", "\\\"") + '"' : String.valueOf(value);
        }
    }
}
