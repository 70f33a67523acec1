package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/visitor"
	"github.com/anteroom/anteroom/bench/wire"
)

// blend is the shares of the requests, in parts that need not sum up to a hundred.
type blend struct{ Polls, Proxied, Joins int }

// kind deals the k-th request of a cycle so that the shares are spread evenly rather than in blocks: the one that is
// most behind its share goes next.
func (b blend) cycle() ([]byte, error) {
	sum := b.Polls + b.Proxied + b.Joins
	if b.Polls < 0 || b.Proxied < 0 || b.Joins < 0 || sum == 0 || sum > 10_000 {
		return nil, errors.New("--polls, --proxied and --joins: want shares that sum up to 1–10000")
	}
	shares := []struct {
		kind byte
		n    int
	}{{'p', b.Polls}, {'x', b.Proxied}, {'j', b.Joins}}
	done := make([]int, len(shares))
	cycle := make([]byte, 0, sum)
	for k := 1; k <= sum; k++ {
		best, behind := 0, -sum*sum
		for i, s := range shares {
			if d := s.n*k - done[i]*sum; d > behind {
				best, behind = i, d
			}
		}
		done[best]++
		cycle = append(cycle, shares[best].kind)
	}
	return cycle, nil
}

// mixReport is what an open-loop run came to.
type mixReport struct {
	Asked    float64          `json:"asked_per_second"` // 0: as fast as answered
	Achieved float64          `json:"achieved_per_second"`
	Seconds  float64          `json:"seconds"`
	All      quantiles        `json:"all"`
	Polls    quantiles        `json:"polls"`
	Proxied  quantiles        `json:"proxied"`
	Joins    quantiles        `json:"joins"`
	Sent     quantiles        `json:"sent"`   // how long after it was due a request was sent: what the generator, or a lack of free connections, has added
	OwnCPU   float64          `json:"cpu_us"` // of the generator, a request
	Errors   int64            `json:"errors"`
	Kinds    map[string]int64 `json:"errors_by_kind,omitempty"`
	Tokens   int              `json:"tokens"`
	Passes   int              `json:"passes"`
}

// mixOptions is how the blend is sent.
type mixOptions struct {
	Schedule wire.Schedule
	Threads  int
	Path     string
}

// The kinds of requests, as wire counts them.
const (
	poll = iota
	proxied
	join
)

// mixer makes every Nth request of the blend, so that the blend holds at every moment, with credentials of its own.
type mixer struct {
	cycle         []byte
	first, step   int
	polls, visits int
	tokens        *shelf
	passes        []string
	before, after [join + 1]string // of the credential
}

// hand is what the threads of a mix hold: a shelf of tokens each, and all passes.
type hand struct {
	tokens []*shelf
	total  int
	passes []string
}

// deal hands gathered credentials out to threads.
func deal(p *visitor.Pool, threads int) hand {
	h := hand{total: len(p.Waiting), tokens: make([]*shelf, threads)}
	for i := range h.tokens {
		h.tokens[i] = newShelf((len(p.Waiting) + threads - 1 - i) / threads)
	}
	for k, c := range p.Waiting {
		h.tokens[k%threads].put(k/threads, c.Token)
	}
	share(h.tokens, len(p.Waiting))
	for _, c := range p.LetIn {
		h.passes = append(h.passes, c.Pass)
	}
	return h
}

func newMixer(h hand, cycle []byte, host, room, path string, first, step int) *mixer {
	m := &mixer{cycle: cycle, first: first, step: step, tokens: h.tokens[first]}
	for i := first; i < len(h.passes); i += step {
		m.passes = append(m.passes, h.passes[i])
	}
	if len(m.passes) == 0 && len(h.passes) > 0 { // fewer than threads: they share
		m.passes = []string{h.passes[first%len(h.passes)]}
	}
	common := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: anteroom-loadgen\r\nAccept: application/json\r\n"
	base := "/.waiting-room/" + room
	m.before = [...]string{
		poll:    "GET " + base + "/status" + common + "X-Waiting-Room-Token: ",
		proxied: "GET " + path + common + "X-Waiting-Room-Pass: ",
		join:    "POST " + base + "/tickets" + common + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	}
	m.after = [...]string{poll: "\r\n\r\n", proxied: "\r\n\r\n", join: ""}
	return m
}

