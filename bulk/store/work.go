package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxPull bounds the jobs of one Pull and so the duration of its script.
const MaxPull = 500

// VisitBytes bounds the payloads of one Pull and the outcomes of one page, except for a larger first one.
const VisitBytes = 1 << 20

// Pull takes up to want jobs (at most 500, of VisitBytes together) through the fair queue and the limits, leased to
// this process. types are the types that it runs; without any it runs every type. Jobs of other types are held back
// for a process that runs them.
func (s queueStore) Pull(ctx context.Context, want int, types ...string) (Pulled, error) {
	if want > 0 {
		s.types.pulled(types)
	}
	return s.pull(ctx, s.o.Process, want, types)
}

// PullFor is Pull for a worker outside this process. owner is a word that Running and Job return up to its first #, and
// that Reclaim takes. The types are served for a while.
func (s queueStore) PullFor(ctx context.Context, owner string, want int, types ...string) (Pulled, error) {
	s.types.asked(types, s.clock())
	return s.pull(ctx, owner, want, types)
}

// Serve reports that workers outside this process go on serving types, as PullFor does.
func (s queueStore) Serve(types []string) { s.types.asked(types, s.clock()) }

func (s queueStore) pull(ctx context.Context, owner string, want int, types []string) (Pulled, error) {
	want = min(want, MaxPull)
	if want < 1 {
		return Pulled{}, nil
	}
	kinds := strings.Join(types, " ")
	if s.conf.Load().Gating {
		r, err := s.run(ctx, "jobs_pull", want, owner, kinds, *s.limits.Load())
		if err != nil {
			return Pulled{}, err
		}
		return s.pulled(r), nil
	}
	filled, err := s.run(ctx, "ready_fill", want, max(want, fillBatch), kinds, *s.limits.Load())
	if err != nil {
		return Pulled{}, err
	}
	s.noteOrder(filled.int(4))
	for i := 5; i < len(filled); i++ {
		s.refused(duration(filled.int(i)))
	}
	r, err := s.run(ctx, "ready_take", want, owner, kinds, *s.limits.Load())
	if err != nil {
		return Pulled{}, err
	}
	p := s.leased(r)
	p.Fetched, p.ToReady, p.ToNonReady = filled.int(0), filled.int(1), filled.int(2)
	p.Next = duration(filled.int(3))
	if p.Fetched > 0 {
		p.More = true
	}
	return p, nil
}

// pulled parses the reply of jobs_pull.
func (s queueStore) pulled(r reply) Pulled {
	s.noteOrder(r.int(3))
	p := s.leased(r)
	p.Fetched = int64(len(p.Jobs))
	return p
}

// AckPull is Ack and then Pull, in one step except in the classic pipeline. After an error either may have taken effect.
func (s queueStore) AckPull(ctx context.Context, acks []Ack, want int, types ...string) ([]AckState, Pulled, error) {
	want = min(want, MaxPull)
	if len(acks) == 0 || want < 1 || !s.conf.Load().Gating {
		states, err := s.Ack(ctx, acks)
		if err != nil {
			return nil, Pulled{}, err
		}
		p, err := s.Pull(ctx, want, types...)
		return states, p, err
	}
	s.types.pulled(types)
	args := append(make([]any, 0, len(acks)+20), want, s.o.Process, strings.Join(types, " "), *s.limits.Load())
	r, err := s.run(ctx, "jobs_next", ackArgs(args, acks)...)
	if err != nil {
		return nil, Pulled{}, err
	}
	return s.acked(list(r.at(0)), len(acks)), s.pulled(list(r.at(1))), nil
}

// noteOrder logs that a pull has changed the order of the fair queue to this process's policy.
func (s queueStore) noteOrder(changed int64) {
	if changed == 1 {
		c := s.conf.Load()
		s.o.Log.Info("the fair queue now has the order of this process's policy; while processes have different policies it changes once a minute; give all processes the same fair_queue",
			"fair_queue.policy", c.Policy, "fair_queue.strict", c.Strict)
	}
}

// reclaimBound is how many of the newest leases Reclaim reads.
const reclaimBound = 5000

// Reclaim returns jobs that are leased to this process and unknown to it: those of a Pull whose reply was lost. known
// are the fences of its known jobs. No Pull of this process may be in progress.
func (s queueStore) Reclaim(ctx context.Context, known []int64) (int64, error) {
	return s.ReclaimFrom(ctx, s.o.Process, known)
}

