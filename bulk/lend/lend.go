// Package lend divides limits that hold over all shards of the bulk engine. It computes each shard's part of a rate, of its
// burst and of a concurrency. The parts together never exceed the limit, even while a shard does not reply or replies late.
package lend

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// Lease is how long a shard may use its shares after a call.
	Lease = 2 * time.Second
	// After is how long after the end of its lease a shard gets its fixed part of the global rate. Until then it has the
	// smaller of that part and its share.
	After = 2 * Lease
	// margin is longer than the delay with which the clock of a shard is read.
	margin = time.Second
	// predecessor is how long an earlier lender may still make calls after it was replaced.
	predecessor = time.Second
	// wideFor is how long a limit is not divided after a job needed the whole burst, since more such jobs are likely.
	wideFor = 10 * time.Second
)

// Job is what one start takes from a rate or burst, in thousandths.
const job = 1000

// Share is what a shard has of one limit. Rates and bursts are in thousandths.
type Share struct {
	Rate, Burst, Concurrency int64
	Tokens                   int64 // billionths of a job: in a call, those that the shard gets; in a reply, those that it returned
	Whole                    Limit // of which this is a part
	Running                  int64 // jobs that run under the limit
	Need                     int   // one of None, Some, Waits, Wide
}

// Limit is a limit over all shards, or over some. A rate or concurrency of 0 means none.
type Limit struct {
	Rate, Burst, Concurrency int64
	Shards                   string // the numbers of the shards that have parts of it, a byte each; empty: all
}

// How much a shard needs of a limit.
const (
	None  = iota // it has no jobs
	Some         // it has jobs
	Waits        // jobs wait for the limit
	Wide         // a job waits that costs more than the shard's part of the burst
)

// Global is the name of the limit of all jobs. The limit of a type has the name of the type, that of a tenant the tenant's name
// after an @, and that of a split group the group's id after a #.
const Global = ""

// ofTenant reports whether a limit is a tenant's own. A shard without a lease of such a limit has its fixed part if it has no
// other lease either, and otherwise nothing.
func ofTenant(name string) bool { return strings.HasPrefix(name, "@") }

// ofGroup reports whether a limit is a split group's own. A shard without a lease of such a limit has its fixed part at once. It
// reports no such limit if it has lost its part, or lends those of too many other groups: then it has no lease either.
func ofGroup(name string) bool { return strings.HasPrefix(name, "#") }

// Call has the shares for a shard. A call without shares only reads the shard's needs.
type Call struct {
	Till   int64 // end of the lease, µs of the shard's clock
	Shares map[string]Share
}

// Reply is the reply of a shard.
type Reply struct {
	Counted bool             // the call's shares are in force
	Now     int64            // µs of the shard's clock
	Starts  int64            // jobs that the shard has started so far
	Shares  map[string]Share // in force now
}

// Lender divides limits. Its times are those of one monotonic clock.
type Lender struct {
	shards []shard
	order  map[string]*order
	spare  map[string]int64 // tokens that shards returned in the last round
}

type shard struct {
	known   bool               // it has replied since the lender began
	replies bool               // it has replied to the last call
	last    map[string]Share   // of its last reply
	maybe   []map[string]Share // shares of calls without a reply, which may be in force
	end     time.Duration      // latest possible end of its leases
	calling time.Duration      // end of the leases of the last call
	sure    time.Duration      // end of the leases that are known to be in force
	read    int64              // its clock at its last reply
	readAt  time.Duration      // when that reply arrived
	starts  int64              // of its last reply
	use     float64            // recent starts a second, in thousandths
}

// order is the order in which shards use a limit that is too small for all of them.
type order struct {
	first int           // the shard whose turn it is
	since time.Duration // when its turn began
	wide  time.Duration // until then one shard at a time has the whole limit
}

// New returns a Lender for n shards.
func New(n int, now time.Duration) *Lender {
	l := &Lender{shards: make([]shard, n), order: map[string]*order{}, spare: map[string]int64{}}
	for i := range l.shards {
		l.shards[i].end = now + predecessor + Lease
		l.shards[i].sure = now - time.Hour
	}
	return l
}

// Part returns the part of the limit that shard i of n has without a lease. lua/lib/bulk.lua computes the same.
func (w Limit) Part(i, n int) Share {
	var p Share
	if w.Shards != "" {
		if i, n = strings.IndexByte(w.Shards, byte(i)), len(w.Shards); i < 0 {
			return p
		}
	}
	if w.Rate > 0 {
		if among := min(int64(n), w.Burst/job); int64(i) < among {
			p.Rate, p.Burst = w.Rate/among, w.Burst/among
		}
	}
	p.Concurrency = w.Concurrency / int64(n)
	if int64(i) < w.Concurrency%int64(n) {
		p.Concurrency++
	}
	return p
}

