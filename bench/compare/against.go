package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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
		contests, requests := make([]contest, len(builds)), make([]request, len(builds))
		for i := range builds {
			contests[i], requests[i] = builds[i].contest, kind.request
			requests[i].Credentials = kind.file(builds[i])
		}
		shots := b.rivals(kind.what, contests, requests)
		ratios, tails := make([]float64, b.rounds), make([]float64, b.rounds)
		for n := range ratios {
			ratios[n], tails[n] = ratio(shots[1][n].CPU, shots[0][n].CPU), ratio(shots[1][n].P99, shots[0][n].P99)
		}
		rows = append(rows,
			table.Row{What: kind.what, Unit: "CPU µs", Peers: []float64{median(shots[0]).CPU}, Ours: median(shots[1]).CPU},
			table.Row{What: "… median of the rounds' ratios", Unit: "×", Ours: table.Median(ratios), Bars: []table.Bar{{Limit: b.limit(), AtMost: true}}},
			table.Row{What: "… standard error of a ratio", Unit: "×", Ours: standardError(ratios)})
		if b.hooked {
			rows = append(rows,
				table.Row{What: "… p99", Unit: "ms", Peers: []float64{median(shots[0]).P99}, Ours: median(shots[1]).P99},
				table.Row{What: "… median of the rounds' ratios of p99", Unit: "×", Ours: table.Median(tails), Bars: []table.Bar{{Limit: 1.02, AtMost: true}}})
		}
	}
	return rows
}

// limit is the bar of a ratio.
func (b *bench) limit() float64 {
	if b.traced > 0 && b.against == "" {
		return 1.03
	}
	return 1.05
}

// standardError returns the standard error of the mean of figures.
func standardError(figures []float64) float64 {
	n, mean, squares := float64(len(figures)), 0.0, 0.0
	for _, x := range figures {
		mean += x / n
	}
	for _, x := range figures {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares / max(1, n-1) / n)
}

// rivals measures servers in turns, or at the same time with --together. Then other work on the machine, which comes and goes within a round,
// has the same effect on both.
func (b *bench) rivals(what string, contests []contest, requests []request) [][]shot {
	round := func(n int) string { return fmt.Sprintf("%s, round %d of %d", what, n, b.rounds) }
	if !b.together {
		return table.Turns(b.rounds, len(contests), func(n, i int) shot { return b.fire(round(n), contests[i], requests[i]) })
	}
	all := make([][]shot, len(contests))
	for n := range b.rounds {
		for i, s := range b.fireTogether(round(n+1), contests, requests) {
			all[i] = append(all[i], s)
		}
	}
	return all
}

// build joins visitors to the rooms of a gateway.
func (b *bench) build(g *rig.Gateway) build {
	passes, queue := b.gather(g, "open", 0, 100), b.gather(g, "line", b.waiting+front, 0)
	return build{contest{g.Child, g.Addr},
		b.credentials("passes-"+g.Name, passes.Admitted, func(c visitor.Credentials) string { return c.Pass }),
		b.credentials("tokens-"+g.Name, queue.Waiting[front:], func(c visitor.Credentials) string { return c.Token })}
}

// received counts the events that the webhook has received.
var received atomic.Int64

// webhook starts the receiver of a webhook and returns the settings that send to it.
func (b *bench) webhook() string {
	at := b.Serve(func(_ http.ResponseWriter, r *http.Request) {
		if text, err := io.ReadAll(r.Body); err == nil && json.Valid(text) {
			received.Add(1)
		}
	})
	secret := b.File("webhook.secret", "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n")
	return fmt.Sprintf("webhooks: [{name: crm, url: \"http://%s\", secret_file: %q, allow_private: true}]\n", at, secret)
}

// changes changes a room that no request is for twice a second, so that each turn of the webhooks has an event to send, until stop is
// called. stop ends the run if no event has arrived.
func (b *bench) changes() (stop func()) {
	ctx, cancel := context.WithCancel(b)
	var over sync.WaitGroup
	over.Go(func() {
		for n := 0; rig.Sleep(ctx, 500*time.Millisecond); n++ {
			_, _, err := rig.Request(ctx, 10*time.Second, http.MethodPatch, "http://"+b.gateway.Admin+"/admin/v1/rooms/slow",
				fmt.Appendf(nil, `{"message":"event %d"}`, n), "Content-Type", "application/json")
			if err != nil && ctx.Err() == nil {
				rig.Say("the change of the room slow: %v", err)
			}
		}
	})
	return func() {
		cancel()
		over.Wait()
		rig.Require(received.Load() > 0, "no event has reached the webhook")
		rig.Say("%d events have reached the webhook", received.Load())
	}
}
