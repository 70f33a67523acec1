package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// This part fills a room of a gateway with its own redis-server and measures what a long queue costs: memory, polls, joins,
// store commands, and Redis's time of a tick.

const (
	// shortQueue is the length of the queue with which the cost of a poll is compared.
	shortQueue = 1_000
	// wrkTokens is the number of tokens of one run of wrk. Each of its threads keeps a request for each token, and no token is
	// repeated while the gateway still remembers its last poll.
	wrkTokens = 250_000
	// steadyRate and steadyTime are the load while the store's work for polls is counted.
	steadyRate = 20_000
	steadyTime = 15 * time.Second
)

// longQueue is the servers of this part.
type longQueue struct {
	*bench
	redis       *rig.Redis
	gateway     *rig.Gateway
	long, short []string // tokens, in order
}

// millionRows uses places that outlast the run, so that no renewal is measured; in production there is one every quarter of
// absence.
func (b *bench) millionRows() (rows []table.Row) {
	l := &longQueue{bench: b, redis: b.Redis()}
	l.gateway = b.Run.Gateway(b.options.gateway, rig.SharedStore(l.redis.URL())+fmt.Sprintf(`origins:
  - {id: bench, servers: ["http://%s"]}
rooms:
  - {id: long, paths: ["/"], origin: bench, admission: {rate: 1, burst: 1}, queue: {absence: 2h}}
  - {id: short, paths: ["/short"], origin: bench, admission: {rate: 1, burst: 1}, queue: {absence: 2h}}
`, b.origin))
	rows = l.fill()
	keeping, stop := context.WithCancel(b)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	client := rig.Must(visitor.New(visitor.Options{URLs: []string{l.gateway.URL()}, Room: "long", Connections: 1, Timeout: 10 * time.Second}))
	wg.Go(func() { keepFront(keeping, client, l.long) })
	rows = append(rows, l.polls()...)
	rows = append(rows, l.ticks()...)
	return append(rows, l.joins()...)
}

// loadgen fills a room.
func (l *longQueue) loadgen(room string, tickets int, hold time.Duration) (r load.FillReport, tokens []string) {
	file := filepath.Join(l.Dir, room+".tokens")
	rig.Check(rig.Report(l, &r, l.options.loadgen, "fill", "--json", "--url", l.gateway.URL(), "--room", room, "--tickets", fmt.Sprint(tickets),
		"--connections", "512", "--hold", hold.String(), "--tokens-out", file))
	rig.Require(r.FillSeconds > 0 && len(r.Lost) == 0, "loadgen fill: not all are in, or places were lost: %+v", r)
	return r, ordered(file)
}

func (l *longQueue) fill() []table.Row {
	_, l.short = l.loadgen("short", shortQueue+front, 0)
	before := rig.Must(l.redis.Stats(l))
	empty, err := rig.Memory(l.gateway.PID())
	r, tokens := l.loadgen("long", l.million, 2*time.Second)
	l.long = tokens
	after := rig.Must(l.redis.Stats(l))
	full, err2 := rig.Memory(l.gateway.PID())
	rank := 0.0
	for _, k := range r.Ranks {
		rank = max(rank, k.Max)
		rig.Say("ranks: %+v", k)
	}
	rig.Say("%d wait; %v errors of the fill; positions grew in %d polls in the rush by up to %d, then in %d by up to %d", r.Waiting, r.Errors, r.GrewEarly.Polls, r.GrewEarly.By, r.Grew.Polls, r.Grew.By)
	rows := []table.Row{
		{What: fmt.Sprintf("fill with %s tickets: each joins and polls", table.Figure(float64(l.million))), Unit: "s", Ours: r.FillSeconds},
		{What: "… of which the generator needs", Unit: "bytes a ticket", Ours: float64(r.Memory) / float64(l.million)},
		{What: "Redis memory a waiting visitor", Unit: "bytes", Ours: float64(after.Memory-before.Memory) / float64(r.Waiting), Bars: []table.Bar{{Limit: 260, AtMost: true}}},
		{What: "position's error, of the queue", Unit: "%", Ours: 100 * rank, Counted: true, Bars: []table.Bar{{Limit: 0.5, AtMost: true}}},
	}
	if err == nil && err2 == nil {
		rows = append(rows, table.Row{What: "gateway, resident, before the fill", Unit: "MB", Ours: float64(empty) / 1e6},
			table.Row{What: "… after it", Unit: "MB", Ours: float64(full) / 1e6})
	}
	return rows
}

