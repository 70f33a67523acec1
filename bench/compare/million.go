package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/store"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// This part fills a room of a gateway with its own redis-server and measures what a long line costs: bytes, polls, joins,
// store commands, and Redis's time of a tick.

// fewWaiting is the line that a poll's cost is compared with.
const fewWaiting = 1_000

// atOnce is how many tokens one run of wrk has: a thread of it keeps the whole request of each, and no token comes twice
// within what the gateway remembers.
const atOnce = 250_000

// steady is at what rate, and for how long, the store's work for polls is counted.
const (
	steady    = 20_000
	steadyFor = 15 * time.Second
)

// longLine is the stage of this part.
type longLine struct {
	redis   *store.Server
	gateway *child.Child
	addr    string
	o       options
	dir     string
	long    []string // tokens, in order
	short   []string
}

func millionRows(ctx context.Context, s *stage, b *bench, o options) (rows []table.Row, err error) {
	l := &longLine{o: o, dir: s.dir}
	if l.redis, err = store.Start(ctx, s.dir); err != nil {
		return nil, err
	}
	defer l.redis.Stop()
	if err := l.open(ctx, s); err != nil {
		return nil, err
	}
	defer l.gateway.Stop()
	filled, err := l.fill(ctx)
	if err != nil {
		return nil, err
	}
	rows = append(rows, filled...)
	client, err := visitor.New(visitor.Options{URLs: []string{"http://" + l.addr}, Room: "long", Connections: 1, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	keeping, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { keep(keeping, client, l.long) })
	defer wg.Wait()
	defer stop()
	for _, part := range []func(context.Context, *stage, *bench) ([]table.Row, error){l.polls, l.ticks, l.joins} {
		more, err := part(ctx, s, b)
		if err != nil {
			return nil, errors.Join(err, fmt.Errorf("gateway: %s", l.gateway.Log))
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// open starts a gateway with two rooms, a long and a short one. Places last longer than the run, so that no renewal is
// measured that is not due; in production one comes every quarter of absence.
func (l *longLine) open(ctx context.Context, s *stage) (err error) {
	if l.addr, err = child.FreePort(); err != nil {
		return err
	}
	l.gateway, err = s.launch(ctx, "gateway", l.o.gateway, "million.yaml", fmt.Sprintf(`listen: "%s"
admin: {listen: "127.0.0.1:0"}
log: {level: warn, access: false}
store: {url: "%s"}
tokens: {keys: [{id: k1, alg: HS256, secret: "%s", active: true}]}
origins:
  - {id: bench, servers: ["http://%s"]}
rooms:
  - {id: long, paths: ["/"], origin: bench, admission: {rate: 1, burst: 1}, queue: {absence: 2h}}
  - {id: short, paths: ["/short"], origin: bench, admission: {rate: 1, burst: 1}, queue: {absence: 2h}}
`, l.addr, l.redis.URL, secret(), s.originAddr), l.addr, "serve", "--config")
	return err
}

// secret is a key that nobody else has.
func secret() string {
	const letters = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
	b := make([]byte, 48)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))] //nolint:gosec // a key of one run on this machine
	}
	return string(b)
}

// filled is the part of loadgen's report that is shown.
type filled struct {
	Waiting     int64            `json:"waiting"`
	LetIn       int64            `json:"let_in"`
	FillSeconds float64          `json:"fill_seconds"`
	Lost        map[string]int   `json:"lost_places"`
	Memory      int64            `json:"peak_bytes"`
	Errors      map[string]int64 `json:"errors"`
	GrewEarly   grown            `json:"positions_grew_in_the_rush"`
	Grew        grown            `json:"positions_grew"`
	Ranks       []struct {
		Waiting  int64   `json:"waiting"`
		Tickets  int     `json:"tickets"`
		Compared bool    `json:"compared_with_ranks"`
		Max      float64 `json:"error_max"`
		Swapped  int     `json:"swapped"`
	} `json:"ranks"`
}

type grown struct {
	Polls int64 `json:"polls"`
	By    int64 `json:"by_at_most"`
}