// most returns the largest share of a limit that a shard may have at any time from now until a lease given now ends.
func (l *Lender) most(i int, name string, whole Limit, now time.Duration) Share {
	s, part := &l.shards[i], whole.Part(i, len(l.shards))
	if part == (Share{}) && whole.Shards != "" {
		return part
	}
	have, known := s.last[name]
	if known && ofGroup(name) && have.Whole != whole { // it was just changed, in this shard or in another one
		have.Rate, have.Burst, have.Concurrency = max(have.Rate, part.Rate), max(have.Burst, part.Burst), max(have.Concurrency, part.Concurrency)
	}
	if !known {
		have = Share{Rate: whole.Rate, Burst: whole.Burst, Concurrency: whole.Concurrency}
		if s.known { // a limit that was just set
			have = part
			if ofTenant(name) {
				have = Share{}
			}
		}
	}
	for _, m := range s.maybe {
		if one, there := m[name]; there {
			have.Rate, have.Burst, have.Concurrency = max(have.Rate, one.Rate), max(have.Burst, one.Burst), max(have.Concurrency, one.Concurrency)
		}
	}
	if now >= s.end {
		have.Rate, have.Burst = min(have.Rate, part.Rate), min(have.Burst, part.Burst)
	}
	if (name == Global || ofTenant(name) || ofGroup(name)) && now >= s.sure+After-Lease-margin {
		have.Rate, have.Burst = max(have.Rate, part.Rate), max(have.Burst, part.Burst)
		if ofTenant(name) {
			have.Concurrency = max(have.Concurrency, part.Concurrency)
		}
	}
	return have
}

// Calls returns the next call to each shard.
func (l *Lender) Calls(now time.Duration) []Call {
	calls := make([]Call, len(l.shards))
	wholes := map[string]Limit{}
	for i := range l.shards {
		s := &l.shards[i]
		if s.replies {
			for name, share := range s.last {
				if _, there := wholes[name]; !there { // if shards differ, the first counts
					wholes[name] = share.Whole
				}
			}
			calls[i] = Call{Till: s.read + (now - s.readAt + Lease).Microseconds(), Shares: map[string]Share{}}
		}
	}
	for name, whole := range wholes {
		l.divide(name, whole, now, calls)
	}
	for name := range l.order {
		if _, there := wholes[name]; !there && ofGroup(name) { // it has ended
			delete(l.order, name)
		}
	}
	clear(l.spare)
	for i := range l.shards {
		if s := &l.shards[i]; s.replies {
			s.maybe = append(s.maybe, calls[i].Shares)
			s.calling = now + Lease
			s.end = max(s.end, s.calling)
		}
	}
	return calls
}

// divide adds the shares of one limit to the calls. A share is first reduced, and only after the shard's reply do later calls
// add the difference to the shares of others.
func (l *Lender) divide(name string, whole Limit, now time.Duration, calls []Call) {
	var among []int
	var kept int64 // the concurrency of those
	left, held := whole, Limit{}
	for i := range l.shards {
		most := l.most(i, name, whole, now)
		held.Rate, held.Burst, held.Concurrency = held.Rate+most.Rate, held.Burst+most.Burst, held.Concurrency+most.Concurrency
		last, reports := l.shards[i].last[name]
		if calls[i].Shares != nil && (reports || !ofGroup(name)) {
			among, kept = append(among, i), kept+min(last.Concurrency, most.Concurrency)
			continue
		}
		part := whole.Part(i, len(l.shards))
		left.Rate, left.Burst, left.Concurrency = left.Rate-part.Rate, left.Burst-part.Burst, left.Concurrency-max(part.Concurrency, most.Concurrency)
	}
	if ofGroup(name) {
		// What the others have is not needed elsewhere, even if a new lender does not know what a shard that is away has.
		left.Concurrency = max(left.Concurrency, min(kept, whole.Concurrency)) // they may run more than a limit that was just reduced
	}
	for n, want := range l.wanted(name, left, among, now) {
		i := among[n]
		most, last := l.most(i, name, whole, now), l.shards[i].last[name]
		next := Share{Whole: whole}
		// grant returns the shard's new share: it may keep what it certainly has, and more must be free.
		grant := func(last, most, want, whole int64, held *int64) int64 {
			keep := min(last, most)
			if want > keep {
				want = keep + max(0, min(want-keep, whole-(*held-most)-keep))
			}
			*held += max(0, want-most)
			return max(0, want)
		}
		next.Burst = grant(last.Burst, most.Burst, want.Burst, whole.Burst, &held.Burst)
		if next.Burst < job { // the scripts would treat a smaller burst as one job
			next.Burst, want.Rate = 0, 0
		}
		next.Rate = grant(last.Rate, most.Rate, want.Rate, whole.Rate, &held.Rate)
		next.Concurrency = grant(last.Concurrency, most.Concurrency, want.Concurrency, whole.Concurrency, &held.Concurrency)
		if next.Burst > last.Burst {
			next.Tokens = min(l.spare[name], (next.Burst-last.Burst)*1e6)
			l.spare[name] -= next.Tokens
		}
		calls[i].Shares[name] = next
	}
}

