package bulk

import (
	"cmp"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	// aheadFor is how long jobs that were pulled ahead are expected to wait for a worker.
	aheadFor = 5 * time.Millisecond
	// aheadMost is the mean run time up to which jobs are pulled ahead: a pull takes about as long.
	aheadMost = time.Millisecond
	// aheadLongest is how long such a job waits before it is given back, because the jobs that run take longer than the ones before.
	aheadLongest = 10 * aheadFor
	// runsAveraged is over how many runs the mean is taken.
	runsAveraged = 64
)

// ahead has the jobs that were pulled for workers that are about to be free. A pull of 200 jobs costs the store little more than a
// few pulls of ten, so a process with few workers and short jobs leases more jobs than it has workers. Jobs that take longer than
// aheadMost are never pulled ahead, nor is any job before some hundred runs have shown how long they take. The fields are guarded by
// the mutex of slots.
type ahead struct {
	off     bool
	jobs    []aheadJob
	pulling int           // jobs for which a pull is in progress
	mean    time.Duration // recent mean run time; at first far above aheadMost
	timer   *time.Timer   // gives the first job back
}

// unknownRun is the mean run time before any job has run.
const unknownRun = time.Second

// aheadJob is a leased job that waits for a worker.
type aheadJob struct {
	work   *workers // of its lane
	leased store.Leased
	known  *run      // stands for it in the registry until it starts
	since  time.Time // when its pull began
	at     time.Time // when it began to wait
}

// start starts the job, unless a renewal has found meanwhile that its lease is lost or that it is cancelled: its run would not learn that
// before the next renewal.
func (j *aheadJob) start() {
	if j.known.lost.Load() || j.known.called.Load() {
		j.giveBack()
		return
	}
	j.work.start(j.leased, j.since)
	j.work.wg.Done()
}

func (j *aheadJob) giveBack() {
	j.work.giveBackRun(j.leased, j.since, j.known.lost.Load())
	j.work.wg.Done()
}

// later starts a job when a worker is free. The caller has reserved its place with holdAhead.
func (w *workers) later(l store.Leased, since time.Time) {
	known := &run{leased: l, renewed: since, cancel: func() {}}
	w.runs.add(known) // so that Reclaim leaves it; its run replaces it
	w.wg.Add(1)
	w.pool.await(aheadJob{work: w, leased: l, known: known, since: since, at: time.Now()})
}

// crashedLast puts jobs that have crashed a process behind the others: if one crashes this process as well, no other job of its
// pull waits any more.
func crashedLast(jobs []store.Leased) {
	slices.SortStableFunc(jobs, func(a, b store.Leased) int { return cmp.Compare(min(a.Crashes, 1), min(b.Crashes, 1)) })
}

// holdAhead reserves places for up to most jobs beyond the free workers, and returns their number.
func (p *pool) holdAhead(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &p.ahead
	if a.off || a.mean > aheadMost {
		return 0
	}
	n := p.size * int(aheadFor/max(a.mean, time.Microsecond))
	room := p.size + p.window - p.occupied() - len(a.jobs) - a.pulling - p.unacked
	n = max(0, min(n, most, room))
	a.pulling += n
	return n
}

// dropAhead releases n reserved places.
func (p *pool) dropAhead(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead.pulling -= n
	p.wakeNext()
}

// occupied returns the number of workers that are not free. The caller has the lock.
func (s *slots) occupied() int { return s.active + s.held + max(0, s.givenUp-s.size) }

// await adds a job for the next free worker.
func (s *slots) await(j aheadJob) {
	defer s.startNext()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.ahead
	a.pulling--
	if a.jobs = append(a.jobs, j); a.timer == nil {
		a.timer = time.AfterFunc(aheadLongest, s.giveUpWaiting)
	}
}

// startNext starts waiting jobs while workers are free.
func (s *slots) startNext() {
	for {
		s.mu.Lock()
		a := &s.ahead
		if len(a.jobs) == 0 || s.occupied() >= s.size {
			s.mu.Unlock()
			return
		}
		j := s.takeWaiting(1)[0]
		s.mu.Unlock()
		j.start()
	}
}

// takeWaiting removes the first n waiting jobs, and reserves a worker for each, which may be more than there are. The caller has the
// lock, and starts the jobs or gives them back.
func (s *slots) takeWaiting(n int) []aheadJob {
	a := &s.ahead
	jobs := a.jobs[:n:n]
	if a.jobs = a.jobs[n:]; len(a.jobs) == 0 && a.timer != nil {
		a.timer.Stop()
		a.jobs, a.timer = nil, nil
	}
	s.held += n
	return jobs
}

// giveUpWaiting gives back the jobs that have waited for too long.
func (s *slots) giveUpWaiting() {
	s.mu.Lock()
	a, now := &s.ahead, time.Now()
	n := 0
	for n < len(a.jobs) && now.Sub(a.jobs[n].at) >= aheadLongest {
		n++
	}
	jobs := s.takeWaiting(n)
	if len(a.jobs) > 0 {
		a.timer = time.AfterFunc(max(time.Millisecond, aheadLongest-now.Sub(a.jobs[0].at)), s.giveUpWaiting)
	}
	s.mu.Unlock()
	for i := range jobs {
		jobs[i].giveBack()
	}
}

// giveBackWaiting gives all waiting jobs back. No lane pulls any more.
func (s *slots) giveBackWaiting() {
	s.mu.Lock()
	jobs := s.takeWaiting(len(s.ahead.jobs))
	s.mu.Unlock()
	for i := range jobs {
		jobs[i].giveBack()
	}
}

// ran records the run time of a job.
func (s *slots) ran(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.mean += (took - s.ahead.mean) / runsAveraged
}
