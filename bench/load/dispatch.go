package load

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// schedule hands out jobs when they are due. The workers take turns to wait for the next one, so that a hundred thousand
// visitors need neither a goroutine nor a timer each. All times are since the start.
type schedule struct {
	turn    chan struct{} // held by the worker that waits
	mu      sync.Mutex
	start   time.Time
	pending agenda
	wake    chan struct{} // the first time may have changed; capacity 1
	// next returns the job that is due, or -1 and how long to wait before the next call, or errOver. mu is held.
	next func(now time.Duration) (job int, wait time.Duration, err error)
}

// errOver is returned by next if no job will be due.
var errOver = errors.New("no more jobs")

// newSchedule returns a schedule of the jobs that are added to it.
func newSchedule() *schedule {
	s := &schedule{start: time.Now(), turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	s.next = s.fromAgenda
	return s
}

func (s *schedule) fromAgenda(now time.Duration) (job int, wait time.Duration, err error) {
	if len(s.pending) == 0 {
		return -1, time.Hour, nil
	}
	if wait = s.pending[0].due - now; wait > 0 {
		return -1, wait, nil
	}
	return heap.Pop(&s.pending).(appointment).job, 0, nil
}

// add makes a job due.
func (s *schedule) add(job int, due time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(job, due)
}

// push makes a job due. mu is held.
func (s *schedule) push(job int, due time.Duration) {
	heap.Push(&s.pending, appointment{due, job})
	if s.pending[0].job == job {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// run lets workers do the jobs until next returns errOver or ctx ends. Jobs that have begun are waited for.
func (s *schedule) run(ctx context.Context, workers int, do func(job int)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			timer := time.NewTimer(0)
			defer timer.Stop()
			for {
				s.turn <- struct{}{}
				job := s.await(ctx, timer)
				<-s.turn
				if job < 0 {
					return
				}
				do(job)
			}
		})
	}
	all.Wait()
}

// await returns the next job when it is due, or -1 if there is none.
func (s *schedule) await(ctx context.Context, timer *time.Timer) int {
	for ctx.Err() == nil {
		s.mu.Lock()
		job, wait, err := s.next(time.Since(s.start))
		s.mu.Unlock()
		if job >= 0 || err != nil {
			return job
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	return -1
}

type appointment struct {
	due time.Duration
	job int
}

// agenda is a heap of jobs by the times when they are due.
type agenda []appointment

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due < a[j].due }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}
