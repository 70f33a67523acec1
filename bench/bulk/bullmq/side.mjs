// BullMQ as a program for bench/bulk. Each line of standard input is a command, each line of standard output a reply.
//
//   usage: node side.mjs HOST PORT QUEUE PAYLOAD
//
//   add N     adds N jobs with addBulk          added N
//   work N    starts a worker of concurrency N  working
//   hold N    the same; its jobs never end      working
//   rest      closes the worker                 resting
//
// While a worker runs, "ran N" reports that N more jobs have started. The program ends with its standard input, so it does not
// outlive the program that started it.
import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';

const [host, port, name, payload] = process.argv.slice(2);
const connection = { host, port: Number(port) };
const job = { name: 'noop', data: JSON.parse(payload), opts: { removeOnComplete: true } };
const mostInBulk = 1000; // jobs of a call: more of them only take more memory

const reply = (text) => process.stdout.write(text + '\n');
const queue = new Queue(name, { connection });
let worker;
let ran = 0;

// started counts a job. The jobs that start in one turn of the event loop share a line.
function started() {
  if (ran++ === 0) {
    setImmediate(() => {
      reply(`ran ${ran}`);
      ran = 0;
    });
  }
}

async function work(concurrency, ends) {
  worker = new Worker(name, async () => {
    started();
    if (!ends) await new Promise(() => {});
  }, { connection, concurrency });
  worker.on('error', (err) => console.error(err));
  await worker.waitUntilReady();
  reply('working');
}

const commands = {
  async add(n) {
    for (let left = n; left > 0; left -= mostInBulk) {
      await queue.addBulk(Array(Math.min(left, mostInBulk)).fill(job));
    }
    reply(`added ${n}`);
  },
  work: (n) => work(n, true),
  hold: (n) => work(n, false),
  async rest() {
    await worker.close();
    reply('resting');
  },
};

await queue.waitUntilReady();
for await (const line of createInterface({ input: process.stdin })) {
  const [command, n] = line.split(' ');
  await commands[command](Number(n));
}
process.exit(0);
