package main

import (
	"fmt"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// build is a gateway of one of the two programs, and the visitors that have joined its rooms.
type build struct {
	contest
	passes, tokens string // files of credentials, one a line
}

// againstRows measures the gateway and the one of --against in turns, and nothing else. The figure of a row is the median ratio
// of the processor time a request in a round, so that a machine that is busy for some rounds does not change it.
func (b *bench) againstRows() (rows []table.Row) {
	older := b.Gateway(b.beside(), b.settings(b.site))
	older.Name = "older"
	builds := []build{b.build(older), b.build(b.gateway)}
	for _, kind := range []struct {
		part, what string
		request    request
		file       func(build) string
	}{
		{"pass", "request with a pass", request{Header: "X-Waiting-Room-Pass", Method: "GET", Path: "/"}, func(s build) string { return s.passes }},
		{"poll", "status poll", request{Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/line/status"}, func(s build) string { return s.tokens }},
		{"join", "join in a long queue", request{Method: "POST", Path: "/.waiting-room/line/tickets", Body: "{}"}, func(build) string { return b.File("none", "\n") }},
	} {
		if !b.wants(kind.part) {
			continue
		}
		shots := table.Turns(b.rounds, len(builds), func(n, i int) shot {
			r := kind.request
			r.Credentials = kind.file(builds[i])
			return b.fire(fmt.Sprintf("%s, round %d of %d", kind.what, n, b.rounds), builds[i].contest, r)
		})
		ratios, tails := make([]float64, b.rounds), make([]float64, b.rounds)
		for n := range ratios {
			ratios[n], tails[n] = ratio(shots[1][n].CPU, shots[0][n].CPU), ratio(shots[1][n].P99, shots[0][n].P99)
		}
		rows = append(rows,
			table.Row{What: kind.what, Unit: "CPU µs", Peers: []float64{median(shots[0]).CPU}, Ours: median(shots[1]).CPU},
			table.Row{What: "… median of the rounds' ratios", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: 1.05, AtMost: true}}})
		if b.hooked {
			rows = append(rows,
				table.Row{What: "… p99", Unit: "ms", Peers: []float64{median(shots[0]).P99}, Ours: median(shots[1]).P99},
				table.Row{What: "… median of the rounds' ratios of p99", Unit: "×", Ours: table.Median(tails), Bars: []table.Bar{{Limit: 1.02, AtMost: true}}})
		}
	}
	return rows
}

// build joins visitors to the rooms of a gateway.
func (b *bench) build(g *rig.Gateway) build {
	passes, queue := b.gather(g, "open", 0, 100), b.gather(g, "line", b.waiting+front, 0)
	return build{contest{g.Child, g.Addr},
		b.credentials("passes-"+g.Name, passes.Admitted, func(c visitor.Credentials) string { return c.Pass }),
		b.credentials("tokens-"+g.Name, queue.Waiting[front:], func(c visitor.Credentials) string { return c.Token })}
}
