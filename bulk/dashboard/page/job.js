// One job of the shown group, found by its id.

const jobPart = $('#job'), jobField = $('#job [name=job]'), jobError = $('#job .error');
let jobID = '', job, jobBusy = false;
const jobMayChange = j => ['pending', 'waiting', 'running'].includes(j.status);
const jobPath = (id, rest = '') => of(shown.id, '/jobs/' + encodeURIComponent(id) + rest);

// findJob shows another job; '' shows none.
function findJob(id) {
  jobID = id;
  showJob();
  set($('.again', jobPart), '');
  set(jobError, '');
}
async function readJob(signal) {
  const id = jobID;
  if (!id || job && !jobMayChange(job)) return;
  try {
    const answer = await ask(jobPath(id), {signal});
    if (id === jobID && !signal.aborted) showJob(answer);
  } catch (e) {
    if (![404, 422].includes(e.status)) throw e;
    if (id !== jobID || signal.aborted) return;
    findJob('');
    set(jobError, e.message);
  }
}
function showJob(j) {
  job = j;
  $('.stack', jobPart).hidden = !j;
  if (!j) return;
  const result = j.result === undefined ? j.result_base64 : JSON.stringify(j.result, null, 2);
  tags($('.tags', jobPart), [[j.status, {running: 'on', succeeded: 'good', failed: 'bad', dead: 'bad'}[j.status]], ...(j.cancelling ? [['stopping', 'warn']] : [])]);
  const facts = Object.entries({Job: j.id, Type: j.type, Attempts: whole(j.attempts), Created: j.created_at && moment(j.created_at), Started: j.started_at && moment(j.started_at),
    Duration: j.duration_ms !== undefined && (j.duration_ms < 1000 ? j.duration_ms + ' ms' : span(j.duration_ms / 1000)), Ended: j.at && moment(j.at),
    'Next try': j.next_at && moment(j.next_at), Process: j.process, Code: j.code, Error: j.error}).filter(f => f[1]);
  const list = $('dl', jobPart), text = JSON.stringify(facts);
  if (list.dataset.text !== text) list.replaceChildren(...facts.flatMap(([name, value]) => [make('dt', name), make('dd', value)]));
  list.dataset.text = text;
  $('pre', jobPart).hidden = !result;
  set($('pre', jobPart), result || '');
  $('[data-j=cancel]', jobPart).hidden = !jobMayChange(j) || j.cancelling;
  $('[data-j=retry]', jobPart).hidden = !['waiting', 'failed', 'dead'].includes(j.status);
}
$('form', jobPart).addEventListener('submit', e => {
  e.preventDefault();
  const id = jobField.value.trim();
  findJob(id);
  // The address names the job, for a reload and for others.
  history.replaceState(null, '', '#' + jobAddress(shown.id, id));
  if (!id) return jobField.focus();
  wake();
});
const jobAddress = (group, id) => 'group/' + encodeURIComponent(group) + (id && '/' + encodeURIComponent(id));

async function actOnJob(verb) {
  const here = view, group = shown.id, {id} = job, path = jobPath(id, '/' + verb);
  if (verb === 'cancel' && !await confirmed('Cancel job ' + id + '?', job.status === 'running' ? 'The job runs: it is asked to stop, and may succeed or fail first.' :
    'The job has not started and will not start.', 'Cancel the job')) return;
  try {
    const now = await ask(path, {method: 'POST'});
    const again = now.group && now.group !== group;
    say(id + (verb === 'cancel' ? now.status === 'running' ? ' is asked to stop.' : ' is cancelled.' : again ? ' runs again in ' + now.group + '.' : ' may start now.'));
    if (here !== view || id !== jobID) return;
    set(jobError, '');
    if (again) {
      const link = make('a', now.group);
      link.href = '#' + jobAddress(now.group, id);
      $('.again', jobPart).replaceChildren('It runs again in ', link, '.');
      $('[data-j=retry]', jobPart).hidden = true;
    } else showJob(now);
  } catch (e) {
    if (e.status === 401) return askForToken(e.message);
    if (here === view && id === jobID) set(jobError, e.message);
    else say(id + ': ' + e.message, true);
  }
  wake();
}
for (const b of jobPart.querySelectorAll('[data-j]')) {
  b.addEventListener('click', async () => {
    if (jobBusy) return;
    jobBusy = true;
    await actOnJob(b.dataset.j);
    jobBusy = false;
    if (b.hidden && [b, document.body].includes(document.activeElement)) jobField.focus();
  });
}
