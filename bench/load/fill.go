package load

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// fillOptions describe how a room is filled.
type fillOptions struct {
	Tickets, Processors int
	Sample              int
	Hold, Timeout       time.Duration
	TokensOut           string
}

// ticket is one place of a fill.
type ticket struct {
	token string
	visitor.Place
	visitor.Presence
	due, sent, joined time.Duration // since the start
	highest           int64         // the highest order of a response before the join was sent
	position          int64         // the last one; 0: none
	failures          uint8         // in a row
	state             ticketState
}

// ticketState is the state of a ticket.
//
//	unjoined ──join──> signed ──first confirmed poll──> enrolled ──poll──> admitted
//	                     └──────────── any poll ─────────────┴──> lost
type ticketState uint8

const (
	unjoined ticketState = iota
	signed               // joined; the store does not hold it yet
	enrolled             // the store holds it
	admitted
	lost
)

// settleTime is the time until the snapshots of every gateway hold all tickets that have joined at another one. A position that
// was shown earlier may miss some of them.
const settleTime = 2 * time.Second

// fill fills a room and keeps it filled. schedule.mu guards everything but the tickets, which belong to the worker with the job.
type fill struct {
	o      fillOptions
	client *visitor.Client
	*schedule
	tickets []ticket
	born    int                          // tickets that have begun to join
	polled  int                          // polls since the last join
	pause   time.Duration                // no joins before this time: the gateway cannot be reached
	until   func(now time.Duration) bool // the end of the phase
	refused error                        // why further joins are pointless

	report     FillReport    // counts so far; finish completes the rest
	enrolledAt time.Duration // when the store held all tickets; 0: not yet
	progress   fillProgress
	newest     int64 // the highest order so far
	in         []verdict.Admission
	latency    struct{ joins, polls, sent *latency }
}

// fillProgress is the part of the progress line that is not in the report.
type fillProgress struct {
	polls   int64 // that were answered
	waiting int64 // in the room, as the gateway reports
}

func runFill(ctx context.Context, to visitor.Options, o fillOptions) FillReport {
	to.NoRetry = true
	f := &fill{o: o, client: rig.Must(visitor.New(to)), schedule: newSchedule(), tickets: make([]ticket, o.Tickets),
		report: FillReport{Tickets: o.Tickets, Lost: table.Causes{}, Errors: table.Causes{}}}
	defer f.client.Close()
	f.latency.joins, f.latency.polls, f.latency.sent = newLatency(), newLatency(), newLatency()
	f.next = f.dueTicket
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // garbage of the size of all tokens would double the memory
	if o.Processors > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.Processors))
	}
	used := rig.OwnCPU()
	stop := progress(f.line())
	defer stop()
	filling, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	f.until = func(time.Duration) bool { return f.enrolledAt > 0 }
	f.run(filling, to.Connections, f.request)
	rig.Check(f.refused)
	if f.enrolledAt > 0 {
		f.hold(ctx, to.Connections)
	}
	stop()
	return f.finish(rig.OwnCPU() - used)
}

// hold keeps the tickets polling, and compares the positions of a sample with the orders at the beginning and at the end.
func (f *fill) hold(ctx context.Context, connections int) {
	rig.Say("all %d are in after %s", f.o.Tickets, f.enrolledAt.Round(time.Millisecond))
	rig.Sleep(ctx, time.Second) // for a snapshot that holds all
	f.rank(ctx)
	if f.o.TokensOut != "" {
		var tokens []string
		for i := range f.tickets {
			if f.tickets[i].token != "" {
				tokens = append(tokens, f.tickets[i].token)
			}
		}
		err := saveTokens(f.o.TokensOut, tokens)
		rig.Require(err == nil, "--tokens-out: %v", err)
		rig.Say("%d tokens are in %s", len(tokens), f.o.TokensOut)
	}
	if f.o.Hold > 0 {
		end := time.Since(f.start) + f.o.Hold
		f.until = func(now time.Duration) bool { return now >= end }
		f.run(ctx, connections, f.request)
		f.rank(context.WithoutCancel(ctx)) // also after an interrupt
	}
	rig.Check(f.refused)
}

// dueTicket returns the ticket whose poll is due. At least every fourth request is a join, so that the room fills even if
// the gateway is too slow for the polling intervals that it advises.
func (f *fill) dueTicket(now time.Duration) (job int, wait time.Duration, err error) {
	if f.refused != nil || f.until(now) {
		return -1, 0, errOver
	}
	wait = 100 * time.Millisecond // the phase may end
	poll := false
	if len(f.pending) > 0 {
		poll = f.pending[0].due <= now
		wait = min(wait, f.pending[0].due-now)
	}
	if f.born < len(f.tickets) && now >= f.pause && (!poll || f.polled >= 3) {
		f.polled = 0
		f.tickets[f.born].due = now
		job = f.born
		f.born++
	} else if poll {
		f.polled++
		job = heap.Pop(&f.pending).(appointment).job
	} else {
		return -1, wait, nil
	}
	f.tickets[job].highest = f.newest
	return job, 0, nil
}

// request joins or polls.
func (f *fill) request(i int) {
	t := &f.tickets[i]
	t.sent = time.Since(f.start)
	cr := visitor.Credentials{Token: t.token}
	joins, send, took := t.state == unjoined, f.client.Status, f.latency.polls
	if joins {
		send, took = f.client.Join, f.latency.joins
	}
	r, err := send(&cr)
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency.sent.record(t.sent - t.due)
	took.record(now.Sub(f.start) - t.due)
	if err != nil {
		f.report.Errors[cause(err)]++
		if joins {
			f.pause = now.Sub(f.start) + 100*time.Millisecond
		}
		f.retry(i)
		return
	}
	if why := f.response(i, joins, &cr, &r, now); why != "" {
		f.report.Errors[why]++
	}
}