func (m *mixer) Next(k int, b []byte) (req []byte, kind, tag int) {
	switch m.cycle[(k*m.step+m.first)%len(m.cycle)] {
	case 'p':
		kind, tag = poll, m.polls%m.tokens.slots
		m.polls++
		b = m.tokens.add(append(b, m.before[kind]...), tag)
	case 'x':
		kind, tag = proxied, m.visits%len(m.passes)
		m.visits++
		b = append(append(b, m.before[kind]...), m.passes[tag]...)
	default:
		kind = join
		b = append(b, m.before[kind]...)
	}
	return append(b, m.after[kind]...), kind, tag
}

// Answered keeps the newest token or pass, as a visitor would.
func (m *mixer) Answered(kind, tag int, a *wire.Answer) string {
	switch kind {
	case poll:
		if a.Status != 200 {
			return fmt.Sprintf("poll: status %d", a.Status)
		}
		if _, rest, ok := bytes.Cut(a.Body(), []byte(`"token":"`)); ok {
			token, _, _ := bytes.Cut(rest, []byte{'"'})
			m.tokens.put(tag, string(token))
		}
	case proxied:
		if a.Status >= 400 || len(a.Room) > 0 {
			return fmt.Sprintf("with a pass: status %d, X-Waiting-Room %q", a.Status, a.Room)
		}
		if len(a.Pass) > 0 {
			m.passes[tag] = string(a.Pass)
		}
	default:
		if a.Status != 201 {
			return fmt.Sprintf("join: status %d", a.Status)
		}
	}
	return ""
}

// runMix sends the blend with the gathered credentials.
func runMix(ctx context.Context, to visitor.Options, o mixOptions, b blend, h hand) (mixReport, error) {
	cycle, err := b.cycle()
	if err != nil {
		return mixReport{}, err
	}
	loop := wire.Loop{Schedule: o.Schedule, Timeout: to.Timeout, Kinds: join + 1}
	var host string
	if host, loop.Addrs, err = plain(to.URLs); err != nil {
		return mixReport{}, err
	}
	threads := len(h.tokens)
	loop.Connections = to.Connections / threads
	loop.Schedule.Rate /= float64(threads)
	results := make([]wire.Result, threads)
	group, gctx := errgroup.WithContext(ctx)
	before := ownCPU()
	for i := range threads {
		group.Go(func() (err error) {
			results[i], err = loop.Run(gctx, newMixer(h, cycle, host, to.Room, o.Path, i, threads))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return mixReport{}, err
	}
	used := ownCPU() - before
	sum := results[0]
	for _, r := range results[1:] {
		sum.Merge(r)
	}
	all := wire.NewHistogram()
	for _, h := range sum.Latency {
		all.Merge(h)
	}
	r := mixReport{
		Asked: o.Schedule.Rate, Seconds: sum.Elapsed.Seconds(), All: quantilesOf(all), Polls: quantilesOf(sum.Latency[poll]),
		Proxied: quantilesOf(sum.Latency[proxied]), Joins: quantilesOf(sum.Latency[join]), Sent: quantilesOf(sum.Sent),
		Kinds: sum.Errors, Tokens: h.total, Passes: len(h.passes),
	}
	for _, n := range sum.Errors {
		r.Errors += n
	}
	r.Achieved = float64(r.All.Count) / r.Seconds
	r.OwnCPU = float64(used.Microseconds()) / float64(sum.Asked)
	return r, nil
}

// plain gives the addresses of gateways that speak HTTP without TLS, and the host to ask for.
func plain(urls []string) (host string, addrs []*net.TCPAddr, err error) {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return "", nil, fmt.Errorf("--url %q: %w", raw, err)
		}
		if u.Scheme != "http" {
			return "", nil, fmt.Errorf("--url %q: this mode measures over plain HTTP; give an http:// address of the gateway", raw)
		}
		port := u.Port()
		if port == "" {
			port = "80"
		}
		addr, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return "", nil, fmt.Errorf("--url %q: %w", raw, err)
		}
		addrs = append(addrs, addr)
		if host == "" {
			host = u.Host
		}
	}
	return host, addrs, nil
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (r mixReport) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r mixReport) text(out io.Writer) error {
	w := &strings.Builder{}
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
	fmt.Fprintf(w, "errors     %d\n", r.Errors)
	for _, k := range slices.Sorted(maps.Keys(r.Kinds)) {
		fmt.Fprintf(w, "           %6d × %s\n", r.Kinds[k], k)
	}
	_, err := io.WriteString(out, w.String())
	return err
}