// ReclaimFrom is Reclaim for the owner of PullFor.
func (s queueStore) ReclaimFrom(ctx context.Context, owner string, known []int64) (int64, error) {
	args := make([]any, 0, 2+len(known))
	args = append(args, owner, reclaimBound)
	for _, fence := range known {
		args = append(args, fence)
	}
	r, err := s.run(ctx, "leases_reclaim", args...)
	return r.int(0), err
}

// fillBatch is how many jobs the classic pipeline checks in one step.
const fillBatch = 50

// leased parses the reply of jobs_pull and ready_take.
func (s queueStore) leased(r reply) Pulled {
	p := Pulled{Next: duration(max(r.int(0), -r.int(0))), Limited: r.int(0) < 0, More: r.int(1) == 1, Dropped: r.int(2)}
	fence, until := r.int(4), time.Now().Add(s.conf.Load().Lease)
	p.Jobs, p.Held = make([]Leased, 0, len(r)/2), heldBy(r.string(5))
	for i := 6; i+5 < len(r); {
		of := Leased{Level: levelOf(r.int(i + 3)), Waited: -1, Group: r.string(i), Tenant: r.string(i + 1), Type: r.string(i + 2), Attempt: 1, Until: until}
		of.Root = of.Group
		if group, redrive := strings.CutSuffix(of.Group, "*"); redrive {
			of.Group, of.Root = group, rootOf(group)
		}
		if wait := r.int(i + 4); wait != 0 {
			p.Held = append(p.Held, Hold{Group: of.Group, For: heldFor(wait)})
		}
		n := int(r.int(i + 5))
		for i += 6; n > 0 && i+1 < len(r); n, i, fence = n-1, i+2, fence+1 {
			j := of
			j.Key, j.Fence = r.string(i), fence
			_, j.ID, _ = strings.Cut(j.Key, "/")
			j.read(r.string(i + 1))
			p.Jobs = append(p.Jobs, j)
		}
	}
	return p
}

// heldBy parses the words of held in the reply of jobs_pull.
func heldBy(words string) (list []Hold) {
	fields := strings.Fields(words)
	for i := 0; i+1 < len(fields); i += 2 {
		jobType, tenant, _ := strings.Cut(fields[i], "@")
		list = append(list, Hold{Type: jobType, Tenant: tenant, For: heldFor(asInt(fields[i+1]))})
	}
	return list
}

// heldFor returns how long a limit lets no further job start: µs, or -1 until an event.
func heldFor(us int64) time.Duration {
	if us < 0 {
		return UntilEvent
	}
	return duration(us)
}

// levelOf returns the level of its number in the group's record.
func levelOf(n int64) Level { return []Level{"", High, Normal, Low}[min(max(n, 0), 3)] }

// read parses a job's record, read_head of lua/lib/bulkjobs.lua, after its attempt and crashes if it has run before.
func (j *Leased) read(record string) {
	head, payload, _ := strings.Cut(record, "\n")
	ran := !strings.HasPrefix(head, "P")
	if ran {
		attempt, rest, _ := strings.Cut(head, " ")
		crashes, rest, _ := strings.Cut(rest, " ")
		j.Attempt, j.Crashes, head = asInt(attempt), asInt(crashes), rest
	}
	cost, rest, _ := strings.Cut(strings.TrimPrefix(head, "P"), " ")
	kind, rest, _ := strings.Cut(rest, " ")
	j.Trace = traceOf(" " + rest)
	if created, _, _ := strings.Cut(rest, " "); !ran && asInt(created) > 0 { // a fence is at least the time of the start
		j.Waited = max(0, time.Duration(j.Fence)*time.Microsecond-time.Duration(asInt(created))*time.Millisecond)
	}
	if kind != "-" {
		j.Type = kind
	}
	j.Cost, j.Payload = asInt(cost), []byte(payload)
}

// Wait blocks until an event of the queue, for at most d and half of the store's timeout. It holds a connection
// meanwhile.
func (s queueStore) Wait(ctx context.Context, d time.Duration) error {
	_, err := s.Listen(ctx, d)
	return err
}