// wanted returns the best division of the limit among the shards that reply.
func (l *Lender) wanted(name string, whole Limit, among []int, now time.Duration) []Share {
	n := int64(len(among))
	wanted := make([]Share, len(among))
	turns := l.turns(name, whole, among, now)
	o := l.order[name]
	if slices.ContainsFunc(among, func(i int) bool { return l.shards[i].last[name].Need == Wide }) {
		o.wide = now + wideFor
	}
	if now < o.wide {
		n = 1 // one shard at a time has the whole
	}
	if whole.Rate > 0 && whole.Burst >= job {
		in := turns[:min(n, whole.Burst/job)]
		needs, least := make([]float64, len(in)), whole.Rate/(32*int64(len(in)))
		for k, at := range in {
			needs[k] = l.need(name, among[at], whole.Rate)
		}
		rates := fill(whole.Rate-least*int64(len(in)), needs)
		for k, at := range in {
			rate := least + rates[k]
			if rate > 0 {
				wanted[at].Rate = rate
				wanted[at].Burst = job + (whole.Burst-job*int64(len(in)))*rate/whole.Rate
			}
		}
	}
	if whole.Concurrency > 0 {
		in := turns[:min(int64(len(among)), whole.Concurrency)]
		needs := make([]float64, len(in))
		for k, at := range in {
			switch s := l.shards[among[at]].last[name]; s.Need {
			case Waits, Wide:
				needs[k] = float64(whole.Concurrency)
			default:
				needs[k] = float64(s.Running)
			}
		}
		slots := fill(whole.Concurrency-int64(len(in)), needs)
		for k, at := range in {
			wanted[at].Concurrency = 1 + slots[k]
		}
	}
	return wanted
}

// need returns how much of a rate a shard can use.
func (l *Lender) need(name string, i int, rate int64) float64 {
	s := &l.shards[i]
	switch share := s.last[name]; {
	case share.Need == None:
		return 0
	case name == Global && share.Need == Some:
		return 1.5*s.use + float64(rate)/16
	case ofGroup(name) && share.Need == Some: // nothing takes all of its share, as if its shard has no free workers
		return max(0.75*float64(share.Rate), float64(rate)/16)
	}
	return float64(rate)
}

// fill divides a whole: first by need, evenly if the whole is too small for all needs; then the rest evenly among all.
func fill(whole int64, needs []float64) []int64 {
	shares := make([]int64, len(needs))
	if len(needs) == 0 || whole <= 0 {
		return shares
	}
	by := make([]int, len(needs))
	for i := range by {
		by[i] = i
	}
	slices.SortStableFunc(by, func(a, b int) int { return cmp.Compare(needs[a], needs[b]) })
	left := whole
	for k, i := range by {
		shares[i] = int64(min(needs[i], float64(left/int64(len(by)-k))))
		left -= shares[i]
	}
	for k := range shares {
		more := left / int64(len(shares)-k)
		shares[k] += more
		left -= more
	}
	return shares
}

// turns returns indexes of the shards in the order in which they use a limit that is too small for all. Shards that need the
// limit come first, and from time to time the turn passes to the next of them.
func (l *Lender) turns(name string, whole Limit, among []int, now time.Duration) []int {
	list := make([]int, len(among))
	for k := range list {
		list[k] = k
	}
	o := l.order[name]
	if o == nil {
		o = &order{since: now}
		l.order[name] = o
	}
	// A turn is long enough for several starts.
	turn := time.Second
	if whole.Rate > 0 {
		turn = max(turn, time.Duration(2*job*int64(time.Second)/whole.Rate))
	}
	needs := func(k int) bool { return l.shards[among[k]].last[name].Need > None }
	if now-o.since >= turn || !slices.ContainsFunc(list, func(k int) bool { return among[k] == o.first && needs(k) }) {
		next := func(a, b int) int { // by distance from the shard whose turn it is
			n := len(l.shards)
			return cmp.Compare((among[a]-o.first-1+2*n)%n, (among[b]-o.first-1+2*n)%n)
		}
		follow := slices.SortedFunc(slices.Values(list), next)
		if k := slices.IndexFunc(follow, needs); k >= 0 {
			o.first, o.since = among[follow[k]], now
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		n := len(l.shards)
		rank := func(k int) int {
			r := (among[k] - o.first + n) % n
			if !needs(k) {
				r += n
			}
			return r
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return list
}

// Replied records the reply of a shard to its last call, and when it arrived.
func (l *Lender) Replied(i int, arrived time.Duration, r Reply) {
	s := &l.shards[i]
	if s.known && arrived > s.readAt && r.Starts >= s.starts {
		s.use = 0.5*s.use + 0.5*float64(r.Starts-s.starts)*1000/(arrived-s.readAt).Seconds()
	}
	if r.Counted {
		// A shard refuses calls with a smaller number than its last one, so none of the earlier ones can take effect any more.
		s.maybe, s.sure = nil, s.calling
	}
	s.starts, s.read, s.readAt = r.Starts, r.Now, arrived
	s.last, s.replies, s.known = r.Shares, true, true
	if r.Counted {
		for name, share := range r.Shares {
			l.spare[name] += share.Tokens
		}
	}
}

// Failed records that a shard did not reply to its last call.
func (l *Lender) Failed(i int) { l.shards[i].replies = false }
