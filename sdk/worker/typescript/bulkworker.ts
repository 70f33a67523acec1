// Runs jobs of Anteroom's bulk engine: it leases them over HTTP, calls a function for each, extends leases while functions run, and
// reports the outcomes. Node 18 or later, Deno or Bun; copy this file. See docs/workers.md.
//
//   const worker = new BulkWorker({ url: 'http://127.0.0.1:8090', token, parallel: 20 });
//   worker.handle('thumbnail', async (job) => makeThumbnail(job.payload, job.signal));
//   process.once('SIGTERM', () => worker.stop());
//   await worker.run();

/** One run of a job. */
export interface Job {
  readonly id: string;
  readonly group: string;
  readonly tenant: string;
  readonly type: string;
  /** From 1. It does not grow when the job was refused (busy) or a worker has died. */
  readonly attempt: number;
  /** Larger for every later start of any job: a receiver can refuse a write with a smaller one. */
  readonly fence: number;
  readonly cost: number;
  /** The same for every run of this job, redrives included. */
  readonly idempotencyKey: string;
  /** W3C trace context of the submission, which a span of the function continues; '' if it is not traced. */
  readonly traceparent: string;
  readonly tracestate: string;
  readonly payload: any;
  /** Aborted when the job is cancelled, its lease is lost, its time is over, or the worker stops and its grace is over. */
  readonly signal: AbortSignal;
}

/** A job has failed. Any other error is a failure that is tried again, with the code "error". */
export class Failure extends Error {
  readonly code: string;
  readonly verdict: 'retry' | 'failed' | 'busy' | 'busy_group';
  readonly retryAfter: number;
  readonly down: boolean;

  /**
   * verdict: retry, a failed try; failed, for good; busy, refused for now, so that the try does not count; busy_group, the same for all
   * jobs of its group. code: a-z 0-9 _. retryAfter: seconds. down: the service that the function calls is down for every job.
   */
  constructor(message: string, o: { verdict?: Failure['verdict']; code?: string; retryAfter?: number; down?: boolean } = {}) {
    super(message);
    this.verdict = o.verdict ?? 'retry';
    this.code = o.code ?? (this.verdict.startsWith('busy') ? 'busy' : 'error');
    this.retryAfter = o.retryAfter ?? 0;
    this.down = o.down ?? false;
  }
}

/** Runs a job and returns its result, anything that JSON can hold. */
export type Handler = (job: Job) => unknown;

/** Runs jobs of one group together. It returns a result or an Error for each, in their order. */
export type BatchHandler = (jobs: Job[]) => unknown[] | Promise<unknown[]>;

export interface Options {
  /** Address of the bulk worker's API. */
  url: string;
  /** One of worker_tokens, or admin.token. */
  token?: string;
  /** Unique among all workers: A-Z a-z 0-9 . _ : -, at most 64. Without it, worker- and a random word. */
  name?: string;
  /** Most jobs at a time; 10. */
  parallel?: number;
  /** Seconds to wait for jobs in one request, up to 60; 20. */
  wait?: number;
  /** Seconds that a job may run; 0: any time. Then its signal is aborted and the try has failed. */
  timeout?: number;
  /** Seconds for running jobs after stop; 30. */
  grace?: number;
  /** Called with errors after which the worker continues; console.error. */
  log?: (message: string) => void;
}

interface Kind {
  one?: Handler;
  batch?: BatchHandler;
  size: number;
  wait: number;
}

interface Run {
  job: Job;
  lease: string;
  control: AbortController;
  cancelled: boolean;
  lost: boolean;
  began: number;
  ended: boolean;
}

interface Buffer {
  kind: Kind;
  runs: Run[];
  timer: ReturnType<typeof setTimeout>;
}

/** A response that is not 200, or none. */
class CallError extends Error {
  readonly status: number; // 0: none
  readonly code: string; // of the API's problem; '': not its response
  readonly retryAfter: number; // seconds

