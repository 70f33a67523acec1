import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** Runs the jobs of the tests with the SDK for Java. It prints a line for each start. */
public final class Runner {
    private static final Set<String> refused = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) throws Exception {
        var config = new BulkWorker.Config();
        config.url = args[0];
        config.token = args[1];
        config.name = args[2];
        config.parallel = Integer.parseInt(args[3]);
        config.grace = Duration.ofMillis((long) (Double.parseDouble(args[4]) * 1000));
        config.wait = Duration.ofSeconds(5);
        config.timeout = Duration.ofSeconds(20);
        var worker = new BulkWorker(config);
        worker.handle("one", Runner::one);
        worker.handleBatch("many", 5, Duration.ofMillis(200), jobs -> {
            say("batch " + jobs.get(0).group() + " " + jobs.stream().map(BulkWorker.Job::group).collect(Collectors.toSet()).size() + " " + jobs.size());
            List<Object> results = new ArrayList<>();
            for (var job : jobs) {
                String what = what(job);
                if (what.equals("failed")) results.add(new BulkWorker.Failure(BulkWorker.Verdict.FAILED, "bad", "no"));
                else if (!what.equals("missing")) results.add(Map.of("id", job.id()));
            }
            return results;
        });
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.stop();
            try {
                main.join();
            } catch (InterruptedException e) {
                // The virtual machine ends all the same.
            }
        }));
        worker.run();
        say("stopped");
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static String what(BulkWorker.Job job) {
        return (String) ((Map<?, ?>) job.payload()).get("do");
    }

    private static Object one(BulkWorker.Job job) throws Exception {
        say("start " + job.group() + " " + job.id() + " " + job.attempt() + " " + job.fence());
        switch (what(job)) {
            case "ok":
                return Map.of("id", job.id(), "key", job.idempotencyKey());
            case "trace":
                return job.traceparent() + " " + job.tracestate();
            case "sleep":
                Object ms = ((Map<?, ?>) job.payload()).get("ms");
                Thread.sleep((Long) ms);
                return Map.of("slept", ms);
            case "hang":
                Thread.sleep(1_000_000);
                return "it was not stopped";
            case "flaky":
                if (job.attempt() == 1) throw new BulkWorker.Failure(BulkWorker.Verdict.RETRY, "flaky", "the first try fails");
                return "ok";
            case "failed":
                throw new BulkWorker.Failure(BulkWorker.Verdict.FAILED, "no_such_image", "no such image");
            case "busy":
                if (refused.add(job.id())) throw new BulkWorker.Failure(BulkWorker.Verdict.BUSY, "busy", "not now", Duration.ofMillis(50), false);
                return "ok";
            case "crash":
                throw new IllegalStateException("something is null");
            default:
                return Map.of("n", new Object());
        }
    }
}