// retry makes a ticket due again after a quarter of a second, doubling up to four seconds.
func (f *fill) retry(i int) {
	t := &f.tickets[i]
	f.again(i, 250*time.Millisecond<<min(t.failures, 4)+rand.N(100*time.Millisecond)) //nolint:gosec // jitter is no secret
	t.failures = min(t.failures, 100) + 1
}

func (f *fill) again(i int, after time.Duration) {
	f.tickets[i].due = time.Since(f.start) + after
	f.push(i, f.tickets[i].due)
}

// response records a response. It returns an error for the report, or an empty string. mu is held.
func (f *fill) response(i int, joins bool, cr *visitor.Credentials, r *visitor.Response, now time.Time) string {
	t := &f.tickets[i]
	kind := "poll"
	if joins {
		kind = "join"
	}
	switch {
	case !joins && r.HTTP == http.StatusUnauthorized:
		f.lose(t, "token refused (401)")
		return "poll: status 401"
	case joins && r.HTTP >= 400 && r.HTTP < 500 && r.HTTP != http.StatusTooManyRequests:
		f.refused = fmt.Errorf("a join was refused: status %d %s", r.HTTP, r.Status.Code) // there is no such room
		return "join: refused"
	case r.HTTP != http.StatusOK && r.HTTP != http.StatusCreated:
		f.retry(i)
		return fmt.Sprintf("%s: status %d", kind, r.HTTP)
	case joins && cr.Token == "" && cr.Pass == "":
		f.retry(i)
		return "join: neither a token nor a pass"
	}
	before := t.Presence
	if t.Received(now) {
		f.report.Returned++
	}
	t.failures = 0
	if joins {
		t.joined = now.Sub(f.start)
		f.report.Waiting++
		if f.report.Joined++; f.report.Joined == int64(f.o.Tickets) {
			f.report.JoinSeconds = t.joined.Seconds()
		}
	} else {
		f.progress.polls++
	}
	switch r.Status.State {
	case "expired", "lapsed", "ended", "prequeue", "rejected":
		f.lose(t, strings.TrimSuffix(r.Status.State+": "+r.Status.Reason, ": "))
		return ""
	}
	if cr.Token != "" && cr.Token != t.token {
		t.token = cr.Token
		if why, err := t.Update(cr.Token); why != "" || err != nil {
			f.lose(t, why)
			return ""
		}
		f.compareOrder(t, joins)
	}
	if cr.Pass != "" {
		f.admit(t, r)
		return ""
	}
	grew := &f.report.GrewEarly
	switch {
	case joins:
		t.state = signed
	case t.state == signed && !t.Confirmed: // the store was too slow for the gateway
		f.report.Unconfirmed++
		f.comparePosition(t, r, grew)
		f.again(i, time.Second)
		return ""
	case t.state == signed:
		f.enrol(t)
		t.state = enrolled
	}
	if f.enrolledAt > 0 && before.After(f.start.Add(f.enrolledAt+settleTime)) {
		grew = &f.report.Grew
	}
	f.comparePosition(t, r, grew)
	// Timers and networks delay the polls of real visitors: without jitter, polls that were due together would stay together.
	f.again(i, t.Advise(r)+rand.N(250*time.Millisecond)) //nolint:gosec // as above
	return ""
}

// compareOrder counts joins that received an earlier order than a join that was answered before they were sent.
func (f *fill) compareOrder(t *ticket, joins bool) {
	if joins && t.Order > 0 && t.Order <= t.highest {
		f.report.Swapped++
		f.report.SwappedMicros = max(f.report.SwappedMicros, t.highest-t.Order+1)
	}
	f.newest = max(f.newest, t.Order)
}

// comparePosition compares a position with the one before. It may grow by the number of visitors who have come back.
func (f *fill) comparePosition(t *ticket, r *visitor.Response, grew *Growth) {
	if r.Status.Position == 0 {
		return
	}
	f.progress.waiting = r.Status.Waiting
	if by := r.Status.Position - t.position; t.position > 0 && by > f.report.Returned {
		grew.Polls++
		if by > grew.By {
			grew.By, grew.Of = by, r.Status.Waiting
		}
	}
	t.position = r.Status.Position
}

func (f *fill) admit(t *ticket, r *visitor.Response) {
	f.enrol(t)
	if at := r.AdmittedAt(); at > 0 {
		f.in = append(f.in, verdict.Admission{At: at, Order: t.Order, Ordered: t.token != "", Sent: t.sent.Microseconds(), Answered: t.joined.Microseconds()})
	}
	t.state = admitted
	f.report.Admitted++
	f.report.Waiting--
}

// enrol counts a ticket that has been filled in.
func (f *fill) enrol(t *ticket) {
	if t.state == enrolled {
		return
	}
	if f.report.Stored++; f.report.Stored == int64(f.o.Tickets) {
		f.enrolledAt = time.Since(f.start)
	}
}

func (f *fill) lose(t *ticket, why string) {
	f.enrol(t)
	t.state = lost
	f.report.Waiting--
	f.report.Lost[why]++
}

// line returns a function that returns the line of progress; polls a second are the mean since the last call.
func (f *fill) line() func() string {
	speed := speedometer()
	return func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		r := &f.report
		return fmt.Sprintf("joined %d · in the store %d · admitted %d · lost %d · %.0f polls/s · positions that grew %d · %d wait in the room",
			r.Joined, r.Stored, r.Admitted, r.Joined-r.Admitted-r.Waiting, speed(f.progress.polls), r.Grew.Polls, f.progress.waiting)
	}
}

// size returns the memory of a ticket, in bytes.
func (t *ticket) size() int { return int(unsafe.Sizeof(*t)) + len(t.token) + len(t.ID) }
