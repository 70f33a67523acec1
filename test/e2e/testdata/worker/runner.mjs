// Runs the jobs of the tests with the SDK for TypeScript. It prints a line for each start.
const [file, url, token, name, parallel, grace] = process.argv.slice(2);
const { BulkWorker, Failure } = await import(file);

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); reject(signal.reason); });
});
const refused = new Set();
const worker = new BulkWorker({ url, token, name, parallel: +parallel, grace: +grace, wait: 5, timeout: 20 });

async function one(job) {
  const { do: what, ms } = job.payload;
  console.log('start', job.group, job.id, job.attempt, job.fence);
  switch (what) {
    case 'ok': return { id: job.id, key: job.idempotencyKey };
    case 'trace': return job.traceparent + ' ' + job.tracestate;
    case 'sleep': await sleep(ms, job.signal); return { slept: ms };
    case 'hang': await sleep(1e6, job.signal); return 'it was not stopped';
    case 'flaky': if (job.attempt === 1) throw new Failure('the first try fails', { code: 'flaky' }); return 'ok';
    case 'failed': throw new Failure('no such image', { verdict: 'failed', code: 'no_such_image' });
    case 'busy': if (!refused.has(job.id)) { refused.add(job.id); throw new Failure('not now', { verdict: 'busy', retryAfter: 0.05 }); } return 'ok';
    case 'crash': throw new TypeError('something is undefined');
    case 'no_json': return { n: 1n };
  }
}
worker.handle('one', one);
worker.handleBatch('many', { size: 5, wait: 0.2 }, (jobs) => {
  console.log('batch', jobs[0].group, new Set(jobs.map((j) => j.group)).size, jobs.length);
  return jobs.filter((j) => j.payload.do !== 'missing').map((j) => (j.payload.do === 'failed' ? new Failure('no', { verdict: 'failed', code: 'bad' }) : { id: j.id }));
});
process.once('SIGTERM', () => worker.stop());
await worker.run();
console.log('stopped');
process.exit(0); // what hangs keeps no process
