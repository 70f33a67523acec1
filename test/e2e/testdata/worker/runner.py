"""Runs the jobs of the tests with the SDK for Python. It prints a line for each start."""
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from bulkworker import BulkWorker, Failure  # noqa: E402

_, _, url, token, name, parallel, grace = sys.argv
worker = BulkWorker(url, token=token, name=name, parallel=int(parallel), grace=float(grace), wait=5, timeout=20)
refused = set()


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


@worker.handle("one")
def one(job):
    what = job.payload["do"]
    say("start", job.group, job.id, job.attempt, job.fence)
    if what == "ok":
        return {"id": job.id, "key": job.idempotency_key}
    if what == "trace":
        return job.traceparent + " " + job.tracestate
    if what == "sleep":
        time.sleep(job.payload["ms"] / 1000)
        return {"slept": job.payload["ms"]}
    if what == "hang":
        job.stopped.wait(1000)
        raise RuntimeError("stopped")
    if what == "flaky" and job.attempt == 1:
        raise Failure("the first try fails", code="flaky")
    if what == "failed":
        raise Failure("no such image", verdict="failed", code="no_such_image")
    if what == "busy" and job.id not in refused:
        refused.add(job.id)
        raise Failure("not now", verdict="busy", retry_after=0.05)
    if what == "crash":
        raise TypeError("something is None")
    if what == "no_json":
        return {"n": object()}
    return "ok"


@worker.handle_batch("many", size=5, wait=0.2)
def many(jobs):
    say("batch", jobs[0].group, len({j.group for j in jobs}), len(jobs))
    return [Failure("no", verdict="failed", code="bad") if j.payload["do"] == "failed" else {"id": j.id} for j in jobs if j.payload["do"] != "missing"]


signal.signal(signal.SIGTERM, lambda *_: worker.stop())
worker.run()
say("stopped")
