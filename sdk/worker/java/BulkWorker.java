import java.io.IOException;
import java.math.BigDecimal;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/**
 * Runs jobs of Anteroom's bulk engine: it leases them over HTTP, calls a function for each in a thread, extends leases while functions
 * run, and reports the outcomes. Java 17 or later, nothing else; copy this file. See docs/workers.md.
 *
 * <pre>
 * var config = new BulkWorker.Config();
 * config.url = "http://127.0.0.1:8090";
 * config.token = token;
 * var worker = new BulkWorker(config);
 * worker.handle("thumbnail", job -&gt; makeThumbnail(job.payload()));
 * Runtime.getRuntime().addShutdownHook(new Thread(worker::stop));
 * worker.run();
 * </pre>
 */
public final class BulkWorker {
    /** Settings of a worker. */
    public static final class Config {
        /** Address of the bulk worker's API. */
        public String url = "";
        /** One of worker_tokens, or admin.token. */
        public String token = "";
        /** Unique among all workers: A-Z a-z 0-9 . _ : -, at most 64. Empty: the host's name and a random word. */
        public String name = "";
        /** Most jobs at a time, each in a thread. */
        public int parallel = 10;
        /** How long to wait for jobs in one request, at most a minute. */
        public Duration wait = Duration.ofSeconds(20);
        /** How long a job may run; zero: any time. Then its thread is interrupted and the try has failed. */
        public Duration timeout = Duration.ZERO;
        /** Time for running jobs after stop. */
        public Duration grace = Duration.ofSeconds(30);
        /** Called with errors after which the worker continues. */
        public Consumer<String> log = System.err::println;
        /** Sends the requests; null: one with default settings. */
        public HttpClient client;
    }

    /**
     * One run of a job. attempt counts from 1 and does not grow when the job was refused (busy) or a worker has died. fence is larger for
     * every later start of any job: a receiver can refuse a write with a smaller one. idempotencyKey is the same for every run of the
     * job, redrives included. payload is made of Map, List, String, Long, Double, BigDecimal, Boolean and null. traceparent and tracestate
     * are the W3C trace context of the submission, which a span of the function continues; empty if it is not traced.
     */
    public record Job(String id, String group, String tenant, String type, long attempt, long fence, long cost, String idempotencyKey, Object payload,
            String traceparent, String tracestate) {}

    /**
     * Runs a job and returns its result: null, a String, Number, Boolean, Map or Collection of these. Its thread is interrupted when the job
     * is cancelled, its lease is lost, its time is over, or the worker stops and its grace is over.
     */
    public interface Handler {
        Object handle(Job job) throws Exception;
    }

    /** Runs jobs of one group together. It returns a result or an Exception for each, in their order. */
    public interface BatchHandler {
        List<?> handle(List<Job> jobs) throws Exception;
    }

    /** What a failure means for its job. */
    public enum Verdict {
        /** A failed try. */
        RETRY,
        /** Failed for good. */
        FAILED,
        /** Refused for now: the try does not count. */
        BUSY,
        /** As BUSY, for all jobs of the group. */
        BUSY_GROUP
    }

    /** A job has failed. Any other exception is a failure that is tried again, with the code "error". */
    public static final class Failure extends Exception {
        private static final long serialVersionUID = 1;
        final Verdict verdict;
        final String code;
        final Duration retryAfter;
        final boolean down;

        /** code: a-z 0-9 _. */
        public Failure(Verdict verdict, String code, String message) {
            this(verdict, code, message, Duration.ZERO, false);
        }

        /** retryAfter: the shortest wait before the next run. down: the service that the function calls is down for every job. */
        public Failure(Verdict verdict, String code, String message, Duration retryAfter, boolean down) {
            super(message);
            this.verdict = verdict;
            this.code = code;
            this.retryAfter = retryAfter;
            this.down = down;
        }
    }