// Listen is Wait, and reports whether there was an event.
func (s queueStore) Listen(ctx context.Context, d time.Duration) (event bool, err error) {
	d = min(d, s.o.Timeout/2)
	if d < time.Millisecond {
		d = time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, d+s.o.Timeout)
	defer cancel()
	// Redis accepts fractions of a second; BLPop of the client library does not.
	seconds := strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
	err = s.o.Client.Do(ctx, "BLPOP", s.keys[keyBell], seconds).Err()
	if err != nil && err != redis.Nil { //nolint:errorlint // go-redis returns it unwrapped
		return false, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return err == nil, nil
}

// Ring wakes one process that waits, or the next one.
func (s queueStore) Ring(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err := s.o.Client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, s.keys[keyBell], 1)
		p.LTrim(ctx, s.keys[keyBell], 0, 0)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// Types returns the types of jobs, by their keys; "" for one that has ended or is unknown.
func (s queueStore) Types(ctx context.Context, keys []string) ([]string, error) {
	args := make([]any, len(keys))
	for i := range keys {
		args[i] = keys[i]
	}
	r, err := s.run(ctx, "jobs_types", args...)
	if err != nil {
		return nil, err
	}
	types := make([]string, len(keys))
	for i := range types {
		types[i] = r.string(i)
	}
	return types, nil
}

// Ack ends runs, all of them in one step. It returns one state for each.
func (s queueStore) Ack(ctx context.Context, acks []Ack) ([]AckState, error) {
	if len(acks) == 0 {
		return nil, nil
	}
	r, err := s.run(ctx, "jobs_ack", ackArgs(make([]any, 0, len(acks)+16), acks)...)
	if err != nil {
		return nil, err
	}
	return s.acked(r, len(acks)), nil
}

// acked parses the reply of jobs_ack to n acks.
func (s queueStore) acked(r reply, n int) []AckState {
	s.concluded(r, 1)
	states, wait := make([]AckState, n), 3
	codes := r.string(0)
	for i := range min(n, len(codes)) {
		states[i] = ackStates[codes[i]]
		if states[i] == AckThrottled {
			s.refused(duration(r.int(wait)))
			wait++
		}
	}
	return states
}

// ackArgs appends the arguments of acks: lua/lib/bulkacks.lua.
func ackArgs(args []any, acks []Ack) []any {
	numbers := make([]byte, 0, 5+2*9*len(acks))
	numbers = binary.BigEndian.AppendUint32(append(numbers, 0xdd), uint32(2*len(acks)))
	for i := range acks {
		numbers = binary.BigEndian.AppendUint64(append(numbers, 0xcf), uint64(max(0, acks[i].Fence)))
		numbers = binary.BigEndian.AppendUint64(append(numbers, 0xcf), uint64(max(0, acks[i].Took.Microseconds())))
	}
	args = append(args, numbers)
	for i := range acks {
		args = append(args, acks[i].Key)
	}
	for i := range acks {
		a := &acks[i]
		if a.Verdict == Done && len(a.Result) == 0 {
			continue
		}
		if a.Verdict == Done {
			args = append(args, i+1, "", a.Result)
			continue
		}
		args = append(args, i+1, fmt.Sprintf("%s %s %d %d%s", a.Verdict, codeWord(cmp.Or(a.Code, "error")),
			max(0, a.After.Microseconds()), max(0, a.Retries), a.breakerWords()), a.Error)
	}
	return args
}

// refused reports the wait of a refused job.
func (s *shard) refused(wait time.Duration) {
	if s.o.Refused != nil {
		s.o.Refused(wait)
	}
}

// codeWord returns a code that fits into a record: [a-z0-9_.], at most 64.
func codeWord(code string) string {
	if len(code) > 64 {
		code = code[:64]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '.':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, code)
}

// Lease identifies a running job for Renew.
type Lease struct {
	Key   string
	Fence int64
}

// LeaseState is the result of renewing a lease.
type LeaseState int8

// The results of renewing a lease.
const (
	LeaseLost   LeaseState = iota // the job runs elsewhere, or will: stop it here
	LeaseHeld                     // extended
	LeaseCalled                   // extended, and the job is cancelled: stop it and send its ack
)

// Renew extends leases. It returns one state for each.
func (s queueStore) Renew(ctx context.Context, leases []Lease) ([]LeaseState, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 2*len(leases))
	for _, l := range leases {
		args = append(args, l.Key, l.Fence)
	}
	r, err := s.run(ctx, "leases_renew", args...)
	if err != nil {
		return nil, err
	}
	states := make([]LeaseState, len(leases))
	for i := range leases {
		states[i] = LeaseState(r.int(i))
	}
	return states, nil
}