// run lets loadgen fill a room.
func (l *longLine) run(ctx context.Context, room string, tickets int, hold time.Duration) (r filled, file string, err error) {
	file = filepath.Join(l.dir, room+".tokens")
	cmd := loadgen(ctx, l.o, "fill", "--json", "--url", "http://"+l.addr, "--room", room, "--tickets", fmt.Sprint(tickets),
		"--connections", "512", "--hold", hold.String(), "--tokens-out", file)
	out, err := cmd.Output() // a promise that was broken is in the report, and no reason to measure nothing
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		return r, file, fmt.Errorf("loadgen fill: %w", errors.Join(err, jsonErr))
	}
	if r.FillSeconds == 0 || len(r.Lost) > 0 {
		return r, file, fmt.Errorf("loadgen fill: not all are in, or places were lost: %s", out)
	}
	return r, file, nil
}

func (l *longLine) fill(ctx context.Context) ([]table.Row, error) {
	_, short, err := l.run(ctx, "short", fewWaiting+frontOfLine, 0)
	if err != nil {
		return nil, err
	}
	before, err := l.redis.Stats(ctx)
	if err != nil {
		return nil, err
	}
	empty, memErr := child.Memory(l.gateway.PID())
	r, long, err := l.run(ctx, "long", l.o.million, 2*time.Second)
	if err != nil {
		return nil, err
	}
	if l.long, err = ordered(long); err != nil {
		return nil, err
	}
	if l.short, err = ordered(short); err != nil {
		return nil, err
	}
	after, err := l.redis.Stats(ctx)
	if err != nil {
		return nil, err
	}
	full, memErr2 := child.Memory(l.gateway.PID())
	rank := 0.0
	for _, k := range r.Ranks {
		rank = max(rank, k.Max)
		say("ranks: %+v", k)
	}
	say("%d wait; %v errors of the fill; positions grew in %d polls in the rush by up to %d, then in %d by up to %d", r.Waiting, r.Errors, r.GrewEarly.Polls, r.GrewEarly.By, r.Grew.Polls, r.Grew.By)
	rows := []table.Row{
		{What: fmt.Sprintf("fill with %s tickets: each joins and polls", table.Figure(float64(l.o.million))), Unit: "s", Ours: r.FillSeconds},
		{What: "… of which the generator needs", Unit: "bytes a ticket", Ours: float64(r.Memory) / float64(l.o.million)},
		{What: "Redis memory a waiting visitor", Unit: "bytes", Ours: float64(after.Memory-before.Memory) / float64(r.Waiting), Bars: []table.Bar{{Limit: 260, AtMost: true}}},
		{What: "position's error, of the line", Unit: "%", Ours: 100 * rank, Counted: true, Bars: []table.Bar{{Limit: 0.5, AtMost: true}}},
	}
	if memErr == nil && memErr2 == nil {
		rows = append(rows, table.Row{What: "gateway, resident, before the fill", Unit: "MB", Ours: float64(empty) / 1e6},
			table.Row{What: "… after it", Unit: "MB", Ours: float64(full) / 1e6})
	}
	return rows, nil
}

// ordered reads a file of tokens and puts them in the order of their places.
func ordered(file string) ([]string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	type place struct {
		order int64
		token string
	}
	var all []place
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		c, err := visitor.Decode(line)
		if err != nil || c.Order == nil {
			return nil, fmt.Errorf("%s: a token without an order: %w", file, err)
		}
		all = append(all, place{*c.Order, line})
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.order, b.order) })
	tokens := make([]string, len(all))
	for i, p := range all {
		tokens[i] = p.token
	}
	return tokens, nil
}

// sample writes every n-th of the tokens beyond the front to a file, beginning with the turn-th, and not more than most.
func (l *longLine) sample(name string, tokens []string, most, turn int) (string, error) {
	tokens = tokens[min(frontOfLine, len(tokens)):]
	step := max(1, len(tokens)/most)
	var some []string
	for i := turn % step; i < len(tokens) && len(some) < most; i += step {
		some = append(some, tokens[i])
	}
	if len(some) == 0 {
		return "", errors.New("no token lies beyond the front")
	}
	path := filepath.Join(l.dir, name)
	return path, os.WriteFile(path, []byte(strings.Join(some, "\n")+"\n"), 0o600)
}