    private static final int LARGEST = 1 << 20; // characters of results in one request
    private static final int MOST = 500; // jobs in one request
    private static final long GATHER = 10; // ms that jobs and verdicts gather for one request
    private static final long STILL_HERE = 20_000; // ms between two requests without a free slot

    private record Kind(Handler one, BatchHandler batch, int size, long linger) {}

    private record Buffer(Kind kind, long due, List<Run> runs) {}

    private record Recorded(Run run, String body) {}

    /** A job from its lease until its verdict is recorded; guarded by the worker. */
    private static final class Run {
        final Job job;
        final String lease;
        long began = now();
        Thread thread; // while its function runs
        boolean cancelled, lost, aborted, ended, freed;

        Run(Job job, String lease) {
            this.job = job;
            this.lease = lease;
        }

        void interrupt() {
            aborted = true;
            if (thread != null) thread.interrupt();
        }
    }

    /** A response that is not 200, or none: status is 0 then. code is that of the API's problem, "" if it is not its response. */
    private static final class CallError extends Exception {
        private static final long serialVersionUID = 1;
        final int status;
        final String code;
        final long retryAfter; // ms

        CallError(String message, int status, String code, long retryAfter) {
            super(message);
            this.status = status;
            this.code = code;
            this.retryAfter = retryAfter;
        }
    }

    private final Config config;
    private final String name;
    private final HttpClient client;
    private final Map<String, Kind> kinds = new LinkedHashMap<>();
    private final Map<String, Run> held = new LinkedHashMap<>(); // by lease, until the verdict is recorded
    private final Map<List<String>, Buffer> buffers = new HashMap<>(); // by type and group
    private final ArrayDeque<Recorded> verdicts = new ArrayDeque<>();
    private final List<String> lost = new ArrayList<>(); // requests without a response
    private ExecutorService slots;
    private CompletableFuture<?> poll;
    private int busy; // slots
    private long leaseFor = 30_000;
    private boolean stopping, over;

