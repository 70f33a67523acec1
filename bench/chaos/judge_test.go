package main

import (
	"slices"
	"testing"
)

const sec = 1_000_000

// in returns a guest that joined at its order, was confirmed immediately and admitted at a time.
func in(order, at int64) *record {
	return &record{sent: order - 1000, answered: order + 1000, confirmed: order + 1000, waited: true, order: order, at: at}
}

// after sets when the guest was confirmed.
func (g *record) after(confirmed int64) *record {
	g.confirmed = confirmed
	return g
}

func TestJudge_FindsBrokenPromises(t *testing.T) {
	o := options{rate: 1, burst: 2, maxActive: 3}
	gone := func(g *record, out int64) *record { g.out = out; return g }
	atOnce := func(sent, at int64) *record { return &record{sent: sent, answered: sent + 1000, at: at} }
	waits := func(order int64) *record { g := in(order, 0); g.waiting = true; return g }
	absent := func(g *record) *record { g.absent = true; return g }
	gaveUp := func(order int64) *record { g := in(order, 0); g.left = true; return g }
	long := []span{{20 * sec, 27 * sec}} // of its 7 s, 1.007 pass in the room
	const order, rate, most, early, undelivered = "out of order", "over the limit", "over max_active",
		"admitted while Redis was stopped, or in the presence hold after", "admitted without a response"
	for _, row := range []struct {
		name    string
		guests  []*record
		frozen  []span
		counted int
		broken  []string
	}{
		{name: "in order, at the rate", guests: []*record{in(1*sec, 5*sec), in(2*sec, 5*sec), in(3*sec, 6*sec)}},
		{name: "one too many", guests: []*record{in(1*sec, 5*sec), in(2*sec, 5*sec), in(3*sec, 6*sec-1)}, broken: []string{rate}},
		{name: "room time stands still", guests: []*record{gone(in(1*sec, 19*sec), 20*sec), gone(in(2*sec, 19*sec), 20*sec), in(3*sec, 32*sec), in(4*sec, 32*sec)}, frozen: long},
		{
			name:   "room time runs on",
			guests: []*record{in(1*sec, 19*sec+sec/2), in(2*sec, 19*sec+sec/2), gone(in(3*sec, 27*sec), 33*sec), gone(in(4*sec, 27*sec), 34*sec)},
			frozen: long, broken: []string{rate, most, early},
		},
		{name: "within the hold", guests: []*record{in(1*sec, 31*sec)}, frozen: long, broken: []string{early}},
		{name: "after a short silence", guests: []*record{in(1*sec, 23*sec)}, frozen: []span{{20 * sec, 22 * sec}}},
		{name: "during a short silence", guests: []*record{in(1*sec, 21*sec)}, frozen: []span{{20 * sec, 22 * sec}}, broken: []string{early}},
		{name: "swapped", guests: []*record{in(1*sec, 8*sec), in(2*sec, 6*sec)}, broken: []string{order}},
		{name: "swapped, but absent", guests: []*record{absent(in(1*sec, 8*sec)), in(2*sec, 6*sec)}},
		{name: "swapped before the store held it", guests: []*record{in(1*sec, 8*sec).after(7 * sec), in(2*sec, 6*sec)}},
		{name: "swapped after the store held it", guests: []*record{in(1*sec, 8*sec).after(5 * sec), in(2*sec, 6*sec)}, broken: []string{order}},
		{name: "still waiting after a later order was admitted", guests: []*record{waits(1 * sec), in(2*sec, 6*sec)}, broken: []string{order}},
		{name: "admitted before its place was confirmed", guests: []*record{in(1*sec, 8*sec), in(2*sec, 6*sec).after(0)}},
		{name: "admitted immediately past a waiting guest", guests: []*record{in(1*sec, 8*sec), atOnce(3*sec, 3*sec)}, broken: []string{order}},
		{name: "too many at once", guests: []*record{in(1*sec, 5*sec), in(2*sec, 7*sec), in(3*sec, 9*sec), in(4*sec, 12*sec)}, broken: []string{most}},
		{name: "one has ended its session", guests: []*record{gone(in(1*sec, 5*sec), 11*sec), in(2*sec, 7*sec), in(3*sec, 9*sec), in(4*sec, 12*sec)}},
		{name: "an admission that no guest received", guests: []*record{in(1*sec, 5*sec)}, counted: 2, broken: []string{undelivered}},
		{name: "its guest left the queue", guests: []*record{in(1*sec, 5*sec), gaveUp(2 * sec)}, counted: 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := judge(o, row.guests, row.frozen, row.counted)
			if got := j.broken(o); !slices.Equal(got, row.broken) {
				t.Errorf("broken: %q, want %q: %+v", got, row.broken, j)
			}
		})
	}
}
