"""Runs jobs of Anteroom's bulk engine: it leases them over HTTP, calls a function for each in a thread, extends leases while
functions run, and reports the outcomes. Python 3.9 or later, nothing else; copy this file. See docs/workers.md.

    worker = BulkWorker("http://127.0.0.1:8090", token=token, parallel=20)

    @worker.handle("thumbnail")
    def thumbnail(job):
        return make_thumbnail(job.payload)

    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
"""

import http.client
import json
import queue
import random
import re
import socket
import ssl
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

__all__ = ["BulkWorker", "Failure", "Job"]

_LARGEST = 1 << 20  # bytes of results in one request
_MOST = 500  # jobs in one request
_GATHER = 0.01  # seconds that jobs and verdicts gather for one request
_STILL_HERE = 20  # seconds between two requests without a free slot


class Failure(Exception):
    """A job has failed. Any other exception is a failure that is tried again, with the code "error".

    verdict: "retry", a failed try; "failed", for good; "busy", refused for now, so that the try does not count; "busy_group",
    the same for all jobs of its group. code: a-z 0-9 _. retry_after: seconds. down: the service that the function calls is
    down for every job.
    """

    def __init__(self, message, verdict="retry", code=None, retry_after=0, down=False):
        super().__init__(message)
        if verdict not in ("retry", "failed", "busy", "busy_group"):
            raise ValueError(f"verdict {verdict!r}: use retry, failed, busy or busy_group")
        self.verdict = verdict
        self.code = code or ("busy" if verdict.startswith("busy") else "error")
        self.retry_after = retry_after
        self.down = down


class Job:
    """One run of a job.

    attempt counts from 1 and does not grow when the job was refused (busy) or a worker has died. fence is larger for every
    later start of any job: a receiver can refuse a write with a smaller one. idempotency_key is the same for every run of the
    job, redrives included. traceparent and tracestate are the W3C trace context of the submission, which a span of the
    function continues, or empty if it is not traced. stopped is an Event that is set when the job is cancelled, its lease is lost, its time is over, or
    the worker stops and its grace is over; a function that takes long should look at it.
    """

    __slots__ = ("id", "group", "tenant", "type", "attempt", "fence", "cost", "idempotency_key", "traceparent",
                 "tracestate", "payload", "stopped", "_lease", "_began", "_cancelled", "_lost", "_ended", "_freed")

    def __init__(self, leased):
        self.id = leased["id"]
        self.group = leased["group"]
        self.tenant = leased["tenant"]
        self.type = leased["type"]
        self.attempt = leased["attempt"]
        self.fence = leased["fence"]
        self.cost = leased["cost"]
        self.idempotency_key = leased["idempotency_key"]
        self.traceparent = leased.get("traceparent", "")
        self.tracestate = leased.get("tracestate", "")
        self.payload = leased["payload"]
        self.stopped = threading.Event()
        self._lease = leased["lease"]
        self._began = time.monotonic()
        self._cancelled = self._lost = self._ended = self._freed = False


class _CallError(Exception):
    """A response that is not 200, or none: status is 0 then. code is that of the API's problem, "" if it is not its response."""

    def __init__(self, message, status=0, code="", retry_after=0.0):
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after


