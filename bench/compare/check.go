package main

import (
	"fmt"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// checkFields are the fields by which nginx describes a request in a check.
const checkFields = "X-Original-Method: GET|X-Original-URI: /seats?row=7|X-Forwarded-Proto: http|X-Forwarded-For: 192.0.2.7"

// checkRows measures checks of requests with a pass beside status polls, in turns: both are answered from memory. passes and tokens are
// files of credentials.
func (b *bench) checkRows(passes, tokens string) []table.Row {
	kinds := []struct {
		what    string
		contest contest
		request request
	}{
		{"status poll", contest{b.gateway.Child, b.gateway.Addr}, request{Header: "X-Waiting-Room-Token", Method: "GET", Path: "/.waiting-room/line/status", Credentials: tokens}},
		{"check with a pass", contest{b.gateway.Child, b.checks}, request{Header: "X-Waiting-Room-Pass", Method: "GET", Path: "/.waiting-room/check", Credentials: passes, Fields: checkFields}},
	}
	before := rig.Must(b.passed())
	shots := table.Turns(b.rounds, len(kinds), func(n, i int) shot {
		k := &kinds[i]
		return b.fire(fmt.Sprintf("%s, round %d of %d", k.what, n, b.rounds), k.contest, k.request)
	})
	poll, check := median(shots[0]), median(shots[1])
	counted := rig.Must(b.passed()) - before
	rig.Require(counted >= check.Requests, "the gateway counts %.0f checks with a pass, wrk has sent %.0f: something else was measured", counted, check.Requests)
	return []table.Row{
		{What: "check with a pass", Unit: "/s", Ours: check.Rate, Bars: []table.Bar{{Limit: 100_000}}},
		{What: "check with a pass", Unit: "CPU µs", Ours: check.CPU},
		{What: "… of a status poll's CPU", Unit: "×", Ours: ratio(check.CPU, poll.CPU), Bars: []table.Bar{{Limit: 1.1, AtMost: true}}},
		{What: "check with a pass", Unit: "p99 ms", Ours: check.P99},
	}
}