// Dispatch does one bounded round: it returns due jobs to their groups, recovers orphans and opens gates. After a gap
// of a third of a lease between rounds, no lease ends for another third. If this process has existed throughout the
// gap, or the server has been replaced, no lease ends for a full lease. Rounds of the keeper also open gates
// that another configuration has closed; a process that never called Keep counts as the keeper.
func (s queueStore) Dispatch(ctx context.Context) (Dispatch, error) {
	alive := s.rounds.alive(s.clock())
	id, err := s.runID(ctx)
	var r reply
	if err == nil {
		r, err = s.run(ctx, "queue_dispatch", id, s.conf.Load().DispatchBatch, alive, s.types.due(s.clock()), flag(!s.follows.Load()))
	}
	s.rounds.ended(err)
	if err != nil {
		return Dispatch{}, err
	}
	d := Dispatch{Moved: r.int(0), Recovered: r.int(1), Dead: r.int(2), Skipped: r.int(3), Woken: r.int(4), More: r.int(6) == 1}
	if next := r.int(5); next >= 0 {
		d.Next = max(duration(next), time.Microsecond)
	}
	s.concluded(r, 7)
	for i := 9; i < len(r); i++ {
		d.Tend = append(d.Tend, r.string(i))
	}
	return d, nil
}

// runID returns the id of the running server that holds the shard: a new one means a restart or failover. It is empty
// if the store's user may not ask.
func (s queueStore) runID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	node, err := s.master(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	info, err := node.Info(ctx, "server").Result()
	if err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
		s.noInfo.Do(func() {
			s.o.Log.Warn("the store's user may not run INFO: a restart of the store is detected by the pause alone; grant +info")
		})
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id, nil
}

// dispatching tracks since when this process dispatches.
type dispatching struct {
	mu    sync.Mutex
	first int64 // µs
	tried bool  // the last round failed: the store was down
}

// alive returns for how long this process has dispatched, in microseconds. A process that has seen an outage has
// existed throughout it.
func (r *dispatching) alive(now int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == 0 {
		r.first = now
	}
	if r.tried {
		return math.MaxInt32 * int64(time.Second/time.Microsecond)
	}
	return now - r.first
}

func (r *dispatching) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = err != nil
}

// clock returns this process's time in microseconds; in tests it follows Now.
func (s *shard) clock() int64 {
	if s.o.Now != nil {
		return s.o.Now()
	}
	return int64(time.Since(s.start)/time.Microsecond) + 1
}

// served keeps the types that this process pulls, and those that workers outside of it asked for recently. Dispatch
// reports them to the store.
type served struct {
	mu       sync.Mutex
	types    map[string]int64 // when a worker last asked for it, µs; ownType: this process pulls it
	reported int64            // µs; 0: not yet
}

const (
	// reportEvery is well below the minute after which scripts consider a type as no longer served.
	reportEvery = 10 * time.Second
	// askedFor is how long a type is served after a worker asked for it.
	askedFor = 30 * time.Second
	ownType  = math.MaxInt64
)

func (s *served) pulled(types []string) { s.note(types, ownType) }

// asked notes that a worker outside this process serves types.
func (s *served) asked(types []string, now int64) { s.note(types, now) }

func (s *served) note(types []string, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range types {
		last, known := s.types[t]
		if s.types == nil {
			s.types = map[string]int64{}
		}
		if !known {
			s.reported = 0
		}
		s.types[t] = max(last, at)
	}
}

// due returns the types, separated by blanks, when a report is due, otherwise "".
func (s *served) due(now int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reported > 0 && now-s.reported < reportEvery.Microseconds() {
		return ""
	}
	maps.DeleteFunc(s.types, func(_ string, at int64) bool { return at != ownType && now-at > askedFor.Microseconds() })
	if len(s.types) == 0 {
		return ""
	}
	s.reported = now
	return strings.Join(slices.Sorted(maps.Keys(s.types)), " ")
}