  constructor(message: string, status = 0, code = '', retryAfter = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

const LARGEST = 1 << 20; // bytes of results in one request
const MOST = 500; // jobs in one request
const GATHER = 10; // ms that jobs and verdicts gather for one request
const STILL_HERE = 20_000; // ms between two requests without a free slot

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const word = () => globalThis.crypto.randomUUID().replaceAll('-', '').slice(0, 12);

/** Leases jobs and runs them. */
export class BulkWorker {
  readonly name: string;
  private readonly o: Required<Omit<Options, 'name'>>;
  private readonly kinds = new Map<string, Kind>();
  private readonly held = new Map<string, Run>(); // by lease, until the verdict is recorded
  private readonly buffers = new Map<string, Buffer>(); // by type and group
  private verdicts: { run: Run; body: string }[] = [];
  private lost: string[] = []; // requests without a response
  private busy = 0; // slots
  private leaseMs = 30_000;
  private stopping = false;
  private poll: AbortController | undefined;
  private changed = () => {}; // wakes those that wait for a change
  private change: Promise<void> = Promise.resolve();

  constructor(o: Options) {
    this.name = o.name ?? 'worker-' + word();
    this.o = { token: '', parallel: 10, wait: 20, timeout: 0, grace: 30, log: (m) => console.error(m), ...o };
    if (!(this.o.parallel >= 1)) throw new Error(`parallel ${this.o.parallel}: use 1 or more`);
    if (!(this.o.wait >= 0 && this.o.wait <= 60)) throw new Error(`wait ${this.o.wait}: use 0 to 60 seconds`);
    this.o.url = this.o.url.replace(/\/+$/, '');
    this.renew();
  }

  /** Sets the function that runs jobs of a type. */
  handle(type: string, one: Handler): this {
    this.kinds.set(type, { one, size: 1, wait: 0 });
    return this;
  }

  /** Sets the function that runs jobs of a type in batches: up to size of one group, gathered for at most wait seconds. */
  handleBatch(type: string, o: { size: number; wait?: number }, batch: BatchHandler): this {
    this.kinds.set(type, { batch, size: Math.min(o.size, this.o.parallel), wait: o.wait ?? 0.05 });
    return this;
  }

  /** Runs jobs until stop. It returns when running jobs have ended, or were returned after the grace. */
  async run(): Promise<void> {
    if (this.kinds.size === 0) throw new Error('no type has a function: call handle before run');
    let over = false;
    const loops = [this.record(() => over && this.verdicts.length === 0), this.extend(() => over)];
    await this.lease();
    for (const key of [...this.buffers.keys()]) this.giveBack(key);
    await this.until(() => this.busy === 0, this.o.grace * 1000);
    for (const run of this.held.values()) run.control.abort(new Error('the worker stops'));
    await this.until(() => this.busy === 0, 1000);
    for (const run of this.held.values()) this.end(run, { verdict: 'returned' });
    await this.until(() => this.verdicts.length === 0, 5000);
    over = true;
    this.wake();
    await Promise.race([Promise.all(loops), sleep(5000)]);
  }

  /** Takes no more jobs; run returns when the running ones have ended. */
  stop(): void {
    this.stopping = true;
    this.poll?.abort(new Error('the worker stops'));
    this.wake();
  }

  private renew() {
    this.change = new Promise((resolve) => (this.changed = resolve));
  }

  private wake() {
    this.changed();
    this.renew();
  }

  /** Waits for a condition, at most ms. */
  private async until(done: () => boolean, ms: number): Promise<boolean> {
    const end = Date.now() + ms;
    while (!done()) {
      const left = end - Date.now();
      if (left <= 0) return false;
      let timer: ReturnType<typeof setTimeout> | undefined;
      await Promise.race([this.change, new Promise<void>((resolve) => (timer = setTimeout(resolve, left)))]);
      clearTimeout(timer);
    }
    return true;
  }

  private async call(path: string, body: string, ms: number, control = new AbortController()): Promise<any> {
    const timer = setTimeout(() => control.abort(new Error('no response in time')), ms);
    try {
      const headers: Record<string, string> = { 'Content-Type': 'application/json' };
      if (this.o.token) headers.Authorization = 'Bearer ' + this.o.token;
      const response = await fetch(this.o.url + '/v1/work/' + path, { method: 'POST', headers, body, signal: control.signal, redirect: 'error' });
      const text = await response.text();
      if (response.status === 200) return JSON.parse(text);
      let problem: any = {};
      try {
        problem = JSON.parse(text);
      } catch {
        // The response of a proxy, not of the API.
      }
      const faults = problem.problems ? ' ' + JSON.stringify(problem.problems) : '';
      throw new CallError(`${path}: ${response.status} ${problem.detail ?? ''}${faults}`, response.status, problem.code, Number(response.headers.get('Retry-After')) || 0);
    } catch (e) {
      if (e instanceof CallError) throw e;
      const cause = (e as Error).cause instanceof Error ? ': ' + ((e as Error).cause as Error).message : '';
      throw new CallError(`${path}: ${(e as Error).message}${cause}`);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits after a failed call, longer after each further one, and logs the first. */
  private async pause(e: CallError, failures: number) {
    if (failures === 1) this.o.log(`anteroom: ${e.message}; trying again`);
    const backoff = Math.min(5000, 100 * 2 ** Math.min(failures, 6)) * (0.5 + Math.random() / 2);
    await sleep(Math.max(backoff, Math.min(e.retryAfter, 30) * 1000));
  }

  private free(): number {
    // During an outage verdicts accumulate: lease no more jobs than fit in memory.
    return this.verdicts.length > 2 * this.o.parallel + MOST ? 0 : this.o.parallel - this.busy;
  }

  /** Leases jobs until stop. */
  private async lease() {
    const types = [...this.kinds.keys()];
    let failures = 0;
    while (!this.stopping) {
      const slot = await this.until(() => this.stopping || this.free() > 0, STILL_HERE);
      if (slot && this.free() < this.o.parallel / 2) await sleep(GATHER); // for more slots
      if (this.stopping) break;
      const request = word(), lost = this.lost.slice(0, 8);
      const max = slot ? Math.min(this.free(), MOST) : 0; // 0: the worker is busy, and still here
      const body = { worker: this.name, types, max, wait: max > 0 ? this.o.wait : 0, request, lost: lost.length ? lost : undefined };
      const began = Date.now();
      this.poll = new AbortController();
      try {
        const leased = await this.call('lease', JSON.stringify(body), (body.wait + 15) * 1000, this.poll);
        failures = 0;
        this.lost = this.lost.filter((id) => !lost.includes(id));
        this.leaseMs = leased.lease_seconds * 1000;
        for (const j of leased.jobs) this.take(j);
        if (leased.jobs.length === 0 && max > 0 && Date.now() - began < Math.min(500, body.wait * 500)) await sleep(200); // the process does not let requests wait
      } catch (e) {
        if ((e as CallError).code === '') this.lost.push(request); // there may be a response that did not arrive
        if (!this.stopping) await this.pause(e as CallError, ++failures);
      }
    }
    if (this.lost.length > 0) {
      await this.call('lease', JSON.stringify({ worker: this.name, types, max: 0, lost: this.lost.slice(0, 8) }), 5000).catch((e) => this.o.log(`anteroom: ${e.message}`));
    }
  }

  /** Starts a leased job, or adds it to a batch. */
  private take(j: any) {
    const control = new AbortController();
    const job: Job = {
      id: j.id, group: j.group, tenant: j.tenant, type: j.type, attempt: j.attempt, fence: j.fence, cost: j.cost, idempotencyKey: j.idempotency_key,
      traceparent: j.traceparent ?? '', tracestate: j.tracestate ?? '',
      payload: j.payload, signal: control.signal,
    };
    const run: Run = { job, lease: j.lease, control, cancelled: false, lost: false, began: Date.now(), ended: false };
    const kind = this.kinds.get(j.type)!;
    this.held.set(run.lease, run);
    this.busy++;
    if (!kind.batch) return void this.start(kind, [run]);
    const key = j.type + ' ' + j.group;
    let buffer = this.buffers.get(key);
    if (!buffer) {
      buffer = { kind, runs: [], timer: setTimeout(() => this.startBatch(key), kind.wait * 1000) };
      this.buffers.set(key, buffer);
    }
    buffer.runs.push(run);
    if (buffer.runs.length >= kind.size) this.startBatch(key);
  }

  private takeBuffer(key: string): Buffer | undefined {
    const buffer = this.buffers.get(key);
    this.buffers.delete(key);
    clearTimeout(buffer?.timer);
    return buffer;
  }

  private startBatch(key: string) {
    const buffer = this.takeBuffer(key);
    if (buffer) void this.start(buffer.kind, buffer.runs);
  }

  private giveBack(key: string) {
    for (const run of this.takeBuffer(key)?.runs ?? []) this.finish(run, { verdict: 'returned' });
  }

  /** Calls the function for jobs, and ends each. */
  private async start(kind: Kind, runs: Run[]) {
    runs = runs.filter((run) => !run.ended);
    const began = Date.now();
    for (const run of runs) run.began = began;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      if (this.o.timeout > 0) {
        timer = setTimeout(() => {
          const error = new Failure(`the job ran for more than ${this.o.timeout} s`, { code: 'timeout' });
          for (const run of runs) run.control.abort(error);
          reject(error);
        }, this.o.timeout * 1000);
      }
    });
    let results: unknown[];
    try {
      const jobs = runs.map((run) => run.job);
      if (kind.batch) {
        const answer = await Promise.race([Promise.resolve(kind.batch(jobs)), late]);
        if (!Array.isArray(answer)) throw new Failure('the function of a batch returned no list', { code: 'bad_batch' });
        results = runs.map((_, i) => (i < answer.length ? answer[i] : new Failure('the function of a batch returned no verdict for this job', { code: 'bad_batch' })));
      } else {
        results = [await Promise.race([Promise.resolve(kind.one!(jobs[0]!)), late])];
      }
    } catch (e) {
      results = runs.map(() => (e instanceof Error ? e : new Error(String(e))));
    } finally {
      clearTimeout(timer);
    }
    runs.forEach((run, i) => this.finish(run, this.verdictOf(run, results[i])));
  }

  private verdictOf(run: Run, result: unknown): object {
    const took = { duration_ms: Date.now() - run.began };
    if (!(result instanceof Error)) return { result, ...took };
    const stopped = this.stopping && run.control.signal.aborted && !(result instanceof Failure);
    if (run.cancelled || stopped) return { verdict: 'returned' };
    const f = result instanceof Failure ? result : new Failure(`${result.name}: ${result.message}`);
    return {
      verdict: f.verdict, code: f.code, error: f.message.slice(0, 1000), down: f.down || undefined,
      retry_after: f.verdict !== 'failed' && f.retryAfter > 0 ? Math.min(86400, Math.round(f.retryAfter * 1000) / 1000) : undefined, ...took,
    };
  }

  /** Frees the slot of a run that has ended, and queues its verdict. */
  private finish(run: Run, verdict: object) {
    this.busy--;
    this.end(run, verdict);
    this.wake();
  }

  private end(run: Run, verdict: object) {
    if (run.ended) return;
    run.ended = true;
    if (run.lost) return;
    let body: string;
    try {
      body = JSON.stringify({ lease: run.lease, ...verdict });
    } catch (e) {
      body = JSON.stringify({ lease: run.lease, verdict: 'failed', code: 'bad_result', error: `the result is no JSON: ${(e as Error).message}` });
    }
    this.verdicts.push({ run, body });
    this.wake();
  }

  /** Sends verdicts in batches until done. */
  private async record(done: () => boolean) {
    let failures = 0, most = MOST;
    while (!done()) {
      if (this.verdicts.length === 0) {
        await this.until(() => this.verdicts.length > 0 || done(), 60_000);
        if (!this.stopping) await sleep(GATHER); // for more verdicts
        continue;
      }
      let size = 0, n = 0;
      while (n < this.verdicts.length && n < most && (n === 0 || size + this.verdicts[n]!.body.length < LARGEST)) size += this.verdicts[n++]!.body.length;
      let part = this.verdicts.slice(0, n), away: typeof part = [];
      try {
        const answer = await this.call('ack', `{"jobs":[${part.map((v) => v.body).join(',')}]}`, 15_000);
        away = part.filter((_, i) => answer.jobs[i].state === 'away'); // their part of the store does not reply
        part = part.filter((v) => !away.includes(v));
        most = MOST;
        failures = 0;
      } catch (e) {
        const { status, message } = e as CallError;
        if (status !== 413 && status !== 422 && status !== 400) {
          await this.pause(e as CallError, ++failures);
          continue;
        }
        if (n > 1) {
          most = n >> 1; // one of them is refused
          continue;
        }
        most = MOST;
        this.o.log(`anteroom: the verdict of job ${part[0]!.run.job.group}/${part[0]!.run.job.id} is refused; the job runs again: ${message}`);
      }
      this.verdicts.splice(0, n);
      this.verdicts.push(...away);
      for (const { run } of part) this.held.delete(run.lease);
      this.wake();
    }
  }

  /** Extends the leases of all jobs whose verdict is not recorded, each third of a lease, until done. */
  private async extend(done: () => boolean) {
    let next = Date.now() + this.leaseMs / 3, failures = 0;
    while (!done()) {
      await this.until(done, Math.min(1000, Math.max(10, next - Date.now()), this.leaseMs / 6));
      if (Date.now() < next && failures === 0) {
        next = Math.min(next, Date.now() + this.leaseMs / 3);
        continue;
      }
      const runs = [...this.held.values()];
      try {
        for (let at = 0; at < runs.length; at += MOST) {
          const part = runs.slice(at, at + MOST);
          this.extended(part, await this.call('extend', JSON.stringify({ leases: part.map((run) => run.lease) }), 10_000));
        }
        failures = 0;
        next = Date.now() + this.leaseMs / 3;
      } catch (e) {
        if (!done()) await this.pause(e as CallError, ++failures);
      }
    }
  }

  private extended(runs: Run[], answer: any) {
    runs.forEach((run, i) => {
      const { state } = answer.jobs[i];
      if (run.ended || state === 'held') return; // the verdict of a run that has ended may have ended its lease
      if (state === 'cancelled') run.cancelled = true;
      if (state === 'lost') {
        run.lost = true;
        this.held.delete(run.lease);
        this.o.log(`anteroom: the lease of job ${run.job.group}/${run.job.id} is lost; another worker runs it`);
      }
      run.control.abort(new Error(state === 'lost' ? 'the lease is lost' : 'the job is cancelled'));
    });
  }
}