// ordered reads a file of tokens and sorts them by the orders of their places.
func ordered(file string) []string {
	tokens, orders := strings.Fields(string(rig.Must(os.ReadFile(file)))), map[string]int64{}
	for _, t := range tokens {
		c := rig.Must(visitor.Decode(t))
		rig.Require(c.Order != nil, "%s: a token without an order", file)
		orders[t] = *c.Order
	}
	slices.SortFunc(tokens, func(a, b string) int { return cmp.Compare(orders[a], orders[b]) })
	return tokens
}

// sample writes at most so many tokens from behind the front to a file: every n-th, from the offset on.
func (l *longQueue) sample(name string, tokens []string, most, offset int) string {
	tokens = tokens[min(front, len(tokens)):]
	step := max(1, len(tokens)/most)
	var some strings.Builder
	for i, n := offset%step, 0; i < len(tokens) && n < most; i, n = i+step, n+1 {
		some.WriteString(tokens[i] + "\n")
	}
	rig.Require(some.Len() > 0, "there is no token behind the front")
	return l.File(name, some.String())
}

// keepFront polls the front every half a minute, as pages do: an absent front would be deferred with every tick.
func keepFront(ctx context.Context, c *visitor.Client, tokens []string) {
	defer c.Close()
	crs := make([]visitor.Credentials, min(front, len(tokens)))
	for i := range crs {
		crs[i].Token = tokens[i]
	}
	for k := 0; rig.Sleep(ctx, 30*time.Second/time.Duration(len(crs))); k++ {
		if cr := &crs[k%len(crs)]; cr.Pass == "" {
			_, _ = c.Status(cr) // repeated in half a minute
		}
	}
}

