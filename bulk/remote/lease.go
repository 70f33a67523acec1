package remote

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// Request is a request for jobs.
type Request struct {
	Worker string   // name of the worker, different from those of all others; no blanks and no #
	Host   string   // address of the worker
	Holder string   // name of the worker's token, whose requests Lost lists; "": the operators' or none
	Types  []string // types that the worker runs, at least one
	Max    int      // largest number of jobs, up to store.MaxPull; 0: none, the worker only reports that it serves the types
	Wait   time.Duration
	ID     string // of this request, unique among those of the worker; "": a later Lost cannot list it
	// Lost has the ids of earlier requests to which the worker received no response. Their jobs return to their groups.
	Lost []string
	Stop <-chan struct{} // ends the wait; may be nil
}

// Job is a leased job.
type Job struct {
	store.Leased
	Handle Handle
}

var (
	// ErrBusy is returned when there is no job and Options.Waiting requests already wait for jobs.
	ErrBusy = errors.New("too many requests wait for jobs")
	// ErrStopping is returned from the end of Run's context on.
	ErrStopping = errors.New("no more jobs are leased here")
)

// Lease leases jobs. If there are none, it waits for some. send passes the jobs to the worker; if send fails, or ctx ends
// before it is called, the jobs return to their groups. send is called once unless Lease returns an error.
func (b *Broker) Lease(ctx context.Context, r Request, send func(jobs []Job) error) error {
	if !b.begin() {
		return ErrStopping
	}
	defer b.requests.Done()
	defer b.presence.enter(&r, time.Now())()
	for _, id := range r.Lost {
		if err := b.reclaimLost(ctx, r.owner(id)); err != nil {
			return err
		}
	}
	if r.Max == 0 {
		return send(nil)
	}
	id := r.ID
	if id == "" {
		id = randomID()
	}
	owner := r.owner(id)
	jobs, err := b.await(ctx, &r, owner)
	if err != nil {
		return err
	}
	if ctx.Err() == nil {
		if err = send(jobs); err == nil {
			return nil
		}
	}
	b.giveBack(context.WithoutCancel(ctx), owner, jobs)
	return err
}

// owner returns the owner of the leases of one of the worker's requests. Other tokens cannot name it.
func (r *Request) owner(request string) string {
	if r.Holder == "" {
		return r.Worker + "#" + request
	}
	sum := sha256.Sum256([]byte(r.Holder)) // a name may have blanks
	return r.Worker + "#" + hex.EncodeToString(sum[:4]) + "#" + request
}

func randomID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// await pulls until there are jobs or the wait is over.
func (b *Broker) await(ctx context.Context, r *Request, owner string) ([]Job, error) {
	until := time.Now().Add(r.Wait)
	place := b.parking.enter(r.Types)
	defer place.leave()
	for first := true; ; first = false {
		place.pull()
		// The calls outlive ctx, so that the jobs that they lease can be returned.
		found, err := b.pull(context.WithoutCancel(ctx), r, owner, place, first)
		if err != nil {
			place.failed()
			return nil, err
		}
		place.pulled(found)
		if len(found.jobs) > 0 {
			return found.jobs, nil
		}
		again, err := place.wait(ctx, r.Stop, until)
		if !again {
			return nil, err
		}
	}
}

// giveBack returns jobs to their groups that the worker has not received.
func (b *Broker) giveBack(ctx context.Context, owner string, jobs []Job) {
	for n, part := range byShard(len(jobs), func(i int) int { return jobs[i].Handle.Shard }) {
		acks := make([]store.Ack, len(part))
		for k, i := range part {
			acks[k] = store.Ack{Key: jobs[i].Key, Fence: jobs[i].Fence, Verdict: store.Returned}
		}
		states, err := b.shards[n].leases.Ack(ctx, acks)
		if err != nil {
			b.o.Log.Warn("cannot return jobs whose worker has disconnected; trying again", "owner", owner, "jobs", len(part), "error", err)
			b.shards[n].lost.add(owner)
			continue
		}
		for k, state := range states {
			b.o.Engine.Ended(jobs[part[k]].Type, &acks[k], state)
		}
	}
}

const (
	// reclaimEvery is how often the jobs of lost pulls are returned.
	reclaimEvery = time.Second
	// mostLost bounds the owners that are remembered during an outage of the store. The jobs of others run again when
	// their leases end.
	mostLost = 1000
)

// lostPulls has the owners of pulls that the store has not replied to: their jobs may be leased, and no worker has them.
type lostPulls struct {
	mu     sync.Mutex
	owners []string
}

func (l *lostPulls) add(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owners) < mostLost && !slices.Contains(l.owners, owner) {
		l.owners = append(l.owners, owner)
	}
}

// any reports whether pulls of the shard are lost: it does not reply, or did not a moment ago.
func (l *lostPulls) any() bool {
	_, any := l.first()
	return any
}

func (l *lostPulls) first() (owner string, any bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owners) == 0 {
		return "", false
	}
	return l.owners[0], true
}

func (l *lostPulls) done(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners = slices.DeleteFunc(l.owners, func(o string) bool { return o == owner })
}

// reclaim returns the jobs of a shard's lost pulls to their groups. It returns false if the shard does not reply.
func (b *Broker) reclaim(ctx context.Context, s *shard) bool {
	for ctx.Err() == nil {
		owner, more := s.lost.first()
		if !more {
			return true
		}
		n, err := s.queue.ReclaimFrom(ctx, owner, nil)
		if err != nil {
			return false // tried again in the next round
		}
		s.lost.done(owner)
		if n > 0 {
			b.o.Log.Info("returned jobs whose worker never received them", "owner", owner, "jobs", n)
		}
	}
	return false
}