class _Client:
    """One connection to the API, for one thread."""

    def __init__(self, url, token, context):
        self._url = urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"url {url!r}: use the http or https address of the API")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        self._context = context
        self._connection = None

    def _connect(self, timeout):
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(self._url.hostname, self._url.port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=timeout)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def call(self, path, body, timeout, again=False):
        """Posts a body and returns the response. again repeats the request once if a kept connection was closed meanwhile."""
        kept = self._connection is not None
        try:
            if not kept:
                self._connection = self._connect(timeout)
            self._connection.sock.settimeout(timeout)
            self._connection.request("POST", self._url.path.rstrip("/") + "/v1/work/" + path, body.encode(), self._headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException, AttributeError) as e:  # AttributeError: close has taken the connection
            self.close()
            if kept and again:
                return self.call(path, body, timeout)
            raise _CallError(f"{path}: {e or type(e).__name__}") from e
        if response.will_close:
            self.close()
        try:
            value = json.loads(text)
        except ValueError:
            value = None  # not the API's: a proxy's
        if response.status == 200 and isinstance(value, dict):
            return value
        problem = value if isinstance(value, dict) else {}
        after = response.getheader("Retry-After", "")
        raise _CallError(f"{path}: {response.status} {problem.get('detail', '')} {problem.get('problems', '')}".rstrip(), response.status,
                         problem.get("code", ""), float(after) if re.fullmatch(r"\d+", after) else 0.0)

    def interrupt(self):
        """Ends a call in progress, from another thread."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Kind:
    def __init__(self, function, size=0, wait=0.0):
        self.function, self.size, self.wait = function, size, wait  # size 0: one job at a time


class BulkWorker:
    """Leases jobs and runs them.

    url: address of the bulk worker's API. token: one of worker_tokens, or admin.token. name: unique among all workers, A-Z a-z
    0-9 . _ : -, at most 64; without it, the host's name and a random word. parallel: most jobs at a time, each in a thread. wait:
    seconds to wait for jobs in one request, up to 60. timeout: seconds that a job may run, 0 for any time; then its event is set
    and the try has failed (its thread goes on until the function returns). grace: seconds for running jobs after stop. log: called
    with problems that the worker goes on from. context: an ssl.SSLContext.
    """

    def __init__(self, url, token="", name=None, parallel=10, wait=20, timeout=0, grace=30, log=None, context=None):
        if parallel < 1:
            raise ValueError(f"parallel {parallel}: use 1 or more")
        if not 0 <= wait <= 60:
            raise ValueError(f"wait {wait}: use 0 to 60 seconds")
        self.name = name or re.sub(r"[^A-Za-z0-9._:-]", "-", socket.gethostname())[:50] + "-" + uuid.uuid4().hex[:12]
        self._parallel, self._wait, self._timeout, self._grace = parallel, wait, timeout, grace
        self._log = log or (lambda message: print(message, file=sys.stderr, flush=True))
        self._client = lambda: _Client(url, token, context)
        self._poll = self._client()
        self._kinds = {}
        self._tasks = queue.SimpleQueue()  # (kind, jobs) for the threads that run functions; None ends one
        self._change = threading.Condition()  # guards what follows
        self._held = {}  # jobs by lease, until the verdict is recorded
        self._buffers = {}  # (when to start, jobs) by type and group
        self._verdicts = []  # (job, JSON)
        self._lost = []  # requests without a response
        self._busy = 0  # slots
        self._lease_for = 30.0
        self._stopping = self._over = False

    def handle(self, job_type):
        """Returns a decorator: the function runs jobs of a type, and returns a result that JSON can hold."""
        def decorate(function):
            self._kinds[job_type] = _Kind(function)
            return function
        return decorate

    def handle_batch(self, job_type, size, wait=0.05):
        """Returns a decorator: the function runs jobs of a type in batches, up to size of one group, gathered for at most wait seconds. It
        returns a list with a result or an exception for each job, in their order."""
        def decorate(function):
            self._kinds[job_type] = _Kind(function, min(size, self._parallel), wait)
            return function
        return decorate

    def run(self):
        """Runs jobs until stop. It returns when running jobs have ended, or were returned after the grace."""
        if not self._kinds:
            raise ValueError("no type has a function: call handle before run")
        # Daemons: a function that never returns must not keep the program alive.
        loops = [threading.Thread(target=f, daemon=True) for f in (self._record, self._extend, self._watch)]
        slots = [threading.Thread(target=self._slot, daemon=True) for _ in range(self._parallel)]
        for thread in loops + slots:
            thread.start()
        try:
            self._lease()
        finally:
            self._finish_all()
            for _ in slots:
                self._tasks.put(None)
            for loop in loops:
                loop.join(5)

    def stop(self):
        """Takes no more jobs; run returns when the running ones have ended. It may be called by a signal handler."""
        self._stopping = True
        self._poll.interrupt()

    def _slot(self):
        for kind, jobs in iter(self._tasks.get, None):
            self._start(kind, jobs)

    def _finish_all(self):
        with self._change:
            waiting = [job for _, jobs in self._buffers.values() for job in jobs]
            self._buffers.clear()
        for job in waiting:
            self._finish(job, {"verdict": "returned"})
        self._until(lambda: self._busy == 0, self._grace)
        with self._change:
            left = list(self._held.values())
        for job in left:
            job.stopped.set()
        self._until(lambda: self._busy == 0, 1)
        for job in left:
            self._end(job, {"verdict": "returned"})
        self._until(lambda: not self._verdicts, 5)
        with self._change:
            self._over = True
            self._change.notify_all()

    def _until(self, done, seconds):
        """Waits for a condition, and checks it now and then, because a signal handler may change it without notifying."""
        end = time.monotonic() + seconds
        with self._change:
            while not done():
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._change.wait(min(left, 0.2))
        return True

    def _pause(self, e, failures):
        """Waits after a failed call, longer after each further one, and logs the first."""
        if failures == 1:
            self._log(f"anteroom: {e}; trying again")
        backoff = min(5, 0.1 * 2 ** min(failures, 6)) * random.uniform(0.5, 1)
        end = time.monotonic() + max(backoff, min(e.retry_after, 30))
        self._until(lambda: self._over or time.monotonic() >= end, 60)

    def _free(self):
        # During an outage verdicts accumulate: lease no more jobs than fit in memory.
        return 0 if len(self._verdicts) > 2 * self._parallel + _MOST else self._parallel - self._busy

    def _lease(self):
        types, failures = list(self._kinds), 0
        while not self._stopping:
            slot = self._until(lambda: self._stopping or self._free() > 0, _STILL_HERE)
            if slot and self._free() < self._parallel / 2:
                time.sleep(_GATHER)  # for more slots
            if self._stopping:
                break
            request, lost = uuid.uuid4().hex[:12], self._lost[:8]
            most = min(self._free(), _MOST) if slot else 0  # 0: the worker is busy, and still here
            body = {"worker": self.name, "types": types, "max": most, "wait": self._wait if most else 0, "request": request}
            if lost:
                body["lost"] = lost
            began = time.monotonic()
            try:
                leased = self._poll.call("lease", json.dumps(body), body["wait"] + 15)
            except _CallError as e:
                if not e.code:
                    self._lost.append(request)  # there may be a response that did not arrive
                if not self._stopping:
                    failures += 1
                    self._pause(e, failures)
                continue
            failures, self._lost = 0, [i for i in self._lost if i not in lost]
            self._lease_for = leased["lease_seconds"]
            for found in leased["jobs"]:
                self._take(Job(found))
            if not leased["jobs"] and most and time.monotonic() - began < min(0.5, self._wait / 2):
                time.sleep(0.2)  # the process does not let requests wait
        self._poll.close()
        if self._lost:
            last = self._client()
            try:
                last.call("lease", json.dumps({"worker": self.name, "types": types, "max": 0, "lost": self._lost[:8]}), 5)
            except _CallError as e:
                self._log(f"anteroom: {e}")
            last.close()

    def _take(self, job):
        """Starts a leased job, or adds it to a batch."""
        kind = self._kinds[job.type]
        with self._change:
            self._held[job._lease] = job
            self._busy += 1
            jobs = [job]
            if kind.size:
                key = (job.type, job.group)
                due, jobs = self._buffers.setdefault(key, (time.monotonic() + kind.wait, []))
                jobs.append(job)
                self._change.notify_all()
                if len(jobs) < kind.size:
                    return
                del self._buffers[key]
        self._tasks.put((kind, jobs))

    def _watch(self):
        """Starts batches that are due, ends runs whose time is over, and the wait for jobs after stop."""
        while not self._over:
            if self._stopping:
                self._poll.interrupt()
            now, ready, late = time.monotonic(), [], []
            with self._change:
                for key, (due, jobs) in list(self._buffers.items()):
                    if due <= now:
                        ready.append((self._kinds[key[0]], jobs))
                        del self._buffers[key]
                if self._timeout:
                    late = [j for j in self._held.values() if not j._ended and now - j._began > self._timeout]
            for kind, jobs in ready:
                self._tasks.put((kind, jobs))
            for job in late:
                job.stopped.set()
                self._end(job, self._verdict(job, Failure(f"the job ran for more than {self._timeout} s", code="timeout")))
            with self._change:
                dues = [due for due, _ in self._buffers.values()]
                self._change.wait(max(0.001, min(dues + [now + 0.2]) - time.monotonic()))

    def _start(self, kind, jobs):
        """Calls the function for jobs, and ends each."""
        for job in jobs:
            if job._ended:  # its time was over before it started
                self._finish(job, {"verdict": "returned"})
        jobs = [job for job in jobs if not job._ended]
        for job in jobs:
            job._began = time.monotonic()
        try:
            if kind.size:
                results = kind.function(jobs)
                if not isinstance(results, (list, tuple)):
                    raise Failure("the function of a batch returned no list", code="bad_batch")
                missing = Failure("the function of a batch returned no verdict for this job", code="bad_batch")
                results = [results[i] if i < len(results) else missing for i in range(len(jobs))]
            else:
                results = [kind.function(job) for job in jobs]
        except BaseException as e:  # SystemExit of a function ends its job, not the worker
            results = [e] * len(jobs)
        for job, result in zip(jobs, results):
            self._finish(job, self._verdict(job, result))

    def _verdict(self, job, result):
        took = {"duration_ms": round((time.monotonic() - job._began) * 1000)}
        if not isinstance(result, BaseException):
            return {"result": result, **took}
        stopped = self._stopping and job.stopped.is_set() and not isinstance(result, Failure)
        if job._cancelled or stopped:
            return {"verdict": "returned"}
        f = result if isinstance(result, Failure) else Failure(f"{type(result).__name__}: {result}")
        verdict = {"verdict": f.verdict, "code": f.code, "error": str(f)[:1000], **took}
        if f.down:
            verdict["down"] = True
        if f.verdict != "failed" and f.retry_after > 0:
            verdict["retry_after"] = min(86400, round(f.retry_after, 3))
        return verdict

    def _finish(self, job, verdict):
        """Frees the slot of a run that has ended, and queues its verdict."""
        with self._change:
            if not job._freed:
                job._freed = True
                self._busy -= 1
        self._end(job, verdict)

    def _end(self, job, verdict):
        try:
            text = json.dumps({"lease": job._lease, **verdict}, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as e:
            text = json.dumps({"lease": job._lease, "verdict": "failed", "code": "bad_result", "error": f"the result is no JSON: {e}"})
        with self._change:
            if not job._ended:
                job._ended = True
                if not job._lost:
                    self._verdicts.append((job, text))
            self._change.notify_all()

    def _record(self):
        """Sends verdicts in batches."""
        client, failures, most = self._client(), 0, _MOST
        while not (self._over and not self._verdicts):
            if not self._verdicts:
                self._until(lambda: self._verdicts or self._over, 60)
                if not self._stopping:
                    time.sleep(_GATHER)  # for more verdicts
                continue
            size = n = 0
            with self._change:
                while n < len(self._verdicts) and n < most and (n == 0 or size + len(self._verdicts[n][1]) < _LARGEST):
                    size += len(self._verdicts[n][1])
                    n += 1
                part, away = self._verdicts[:n], []
            try:
                states = client.call("ack", '{"jobs":[' + ",".join(text for _, text in part) + "]}", 15, again=True)["jobs"]
                away = [v for v, s in zip(part, states) if s["state"] == "away"]  # their part of the store does not reply
                part = [v for v, s in zip(part, states) if s["state"] != "away"]
                failures, most = 0, _MOST
            except _CallError as e:
                if e.status not in (400, 413, 422):
                    if self._over:
                        break
                    failures += 1
                    self._pause(e, failures)
                    continue
                if n > 1:
                    most = n // 2  # one of them is refused
                    continue
                most, job = _MOST, part[0][0]
                self._log(f"anteroom: the verdict of job {job.group}/{job.id} is refused; the job runs again: {e}")
            with self._change:
                del self._verdicts[:n]
                self._verdicts += away
                for job, _ in part:
                    self._held.pop(job._lease, None)
                self._change.notify_all()
        client.close()

    def _extend(self):
        """Extends the leases of all jobs whose verdict is not recorded, each third of a lease."""
        client, failures, last = self._client(), 0, time.monotonic()
        while not self._over:
            self._until(lambda: self._over, min(1, self._lease_for / 12))
            if self._over or time.monotonic() - last < self._lease_for / 3 and not failures:
                continue
            with self._change:
                jobs = list(self._held.values())
            try:
                for at in range(0, len(jobs), _MOST):
                    part = jobs[at:at + _MOST]
                    states = client.call("extend", json.dumps({"leases": [j._lease for j in part]}), 10, again=True)["jobs"]
                    for job, state in zip(part, states):
                        self._extended(job, state["state"])
                failures, last = 0, time.monotonic()
            except _CallError as e:
                failures += 1
                self._pause(e, failures)
        client.close()

    def _extended(self, job, state):
        if job._ended or state == "held":  # the verdict of a run that has ended may have ended its lease
            return
        if state == "cancelled":
            job._cancelled = True
        else:
            with self._change:
                job._lost = True
                self._held.pop(job._lease, None)
            self._log(f"anteroom: the lease of job {job.group}/{job.id} is lost; another worker runs it")
        job.stopped.set()