// polls compares a poll with nginx's constant response and with a poll in a short queue, in turns.
func (l *longQueue) polls() []table.Row {
	files := [2]string{l.sample("sample0", l.long, wrkTokens, 0), l.sample("sample1", l.long, wrkTokens, 1)}
	short := l.sample("short", l.short, wrkTokens, 0)
	l.startNginx(string(l.fetch(l.gateway.URL()+"/.waiting-room/long/status", "X-Waiting-Room-Token", l.long[len(l.long)/2])))
	ours := contest{l.gateway.Child, l.gateway.Addr}
	shots := table.Turns(l.rounds, 3, func(r, i int) shot {
		file := files[(r-1)%2]
		of := []struct {
			name, room, file string
			contest
		}{{"nginx", "long", file, contest{l.nginx, l.statusAddr}}, {"long", "long", file, ours}, {"short", "short", short, ours}}[i]
		return l.fire(fmt.Sprintf("status poll, %s, round %d of %d", of.name, r, l.rounds), of.contest,
			request{Credentials: of.file, Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/" + of.room + "/status"})
	})
	peer, long, few := median(shots[0]), median(shots[1]), median(shots[2])
	what := fmt.Sprintf("status poll, %s waiting", table.Figure(float64(l.million)))
	return []table.Row{
		{What: what, Unit: "/s", Peers: []float64{peer.Rate}, Ours: long.Rate, Bars: []table.Bar{{Limit: 100_000}, {Limit: 0.5, Ratio: true}}},
		{What: what, Unit: "CPU µs", Peers: []float64{peer.CPU}, Ours: long.CPU},
		{What: what, Unit: "p99 ms", Peers: []float64{peer.P99}, Ours: long.P99},
		{What: fmt.Sprintf("… %s waiting", table.Figure(shortQueue)), Unit: "CPU µs", Ours: few.CPU},
		{What: "… long ÷ short queue, CPU", Unit: "×", Ours: ratio(long.CPU, few.CPU), Bars: []table.Bar{{Limit: 1.2, AtMost: true}}},
	}
}

// ticks measures Redis's work for the long queue without polls and with many, each with another token.
func (l *longQueue) ticks() []table.Row {
	rows := []table.Row{{What: "snapshot", Unit: "bytes", Ours: float64(rig.Must(l.redis.Length(l, "*{room:long}*snapshot")))}}
	behind := l.sample("behind", l.long, l.million, 0)
	var idle rig.Stats
	const idleTime = 10 * time.Second
	for _, polled := range []bool{false, true} {
		before := rig.Must(l.redis.Stats(l))
		var polls load.MixReport
		times := rig.Must(l.redis.Time(l, "{room:long}", func() error {
			if !polled {
				rig.Sleep(l, idleTime)
				return l.Err()
			}
			return rig.Report(l, &polls, l.options.loadgen, "polls", "--json", "--url", l.gateway.URL(), "--room", "long", "--tokens-in", behind, "--connections", "128",
				"--rate", fmt.Sprint(steadyRate), "--duration", steadyTime.String())
		}))
		after := rig.Must(l.redis.Stats(l))
		d, when := after.Since(before), "nobody polls"
		took := after.At.Sub(before.At).Seconds()
		if polled {
			when = fmt.Sprintf("%s polls/s", table.Figure(polls.Achieved))
			n := polls.Achieved * steadyTime.Seconds()
			quiet := float64(idle.Commands) * took / idleTime.Seconds()
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
			at := func(q float64) float64 { return table.Quantile(t, q).Seconds() * 1000 }
			rig.Say("%s, %s: %d calls, p50 %.3f p90 %.3f p99 %.3f max %.3f ms", name, when, len(t), at(0.5), at(0.9), at(0.99), at(1))
			rows = append(rows,
				table.Row{What: fmt.Sprintf("%s, %s", name, when), Unit: "p50 ms", Ours: at(0.5), Bars: []table.Bar{{Limit: 2, AtMost: true}}},
				table.Row{What: "…", Unit: "p99 ms", Ours: at(0.99)})
		}
	}
	if mem, err := rig.Memory(l.gateway.PID()); err == nil {
		rows = append(rows, table.Row{What: "gateway, resident, after polls of all", Unit: "MB", Ours: float64(mem) / 1e6})
	}
	return rows
}

// joins is the last part, since the tickets that join do not poll.
func (l *longQueue) joins() []table.Row {
	none := l.File("none", "\n")
	var shots []shot
	var calls []float64
	for r := range l.rounds {
		before := rig.Must(l.redis.Stats(l))
		s := l.fire(fmt.Sprintf("join in a long queue, round %d of %d", r+1, l.rounds), contest{l.gateway.Child, l.gateway.Addr},
			request{Credentials: none, Method: "POST", Path: "/.waiting-room/long/tickets", Body: "{}"})
		after := rig.Must(l.redis.Stats(l))
		shots, calls = append(shots, s), append(calls, float64(after.Calls-before.Calls)/s.Requests)
	}
	m := median(shots)
	return []table.Row{
		{What: "join in a long queue", Unit: "/s", Ours: m.Rate, Bars: []table.Bar{{Limit: 80_000}}},
		{What: "join in a long queue", Unit: "CPU µs", Ours: m.CPU},
		{What: "… store calls, ticks included", Unit: "a join", Ours: table.Median(calls), Counted: true, Bars: []table.Bar{{Limit: 0.01, AtMost: true}}},
	}
}