    /** Checks the settings. */
    public BulkWorker(Config config) {
        if (config.parallel < 1) throw new IllegalArgumentException("parallel " + config.parallel + ": use 1 or more");
        if (config.wait.isNegative() || config.wait.toSeconds() > 60) throw new IllegalArgumentException("wait " + config.wait + ": use at most a minute");
        this.config = config;
        name = config.name.isEmpty() ? hostName() + "-" + word() : config.name;
        client = config.client != null ? config.client : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(10)).build();
    }

    /** Sets the function that runs jobs of a type. */
    public BulkWorker handle(String type, Handler one) {
        kinds.put(type, new Kind(one, null, 1, 0));
        return this;
    }

    /** Sets the function that runs jobs of a type in batches: up to size of one group, gathered for at most that time. */
    public BulkWorker handleBatch(String type, int size, Duration wait, BatchHandler batch) {
        kinds.put(type, new Kind(null, batch, Math.min(size, config.parallel), wait.toMillis()));
        return this;
    }

    /** Runs jobs until stop. It returns when running jobs have ended, or were returned after the grace. */
    public void run() {
        if (kinds.isEmpty()) throw new IllegalStateException("no type has a function: call handle before run");
        // Daemons: a function that never returns must not keep the program alive.
        slots = Executors.newFixedThreadPool(config.parallel, task -> daemon(task));
        List<Thread> loops = List.of(daemon(this::record), daemon(this::extend), daemon(this::watch));
        loops.forEach(Thread::start);
        try {
            lease();
        } finally {
            finishAll();
            for (Thread loop : loops) join(loop);
            slots.shutdown();
        }
    }

    /** Takes no more jobs; run returns when the running ones have ended. */
    public synchronized void stop() {
        stopping = true;
        if (poll != null) poll.cancel(true);
        notifyAll();
    }

    private void finishAll() {
        List<Run> waiting = new ArrayList<>();
        synchronized (this) {
            buffers.values().forEach(b -> waiting.addAll(b.runs));
            buffers.clear();
        }
        waiting.forEach(run -> finish(run, Map.of("verdict", "returned")));
        until(() -> busy == 0, config.grace.toMillis());
        List<Run> left;
        synchronized (this) {
            left = new ArrayList<>(held.values());
            left.forEach(Run::interrupt);
        }
        until(() -> busy == 0, 1000);
        left.forEach(run -> end(run, Map.of("verdict", "returned")));
        until(verdicts::isEmpty, 5000);
        synchronized (this) {
            over = true;
            notifyAll();
        }
    }

    /** Waits for a condition, at most ms. */
    private synchronized boolean until(BooleanSupplier done, long ms) {
        long end = now() + ms;
        while (!done.getAsBoolean()) {
            long left = end - now();
            if (left <= 0) return false;
            try {
                wait(left);
            } catch (InterruptedException e) {
                stopping = true; // an interrupt of run ends it
            }
        }
        return true;
    }

    /** Waits after a failed call, longer after each further one, and logs the first. */
    private void pause(CallError e, int failures) {
        if (failures == 1) config.log.accept("anteroom: " + e.getMessage() + "; trying again");
        long backoff = (long) (Math.min(5000, 100 << Math.min(failures, 6)) * ThreadLocalRandom.current().nextDouble(0.5, 1));
        until(() -> over, Math.max(backoff, Math.min(e.retryAfter, 30_000)));
    }

    private Map<?, ?> call(String path, String body, long ms, boolean polls) throws CallError {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(config.url.replaceAll("/+$", "") + "/v1/work/" + path))
                .timeout(Duration.ofMillis(ms)).header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body));
        if (!config.token.isEmpty()) request.header("Authorization", "Bearer " + config.token);
        HttpResponse<String> response;
        try {
            CompletableFuture<HttpResponse<String>> sent = client.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
            if (polls) {
                synchronized (this) {
                    poll = sent;
                    if (stopping) sent.cancel(true);
                }
            }
            response = sent.get();
        } catch (ExecutionException | CancellationException | InterruptedException e) {
            Throwable cause = e instanceof ExecutionException && e.getCause() != null ? e.getCause() : e;
            String text = cause instanceof ConnectException ? "cannot connect to " + config.url : String.valueOf(cause);
            throw new CallError(path + ": " + text, 0, "", 0);
        }
        Object value;
        try {
            value = new Json(response.body()).read();
        } catch (IOException e) {
            value = null; // the response of a proxy, not of the API
        }
        Map<?, ?> answer = value instanceof Map<?, ?> map ? map : Map.of();
        if (response.statusCode() == 200 && value instanceof Map<?, ?>) return answer;
        long after = response.headers().firstValue("Retry-After").filter(s -> s.matches("\\d{1,6}")).map(Long::parseLong).orElse(0L);
        String faults = answer.get("problems") == null ? "" : " " + answer.get("problems");
        throw new CallError(path + ": " + response.statusCode() + " " + answer.get("detail") + faults, response.statusCode(), answer.get("code") instanceof String code ? code : "", after * 1000);
    }

    private int free() {
        // During an outage verdicts accumulate: lease no more jobs than fit in memory.
        return verdicts.size() > 2 * config.parallel + MOST ? 0 : config.parallel - busy;
    }

    private synchronized int freeNow() {
        return free();
    }

    /** Leases jobs until stop. */
    private void lease() {
        List<String> types = List.copyOf(kinds.keySet());
        int failures = 0;
        while (!stopped()) {
            boolean slot = until(() -> stopping || free() > 0, STILL_HERE);
            if (slot && freeNow() < config.parallel / 2) until(() -> stopping, GATHER); // for more slots
            if (stopped()) break;
            String request = word();
            List<String> named = List.copyOf(lost.subList(0, Math.min(8, lost.size())));
            int most = slot ? Math.min(freeNow(), MOST) : 0; // 0: the worker is busy, and only reports its types
            double wait = most > 0 ? config.wait.toMillis() / 1000.0 : 0;
            Map<String, Object> body = new LinkedHashMap<>(Map.of("worker", name, "types", types, "max", most, "wait", wait, "request", request));
            if (!named.isEmpty()) body.put("lost", named);
            long began = now();
            try {
                Map<?, ?> leased = call("lease", Json.write(body), (long) (wait * 1000) + 15_000, true);
                failures = 0;
                lost.removeAll(named);
                synchronized (this) {
                    leaseFor = Math.round(((Number) leased.get("lease_seconds")).doubleValue() * 1000);
                }
                List<?> jobs = (List<?>) leased.get("jobs");
                for (Object found : jobs) take((Map<?, ?>) found);
                if (jobs.isEmpty() && most > 0 && now() - began < Math.min(500, wait * 500)) until(() -> stopping, 200); // the process does not let requests wait
            } catch (CallError e) {
                if (e.code.isEmpty()) lost.add(request); // there may be a response that did not arrive
                if (!stopped()) pause(e, ++failures);
            }
        }
        if (lost.isEmpty()) return;
        try {
            call("lease", Json.write(Map.of("worker", name, "types", types, "max", 0, "lost", lost.subList(0, Math.min(8, lost.size())))), 5000, false);
        } catch (CallError e) {
            config.log.accept("anteroom: " + e.getMessage());
        }
    }

    private synchronized boolean stopped() {
        return stopping;
    }

    /** Starts a leased job, or adds it to a batch. */
    private synchronized void take(Map<?, ?> j) {
        Job job = new Job((String) j.get("id"), (String) j.get("group"), (String) j.get("tenant"), (String) j.get("type"), (Long) j.get("attempt"), (Long) j.get("fence"),
                (Long) j.get("cost"), (String) j.get("idempotency_key"), j.get("payload"),
                Objects.requireNonNullElse((String) j.get("traceparent"), ""), Objects.requireNonNullElse((String) j.get("tracestate"), ""));
        Run run = new Run(job, (String) j.get("lease"));
        Kind kind = kinds.get(job.type());
        held.put(run.lease, run);
        busy++;
        if (kind.batch == null) {
            slots.execute(() -> start(kind, List.of(run)));
            return;
        }
        List<String> key = List.of(job.type(), job.group());
        Buffer buffer = buffers.computeIfAbsent(key, k -> new Buffer(kind, now() + kind.linger, new ArrayList<>()));
        buffer.runs.add(run);
        if (buffer.runs.size() >= kind.size) {
            buffers.remove(key);
            slots.execute(() -> start(kind, buffer.runs));
        }
        notifyAll();
    }

    /** Starts batches that are due, and ends runs whose time is over. */
    private void watch() {
        while (!finished()) {
            long now = now(), next = now + 200;
            List<Run> late = new ArrayList<>();
            synchronized (this) {
                for (Buffer b : List.copyOf(buffers.values())) {
                    if (b.due > now) {
                        next = Math.min(next, b.due);
                        continue;
                    }
                    buffers.values().remove(b);
                    slots.execute(() -> start(b.kind, b.runs));
                }
                for (Run run : config.timeout.isZero() ? List.<Run>of() : held.values()) {
                    if (!run.ended && now - run.began > config.timeout.toMillis()) late.add(run);
                }
            }
            for (Run run : late) {
                end(run, verdict(run, new Failure(Verdict.RETRY, "timeout", "the job ran for more than " + config.timeout.toMillis() + " ms")));
                synchronized (this) {
                    run.interrupt();
                }
            }
            int seen = seenBuffers();
            until(() -> over || buffers.size() > seen, Math.max(1, next - now()));
        }
    }

    private synchronized int seenBuffers() {
        return buffers.size();
    }

    private synchronized boolean finished() {
        return over;
    }

    /** Calls the function for jobs, and ends each. */
    private void start(Kind kind, List<Run> all) {
        List<Run> runs;
        synchronized (this) {
            runs = all.stream().filter(run -> !run.ended).toList();
            for (Run run : runs) {
                run.began = now();
                run.thread = Thread.currentThread();
            }
        }
        List<Object> results = new ArrayList<>();
        try {
            if (kind.batch == null) {
                for (Run run : runs) results.add(kind.one.handle(run.job));
            } else if (!runs.isEmpty()) {
                List<?> answer = kind.batch.handle(runs.stream().map(run -> run.job).toList());
                if (answer == null) throw new Failure(Verdict.RETRY, "bad_batch", "the function of a batch returned no list");
                results.addAll(answer.subList(0, Math.min(answer.size(), runs.size())));
            }
            while (results.size() < runs.size()) results.add(new Failure(Verdict.RETRY, "bad_batch", "the function of a batch returned no verdict for this job"));
        } catch (Throwable e) { // an Error of a function ends its job, not the worker
            results.clear();
            runs.forEach(run -> results.add(e));
        }
        synchronized (this) {
            runs.forEach(run -> run.thread = null);
            Thread.interrupted(); // an interrupt was for these jobs
        }
        for (int i = 0; i < runs.size(); i++) finish(runs.get(i), verdict(runs.get(i), results.get(i)));
        for (Run run : all) if (!runs.contains(run)) finish(run, Map.of("verdict", "returned")); // ended before its start: frees its slot
    }

    private Map<String, Object> verdict(Run run, Object result) {
        Map<String, Object> v = new LinkedHashMap<>();
        synchronized (this) {
            if (result instanceof Throwable && (run.cancelled || stopping && run.aborted && !(result instanceof Failure))) {
                v.put("verdict", "returned");
                return v;
            }
            v.put("duration_ms", now() - run.began);
        }
        if (!(result instanceof Throwable e)) {
            v.put("result", result);
            return v;
        }
        Failure f = e instanceof Failure own ? own : new Failure(Verdict.RETRY, "error", e.toString());
        String text = String.valueOf(f.getMessage());
        v.put("verdict", f.verdict.name().toLowerCase(java.util.Locale.ROOT));
        v.put("code", f.code);
        v.put("error", text.substring(0, Math.min(1000, text.length())));
        if (f.down) v.put("down", true);
        if (f.verdict != Verdict.FAILED && !f.retryAfter.isZero()) v.put("retry_after", Math.min(86_400_000, f.retryAfter.toMillis()) / 1000.0);
        return v;
    }

    /** Frees the slot of a run that has ended, and queues its verdict. */
    private void finish(Run run, Map<String, Object> verdict) {
        synchronized (this) {
            if (!run.freed) {
                run.freed = true;
                busy--;
            }
        }
        end(run, verdict);
    }

    private void end(Run run, Map<String, ?> verdict) {
        Map<String, Object> v = new LinkedHashMap<>(Map.of("lease", run.lease));
        v.putAll(verdict);
        String body;
        try {
            body = Json.write(v);
        } catch (IllegalArgumentException e) {
            body = Json.write(Map.of("lease", run.lease, "verdict", "failed", "code", "bad_result", "error", "the result is no JSON: " + e.getMessage()));
        }
        synchronized (this) {
            if (!run.ended && !run.lost) verdicts.add(new Recorded(run, body));
            run.ended = true;
            notifyAll();
        }
    }

    /** Sends verdicts in batches. */
    private void record() {
        int failures = 0, most = MOST;
        while (true) {
            until(() -> over || !verdicts.isEmpty(), 60_000);
            if (!stopped()) until(() -> over, GATHER); // for more verdicts
            List<Recorded> part = new ArrayList<>(), away = new ArrayList<>();
            StringBuilder body = new StringBuilder("{\"jobs\":[");
            synchronized (this) {
                if (verdicts.isEmpty() && over) return;
                for (Recorded v : verdicts) {
                    if (part.size() == most || !part.isEmpty() && body.length() + v.body.length() > LARGEST) break;
                    body.append(part.isEmpty() ? "" : ",").append(v.body);
                    part.add(v);
                }
            }
            if (part.isEmpty()) continue;
            try {
                List<?> states = (List<?>) call("ack", body.append("]}").toString(), 15_000, false).get("jobs");
                for (int i = 0; i < part.size(); i++) {
                    if (((Map<?, ?>) states.get(i)).get("state").equals("away")) away.add(part.get(i)); // its part of the store does not reply
                }
                failures = 0;
                most = MOST;
            } catch (CallError e) {
                if (e.status != 400 && e.status != 413 && e.status != 422) {
                    if (finished()) return;
                    pause(e, ++failures);
                    continue;
                }
                if (part.size() > 1) {
                    most = part.size() / 2; // one of them is refused
                    continue;
                }
                most = MOST;
                Job job = part.get(0).run.job;
                config.log.accept("anteroom: the verdict of job " + job.group() + "/" + job.id() + " is refused; the job runs again: " + e.getMessage());
            }
            synchronized (this) {
                for (Recorded v : part) {
                    verdicts.remove();
                    if (!away.contains(v)) held.remove(v.run.lease);
                }
                verdicts.addAll(away);
                notifyAll();
            }
        }
    }

    /** Extends the leases of all jobs whose verdict is not recorded, each third of a lease. */
    private void extend() {
        int failures = 0;
        long last = now();
        while (!finished()) {
            List<Run> runs;
            long each;
            synchronized (this) {
                runs = List.copyOf(held.values());
                each = leaseFor / 3;
            }
            until(() -> over, Math.min(1000, each / 4));
            if (finished() || now() - last < each && failures == 0) continue;
            try {
                for (int at = 0; at < runs.size(); at += MOST) {
                    List<Run> part = runs.subList(at, Math.min(at + MOST, runs.size()));
                    List<?> states = (List<?>) call("extend", Json.write(Map.of("leases", part.stream().map(run -> run.lease).toList())), 10_000, false).get("jobs");
                    for (int i = 0; i < part.size(); i++) extended(part.get(i), (String) ((Map<?, ?>) states.get(i)).get("state"));
                }
                failures = 0;
                last = now();
            } catch (CallError e) {
                pause(e, ++failures);
            }
        }
    }

    private synchronized void extended(Run run, String state) {
        if (run.ended || state.equals("held")) return; // the verdict of a run that has ended may have ended its lease
        if (state.equals("cancelled")) {
            run.cancelled = true;
        } else {
            run.lost = true;
            held.remove(run.lease);
            config.log.accept("anteroom: the lease of job " + run.job.group() + "/" + run.job.id() + " is lost; another worker runs it");
        }
        run.interrupt();
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task, "bulkworker");
        thread.setDaemon(true);
        return thread;
    }

    private static void join(Thread thread) {
        try {
            thread.join(5000);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static long now() {
        return System.nanoTime() / 1_000_000;
    }

    private static String word() {
        return UUID.randomUUID().toString().replace("-", "").substring(0, 12);
    }

    private static String hostName() {
        try {
            String host = InetAddress.getLocalHost().getHostName().replaceAll("[^A-Za-z0-9._:-]", "-");
            return host.substring(0, Math.min(50, host.length()));
        } catch (IOException e) {
            return "worker";
        }
    }

    /** Reads and writes JSON. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        Object read() throws IOException {
            Object value = value(0);
            if (peek() != 0) throw new IOException("more after the value");
            return value;
        }

        private char peek() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
            return at < text.length() ? text.charAt(at) : 0;
        }

        private boolean take(char c) {
            boolean found = peek() == c;
            if (found) at++;
            return found;
        }

        private void need(char c) throws IOException {
            if (!take(c)) throw new IOException("no " + c + " at " + at);
        }

        private Object value(int depth) throws IOException {
            if (depth > 500) throw new IOException("nested too deeply");
            char c = peek();
            if (c == '"') return string();
            if (take('{')) {
                Map<String, Object> map = new LinkedHashMap<>();
                if (take('}')) return map;
                do {
                    if (peek() != '"') throw new IOException("no name at " + at);
                    String name = string();
                    need(':');
                    map.put(name, value(depth + 1));
                } while (take(','));
                need('}');
                return map;
            }
            if (take('[')) {
                List<Object> list = new ArrayList<>();
                if (take(']')) return list;
                do list.add(value(depth + 1)); while (take(','));
                need(']');
                return list;
            }
            int from = at;
            while (at < text.length() && "+-.eE0123456789abcdefghijklmnopqrstuvwxyz".indexOf(text.charAt(at)) >= 0) at++;
            String word = text.substring(from, at);
            switch (word) {
                case "true": return true;
                case "false": return false;
                case "null": return null;
                default: return number(word);
            }
        }

        private static Object number(String word) throws IOException {
            try {
                if (word.matches("-?\\d{1,18}")) return Long.parseLong(word);
                BigDecimal exact = new BigDecimal(word);
                double d = exact.doubleValue();
                return Double.isFinite(d) && exact.compareTo(new BigDecimal(d)) == 0 || word.matches(".*[.eE].*") && Double.isFinite(d) ? (Object) d : exact;
            } catch (NumberFormatException e) {
                throw new IOException("no value: " + word);
            }
        }

        private String string() throws IOException {
            StringBuilder s = new StringBuilder();
            for (at++; at < text.length(); at++) {
                char c = text.charAt(at);
                if (c == '"') {
                    at++;
                    return s.toString();
                }
                if (c != '\\') {
                    s.append(c);
                    continue;
                }
                if (++at >= text.length()) break;
                c = text.charAt(at);
                int plain = "\"\\/bfnrt".indexOf(c);
                if (plain >= 0) {
                    s.append("\"\\/\b\f\n\r\t".charAt(plain));
                } else if (c == 'u' && at + 4 < text.length()) {
                    s.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
                    at += 4;
                } else {
                    throw new IOException("an unknown escape at " + at);
                }
            }
            throw new IOException("a string without an end");
        }

        static String write(Object value) {
            StringBuilder out = new StringBuilder();
            write(value, out);
            return out.toString();
        }

        private static void write(Object value, StringBuilder out) {
            if (value == null || value instanceof Boolean) {
                out.append(value);
            } else if (value instanceof Number n) {
                if (!Double.isFinite(n.doubleValue()) && !(n instanceof BigDecimal)) throw new IllegalArgumentException("the number " + n);
                out.append(n);
            } else if (value instanceof CharSequence s) {
                string(s, out);
            } else if (value instanceof Map<?, ?> map) {
                String before = "{";
                for (Map.Entry<?, ?> e : map.entrySet()) {
                    out.append(before);
                    string(String.valueOf(e.getKey()), out);
                    out.append(':');
                    write(e.getValue(), out);
                    before = ",";
                }
                out.append(map.isEmpty() ? "{}" : "}");
            } else if (value instanceof Collection<?> list) {
                String before = "[";
                for (Object o : list) {
                    out.append(before);
                    write(o, out);
                    before = ",";
                }
                out.append(list.isEmpty() ? "[]" : "]");
            } else {
                throw new IllegalArgumentException("a " + value.getClass().getName() + "; use Map, Collection, String, Number, Boolean or null");
            }
        }

        private static void string(CharSequence s, StringBuilder out) {
            out.append('"');
            for (int i = 0; i < s.length(); i++) {
                char c = s.charAt(i);
                boolean alone = Character.isSurrogate(c) && !(Character.isHighSurrogate(c) && i + 1 < s.length() && Character.isLowSurrogate(s.charAt(i + 1))
                        || Character.isLowSurrogate(c) && i > 0 && Character.isHighSurrogate(s.charAt(i - 1)));
                if (c < ' ' || c == '"' || c == '\\' || alone) {
                    out.append(String.format("\\u%04x", (int) c));
                } else {
                    out.append(c);
                }
            }
            out.append('"');
        }
    }
}
