// The processes, the workers that pull jobs, and the longest running jobs.

const workers = $('#workers'), longest = 20;
// readWorkers polls only while the section is open, since the response is expensive for the store, and stops after a 404:
// an older version has no such path.
async function readWorkers(signal) {
  if (!workers.open && !workers.hidden) return;
  const now = await ask('workers?limit=' + longest, {signal}).catch(e => { if (e.status !== 404) throw e; });
  if (signal.aborted) return;
  workers.hidden = !now;
  if (now && workers.open) showWorkers(now);
}
function showWorkers({processes, running, jobs}) {
  const all = whole(running) + (running === 1 ? ' job runs' : ' jobs run');
  set($('.note', workers), !running ? 'No job runs.' : jobs.length < running ? all + '; these ' + jobs.length + ' run longest.' : all + '.');
  const processTable = $('table', workers), jobTable = $('.scroll', workers);
  processTable.hidden = !processes.length; // a tenant's token sees none
  jobTable.hidden = !jobs.length;
  rows($('tbody', processTable), processes, p => p.id, newProcess);
  rows($('tbody', jobTable), jobs, j => JSON.stringify([j.group, j.id, j.started_at]), newRunning);
}
function newProcess({id}) {
  const tr = copyOf('#process');
  tr.show = p => {
    put(tr, {id, host: p.host || '', busy: whole(p.busy) + (p.pulls ? '' : ' of ' + whole(p.workers)), types: p.types.join(', ') || 'any',
      started: p.started_at ? moment(p.started_at) : '–', seen: new Date(p.seen_at).toLocaleTimeString()});
    tags($('.tags', tr), [[p.state, p.state === 'draining' ? 'warn' : 'good'], ...(p.keeper ? [['keeper']] : []), ...(p.pulls ? [['pulls']] : [])]);
  };
  return tr;
}
function newRunning(j) {
  const tr = copyOf('#running'), link = $('a', tr);
  link.textContent = j.id;
  link.href = '#' + jobAddress(j.group, j.id);
  put(tr, {group: j.group, tenant: j.tenant, type: j.type, process: j.process, attempts: whole(j.attempts)});
  tr.show = () => put(tr, {time: span(Math.max(0, Math.round((Date.now() - Date.parse(j.started_at)) / 1000)))});
  return tr;
}
workers.addEventListener('toggle', wake);
