package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// blend is the shares of the kinds of requests. Their sum is arbitrary.
type blend struct{ Polls, Proxied, Joins int }

// The kinds of requests of a mix.
const (
	poll = iota
	proxied
	join
	kinds
)

// cycle returns the kinds of one cycle of requests, evenly spread: the kind that is furthest behind its share comes next.
func (b blend) cycle() ([]byte, error) {
	shares := [kinds]int{b.Polls, b.Proxied, b.Joins}
	sum := b.Polls + b.Proxied + b.Joins
	if slices.Min(shares[:]) < 0 || sum == 0 || sum > 10_000 {
		return nil, errors.New("--polls, --proxied and --joins: use shares with a sum from 1 to 10000")
	}
	var done [kinds]int
	var cycle []byte
	for k := 1; k <= sum; k++ {
		best, behind := 0, -sum*sum
		for i, n := range shares {
			if d := n*k - done[i]*sum; d > behind {
				best, behind = i, d
			}
		}
		done[best]++
		cycle = append(cycle, byte(best))
	}
	return cycle, nil
}

// pacing is when requests are due: the rate rises evenly from 0 over Ramp and then stays for Duration.
type pacing struct {
	Rate           float64 // a second; 0: as fast as they are answered
	Ramp, Duration time.Duration
}

// climb returns how many requests are due in the ramp.
func (p pacing) climb() float64 { return p.Rate * p.Ramp.Seconds() / 2 }

// total returns how many requests are due in all.
func (p pacing) total() int { return int(p.climb() + p.Rate*p.Duration.Seconds()) }

// due returns when the k-th request is due, counted from 0.
func (p pacing) due(k int) time.Duration {
	n, climb := float64(k), p.climb()
	if n < climb {
		return time.Duration(math.Sqrt(2*n*p.Ramp.Seconds()/p.Rate) * float64(time.Second))
	}
	return p.Ramp + time.Duration((n-climb)/p.Rate*float64(time.Second))
}

// mixOptions describe how the blend is sent.
type mixOptions struct {
	pacing
	Processors int
	Path       string
}

// MixReport is the result of a run at a steady rate.
type MixReport struct {
	Asked    float64      `json:"asked_per_second"` // 0: as fast as answered
	Achieved float64      `json:"achieved_per_second"`
	Seconds  float64      `json:"seconds"`
	All      Quantiles    `json:"all"`
	Polls    Quantiles    `json:"polls"`
	Proxied  Quantiles    `json:"proxied"`
	Joins    Quantiles    `json:"joins"`
	Sent     Quantiles    `json:"sent"`   // the delay from due to sent, which the generator or a lack of connections adds
	OwnCPU   float64      `json:"cpu_us"` // of the generator, a request
	Errors   int64        `json:"errors"`
	Kinds    table.Causes `json:"errors_by_kind,omitempty"`
	Tokens   int          `json:"tokens"`
	Passes   int          `json:"passes"`
}

// mixer sends a blend.
type mixer struct {
	o       mixOptions
	timeout time.Duration
	client  *visitor.Client
	*schedule
	cycle   []byte
	pool    [kinds][]visitor.Credentials // of waiting and of admitted visitors
	used    [kinds]int
	k       int // requests so far
	total   int // requests of the run; 0: not known
	latency [kinds]*latency
	sent    *latency
	all     *latency
	table.Counts
	errors table.Causes
}

// runMix sends the blend with the credentials of a pool.
func runMix(ctx context.Context, to visitor.Options, o mixOptions, b blend, p *visitor.Pool) MixReport {
	to.NoRetry, to.Brief = true, true
	m := &mixer{o: o, timeout: to.Timeout, total: o.total(), client: rig.Must(visitor.New(to)), cycle: rig.Must(b.cycle()),
		sent: newLatency(), all: newLatency(), errors: table.Causes{}}
	defer m.client.Close()
	m.pool = [kinds][]visitor.Credentials{poll: p.Waiting, proxied: p.Admitted, join: make([]visitor.Credentials, to.Connections)}
	for i := range m.latency {
		m.latency[i] = newLatency()
	}
	if o.Processors > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.Processors))
	}
	used := rig.OwnCPU()
	m.schedule = newSchedule()
	m.next = m.paced
	m.run(ctx, to.Connections, m.request)
	r := MixReport{
		Asked: o.Rate, Seconds: (time.Since(m.start) - o.Ramp).Seconds(), All: m.all.quantiles(), Polls: m.latency[poll].quantiles(),
		Proxied: m.latency[proxied].quantiles(), Joins: m.latency[join].quantiles(), Sent: m.sent.quantiles(),
		OwnCPU: float64((rig.OwnCPU() - used).Microseconds()) / float64(max(1, m.k)), Kinds: m.errors, Tokens: len(p.Waiting), Passes: len(p.Admitted),
	}
	r.Errors = m.errors.Sum()
	r.Achieved = float64(r.All.Count) / r.Seconds
	return r
}