// keep polls those at the front every half a minute until ctx ends, as their pages would: the rest of the line is only
// asked for its presence when it gets there, but an absent head would be put aside with every tick.
func keep(ctx context.Context, c *visitor.Client, tokens []string) {
	front := tokens[:min(frontOfLine, len(tokens))]
	every := time.NewTicker(30 * time.Second / time.Duration(len(front)))
	defer every.Stop()
	crs := make([]visitor.Credentials, len(front))
	for i := range crs {
		crs[i].Token = front[i]
	}
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if cr := &crs[k%len(crs)]; cr.Pass == "" {
			_, _ = c.Status(cr) // one that is lost is asked for again in half a minute
		}
	}
}

// polls compares a poll with nginx's constant answer and with a poll in a short line, taking turns.
func (l *longLine) polls(ctx context.Context, s *stage, b *bench) ([]table.Row, error) {
	var files [3]string
	for i, from := range [][]string{l.long, l.long, l.short} {
		var err error
		if files[i], err = l.sample(fmt.Sprint("sample", i), from, atOnce, i); err != nil {
			return nil, err
		}
	}
	a, err := fetch(ctx, "http://"+l.addr+"/.waiting-room/long/status", "X-Waiting-Room-Token", l.long[len(l.long)/2])
	if err != nil {
		return nil, err
	}
	if a.code != 200 || !strings.Contains(string(a.body), `"state":"waiting"`) || !json.Valid(a.body) {
		return nil, fmt.Errorf("status: %d %s", a.code, a.body)
	}
	if s.nginx == nil {
		if err := s.openNginx(ctx, string(a.body)); err != nil {
			return nil, err
		}
	}
	const nginx, long, short = 0, 1, 2
	names := []string{"nginx", "long", "short"}
	var rate, cpu, p99 [3][]float64
	for r := range l.o.rounds {
		for k := range names {
			i := (r + k) % len(names)
			server, addr, path, file := l.gateway, l.addr, "/.waiting-room/long/status", files[r%2]
			switch i {
			case nginx:
				server, addr = s.nginx, s.statusAddr
			case short:
				path, file = "/.waiting-room/short/status", files[2]
			}
			shot, err := b.fire(ctx, server, addr, load{Credentials: file, Header: "X-Waiting-Room-Token", Method: "GET", Path: path})
			if err != nil {
				return nil, fmt.Errorf("polls, %s: %w", names[i], err)
			}
			say("status poll, round %d of %d: %-8s %9.0f/s  %6.2f µs CPU  p99 %.2f ms", r+1, l.o.rounds, names[i], shot.Rate, shot.CPU, shot.P99)
			rate[i], cpu[i], p99[i] = append(rate[i], shot.Rate), append(cpu[i], shot.CPU), append(p99[i], shot.P99)
		}
	}
	m := func(x [3][]float64, i int) float64 { return table.Median(x[i]) }
	what := fmt.Sprintf("status poll, %s waiting", table.Figure(float64(l.o.million)))
	return []table.Row{
		{What: what, Unit: "/s", Peers: []float64{m(rate, nginx)}, Ours: m(rate, long), Bars: []table.Bar{{Limit: 100_000}, {Limit: 0.5, Ratio: true}}},
		{What: what, Unit: "CPU µs", Peers: []float64{m(cpu, nginx)}, Ours: m(cpu, long)},
		{What: what, Unit: "p99 ms", Peers: []float64{m(p99, nginx)}, Ours: m(p99, long)},
		{What: fmt.Sprintf("… %s waiting", table.Figure(fewWaiting)), Unit: "CPU µs", Ours: m(cpu, short)},
		{What: "… long ÷ short line, CPU", Unit: "×", Ours: over(m(cpu, long), m(cpu, short)), Bars: []table.Bar{{Limit: 1.2, AtMost: true}}},
	}, nil
}