// paced returns the next request when it is due.
func (m *mixer) paced(now time.Duration) (job int, wait time.Duration, err error) {
	end := m.o.Ramp + m.o.Duration
	if m.o.Rate == 0 {
		if now >= end {
			return -1, 0, errOver
		}
	} else {
		if unsent := m.total - m.k; unsent > 0 && now > end+m.timeout {
			m.Note(m.errors, "never sent: no connection was free", int64(unsent))
			m.total = m.k
		}
		if m.k >= m.total {
			return -1, 0, errOver
		}
		if wait := m.o.due(m.k) - now; wait > 0 {
			return -1, wait, nil
		}
	}
	m.k++
	return m.k - 1, 0, nil
}

// request sends the k-th request, and stores the newest credentials as a visitor would.
func (m *mixer) request(k int) {
	began := time.Since(m.start)
	due := began
	if m.o.Rate > 0 {
		due = m.o.due(k)
	}
	kind := m.cycle[k%len(m.cycle)]
	m.mu.Lock()
	slot := m.used[kind] % len(m.pool[kind])
	m.used[kind]++
	cr := m.pool[kind][slot]
	m.mu.Unlock()
	had := cr
	var r visitor.Response
	var err error
	why := ""
	switch kind {
	case poll:
		if r, err = m.client.Status(&cr); r.HTTP != http.StatusOK {
			why = fmt.Sprintf("poll: status %d", r.HTTP)
		}
	case proxied:
		if r, err = m.client.Visit(&cr, m.o.Path); r.HTTP >= 400 || r.Room != "" {
			why = fmt.Sprintf("with a pass: status %d, X-Waiting-Room %q", r.HTTP, r.Room)
		}
	case join:
		if r, err = m.client.Join(&visitor.Credentials{}); r.HTTP != http.StatusCreated {
			why = fmt.Sprintf("join: status %d", r.HTTP)
		}
	}
	now := time.Since(m.start)
	if err != nil {
		why = cause(err)
	}
	if why != "" {
		m.Note(m.errors, why, 1)
	}
	if cr != had {
		m.mu.Lock()
		m.pool[kind][slot] = cr
		m.mu.Unlock()
	}
	if due >= m.o.Ramp {
		m.sent.record(began - due)
		m.latency[kind].record(now - due)
		m.all.record(now - due)
	}
}

// cause returns the innermost error: what differs between requests is wrapped around it.
func cause(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

func (r MixReport) text(w io.Writer) {
	asked := "as fast as answered"
	if r.Asked > 0 {
		asked = fmt.Sprintf("%.0f/s asked for", r.Asked)
	}
	fmt.Fprintf(w, "rate       %.0f/s (%s) over %.1f s, with %d tokens and %d passes\n", r.Achieved, asked, r.Seconds, r.Tokens, r.Passes)
	r.All.line(w, "all")
	r.Polls.line(w, "polls")
	r.Proxied.line(w, "proxied")
	r.Joins.line(w, "joins")
	r.Sent.line(w, "sent late")
	fmt.Fprintf(w, "generator  %.1f µs of processor time a request\n", r.OwnCPU)
	errorLines(w, r.Kinds)
}

// errorLines prints the number of errors and how many there are of each kind.
func errorLines(w io.Writer, errors table.Causes) {
	fmt.Fprintf(w, "errors     %d\n", errors.Sum())
	errors.Print(w, "           %6d × %s\n")
}

// saveTokens writes tokens to a file that only its owner may read: each token is a place in the queue.
func saveTokens(path string, tokens []string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for _, t := range tokens {
		_, _ = w.WriteString(t + "\n") // Flush returns the error
	}
	return errors.Join(w.Flush(), f.Close())
}

// loadTokens reads a file of tokens, one a line.
func loadTokens(path string) (*visitor.Pool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &visitor.Pool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if lines.Text() == "" {
			continue
		}
		p.Waiting = append(p.Waiting, visitor.Credentials{Token: lines.Text()})
		if _, err := visitor.Decode(lines.Text()); err != nil {
			return nil, fmt.Errorf("%s: token %d: %w", path, len(p.Waiting), err)
		}
	}
	if len(p.Waiting) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("%s: holds no token: fill --tokens-out writes one a line", path)
	}
	return p, lines.Err()
}