// ticks measures what Redis does for the long line while nobody polls, and while many do, each time with another token.
func (l *longLine) ticks(ctx context.Context, _ *stage, _ *bench) ([]table.Row, error) {
	length, err := l.redis.Length(ctx, "*{room:long}*snapshot")
	if err != nil {
		return nil, err
	}
	rows := []table.Row{{What: "snapshot", Unit: "bytes", Ours: float64(length)}}
	beyond, err := l.sample("beyond", l.long, l.o.million, 0)
	if err != nil {
		return nil, err
	}
	var idle store.Stats
	for _, polled := range []bool{false, true} {
		before, err := l.redis.Stats(ctx)
		if err != nil {
			return nil, err
		}
		var polls mixResult
		times, err := l.redis.Time(ctx, "{room:long}", func() error {
			if !polled {
				select {
				case <-time.After(10 * time.Second):
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			cmd := loadgen(ctx, l.o, "polls", "--json", "--url", "http://"+l.addr, "--room", "long", "--tokens-in", beyond, "--connections", "128",
				"--rate", fmt.Sprint(steady), "--duration", steadyFor.String())
			out, err := cmd.Output()
			if jsonErr := json.Unmarshal(out, &polls); jsonErr != nil {
				return fmt.Errorf("loadgen polls: %w", errors.Join(err, jsonErr))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		after, err := l.redis.Stats(ctx)
		if err != nil {
			return nil, err
		}
		d, when := after.Since(before), "nobody polls"
		took := after.At.Sub(before.At).Seconds()
		if polled {
			when = fmt.Sprintf("%s polls/s", table.Figure(polls.Achieved))
			n := polls.Achieved * steadyFor.Seconds()
			quiet := float64(idle.Commands) * took / 10
			rows = append(rows,
				table.Row{What: "polls beyond the front, each another token", Unit: "/s", Ours: polls.Achieved, Bars: []table.Bar{{Limit: 15_000}}},
				count("… of them", polls.Errors),
				table.Row{What: "… store calls", Unit: "a poll", Ours: float64(d.Calls) / n, Counted: true, Bars: []table.Bar{{Limit: 0.01, AtMost: true}}},
				table.Row{What: "… store commands, those within scripts too, less the ticks'", Unit: "a poll", Ours: max(0, float64(d.Commands)-quiet) / n, Counted: true, Bars: []table.Bar{{Limit: 0.01, AtMost: true}}})
		} else {
			idle = d
		}
		rows = append(rows, table.Row{What: "Redis, " + when, Unit: "% of a core", Ours: 100 * d.CPU.Seconds() / took})
		for _, name := range []string{"room_advance", "room_snapshot"} {
			t := times[name]
			if len(t) == 0 {
				continue
			}
			at := func(q float64) float64 { return float64(t[int(q*float64(len(t)-1))].Microseconds()) / 1000 }
			say("%s, %s: %d calls, p50 %.3f p90 %.3f p99 %.3f max %.3f ms", name, when, len(t), at(0.5), at(0.9), at(0.99), at(1))
			rows = append(rows,
				table.Row{What: fmt.Sprintf("%s, %s", name, when), Unit: "p50 ms", Ours: at(0.5), Bars: []table.Bar{{Limit: 2, AtMost: true}}},
				table.Row{What: "…", Unit: "p99 ms", Ours: at(0.99)})
		}
	}
	if mem, err := child.Memory(l.gateway.PID()); err == nil {
		rows = append(rows, table.Row{What: "gateway, resident, after polls of all", Unit: "MB", Ours: float64(mem) / 1e6})
	}
	return rows, nil
}

// joins comes last, since nobody polls for those who join.
func (l *longLine) joins(ctx context.Context, s *stage, b *bench) ([]table.Row, error) {
	none := filepath.Join(s.dir, "none")
	if err := os.WriteFile(none, []byte("\n"), 0o600); err != nil {
		return nil, err
	}
	var rate, cpu, calls []float64
	for r := range l.o.rounds {
		before, err := l.redis.Stats(ctx)
		if err != nil {
			return nil, err
		}
		shot, err := b.fire(ctx, l.gateway, l.addr, load{Credentials: none, Method: "POST", Path: "/.waiting-room/long/tickets", Body: "{}"})
		if err != nil {
			return nil, err
		}
		after, err := l.redis.Stats(ctx)
		if err != nil {
			return nil, err
		}
		say("join in a long line, round %d of %d: %9.0f/s  %6.2f µs CPU", r+1, l.o.rounds, shot.Rate, shot.CPU)
		rate, cpu, calls = append(rate, shot.Rate), append(cpu, shot.CPU), append(calls, float64(after.Calls-before.Calls)/shot.Requests)
	}
	return []table.Row{
		{What: "join in a long line", Unit: "/s", Ours: table.Median(rate), Bars: []table.Bar{{Limit: 80_000}}},
		{What: "join in a long line", Unit: "CPU µs", Ours: table.Median(cpu)},
		{What: "… store calls, ticks included", Unit: "a join", Ours: table.Median(calls), Counted: true, Bars: []table.Bar{{Limit: 0.01, AtMost: true}}},
	}, nil
}
