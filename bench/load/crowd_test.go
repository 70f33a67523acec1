package load

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// The rooms break one promise each.
func TestCrowd_FindsBrokenPromises(t *testing.T) {
	const visitors = 40
	tests := []struct {
		fault   string
		opt     crowdOptions
		kept    bool
		lost    string
		order   bool
		rate    bool
		check   func(*testing.T, *room, CrowdReport)
		healthy bool // no errors at all
	}{
		{fault: "none", kept: true, order: true, rate: true, healthy: true},
		{fault: "none, arriving slowly", opt: crowdOptions{Arrive: 100 * time.Millisecond}, kept: true, order: true, rate: true, healthy: true},
		{fault: "none, a third stops polling", opt: crowdOptions{Silent: 0.34}, kept: true, order: true, rate: true, healthy: true,
			check: func(t *testing.T, r *room, got CrowdReport) {
				if got.Gone == 0 || len(r.left) != 0 || got.Admitted+got.Gone != visitors {
					t.Errorf("%d gone, %d left the queue, %d admitted", got.Gone, len(r.left), got.Admitted)
				}
			}},
		{fault: "connections break", kept: true, order: true, rate: true},
		{fault: "closed at first", kept: true, order: true, rate: true},
		{fault: "too fast", order: true},
		{fault: "last come first served", rate: true},
		{fault: "a token is refused", lost: "token refused (401)", order: true, rate: true},
		{fault: "a place expires", lost: "expired: late", order: true, rate: true},
		{fault: "a place moves back", lost: "moved back", order: true, rate: true},
		{fault: "passes do not work", order: true, rate: true},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			r, url := newRoom(t, tt.fault)
			client, err := visitor.New(visitor.Options{URLs: []string{url}, Room: "default", Connections: 8, Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			opt := tt.opt
			opt.Visitors, opt.Requests = visitors, 2
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := newCrowd(opt, client, 8)
			c.run(ctx)
			got := c.report(verdict.Milli(time.Second/roomEvery)*1000, roomBurst*1000)
			if !got.allIn() {
				t.Errorf("not every visitor was admitted: %+v", got)
			}
			if got.Kept != tt.kept || got.Order.Kept() != tt.order || got.Rate.Kept() != tt.rate {
				t.Errorf("kept %v, order %+v, rate %+v", got.Kept, got.Order, got.Rate)
			}
			if n := got.Lost[tt.lost]; tt.lost != "" && n != 1 || tt.lost == "" && len(got.Lost) != 0 {
				t.Errorf("lost %v, want %q", got.Lost, tt.lost)
			}
			if errs := got.ConnErrors + got.ServerErrors + got.RefusedJoins; tt.healthy && errs > 0 {
				t.Errorf("%d errors: %v", errs, got.Unexpected)
			}
			if tt.fault == "passes do not work" && got.BadPasses != visitors*2 {
				t.Errorf("%d passes refused, want %d", got.BadPasses, visitors*2)
			}
			if tt.check != nil {
				tt.check(t, r, got)
			}
		})
	}
}

func TestCrowd_ReportsWhenInterrupted(t *testing.T) {
	_, url := newRoom(t, "none")
	client, err := visitor.New(visitor.Options{URLs: []string{url}, Room: "default", Connections: 4, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c := newCrowd(crowdOptions{Visitors: 1000, Arrive: time.Hour}, client, 4)
	cancel()
	c.run(ctx)
	if r := c.report(-1, 0); r.Kept || r.allIn() {
		t.Errorf("an interrupted run counts as kept: %+v", r)
	}
}

func TestCommand_PrintsReports(t *testing.T) {
	_, url := newRoom(t, "none")
	_, fast := newRoom(t, "too fast")
	tests := []struct {
		name   string
		args   []string
		broken bool
		err    string
		out    []string
	}{
		{name: "a crowd", args: []string{"--url", url, "--visitors", "20", "--arrive", "all-at-once", "--rate", "200", "--burst", "10"},
			out: []string{"everybody  in", "places     none lost", "order      kept: 0 inversions", "rate       kept", "210 allowed"}},
		{name: "json", args: []string{"--url", url, "--visitors", "5", "--arrive", "0s", "--requests", "0", "--json"}, out: []string{`"admitted": 5`, `"kept": true`}},
		{name: "broken", args: []string{"--url", fast, "--visitors", "20", "--arrive", "all-at-once", "--requests", "0", "--rate", "5", "--burst", "5"},
			broken: true, out: []string{"rate       BROKEN"}},
		{name: "fill", args: []string{"fill", "--url", url, "--tickets", "30", "--hold", "10ms"}, out: []string{"30 joined", "none lost"}},
		{name: "fill as JSON", args: []string{"fill", "--url", url, "--tickets", "5", "--json"}, out: []string{`"joined": 5`, `"kept": true`}},
		{name: "tickets", args: []string{"fill", "--tickets", "0"}, err: "--tickets 0"},
		{name: "tokens that are not there", args: []string{"polls", "--tokens-in", "/nonexistent"}, err: "--tokens-in: open /nonexistent"},
		{name: "polls", args: []string{"polls", "--url", url, "--tokens", "20", "--connections", "4", "--rate", "500", "--duration", "200ms"},
			out: []string{"polls ", "20 tokens and 0 passes", "errors     0"}},
		{name: "mix", args: []string{"mix", "--url", url, "--tokens", "20", "--connections", "4", "--rate", "500", "--duration", "200ms"},
			out: []string{"polls ", "proxied ", "joins ", "errors     0"}},
		{name: "as fast as answered, two threads", args: []string{"mix", "--url", url, "--tokens", "20", "--passes", "1", "--connections", "4", "--threads", "2", "--rate", "0", "--duration", "100ms"},
			out: []string{"as fast as answered", "proxied ", "errors     0"}},
		{name: "ramp", args: []string{"polls", "--url", url, "--tokens", "20", "--connections", "4", "--rate", "500", "--ramp", "100ms", "--duration", "100ms"},
			out: []string{"polls      50 ", "errors     0"}},
		{name: "ramp without a rate", args: []string{"mix", "--rate", "0", "--ramp", "1s"}, err: "--ramp 1s"},
		{name: "TLS", args: []string{"mix", "--url", "https://127.0.0.1"}, err: "plain HTTP"},
		{name: "arrive", args: []string{"--arrive", "soon"}, err: `--arrive "soon"`},
		{name: "url", args: []string{"--url", "ftp://x"}, err: `url "ftp://x"`},
		{name: "burst alone", args: []string{"--burst", "5"}, err: "--burst without --rate"},
		{name: "rate places", args: []string{"--rate", "0.00001"}, err: "--rate 1e-05"},
		{name: "visitors", args: []string{"--visitors", "0"}, err: "--visitors 0"},
		{name: "more leave than come", args: []string{"--silent", "1.6"}, err: "--silent 1.6"},
		{name: "shares", args: []string{"mix", "--polls", "0", "--proxied", "0", "--joins", "0"}, err: "--polls, --proxied and --joins"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := Command()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs(tt.args)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := cmd.ExecuteContext(ctx)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("err %v, want %q", err, tt.err)
				}
			case tt.broken != errors.Is(err, ErrBroken) || err != nil && !tt.broken:
				t.Errorf("err %v, broken wanted %v\n%s", err, tt.broken, &out)
			}
			for _, want := range tt.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
		})
	}
}

func TestBlend_IsEvenlySpread(t *testing.T) {
	const p, x, j = poll, proxied, join
	for _, tt := range []struct {
		b    blend
		want []byte
	}{
		{blend{Polls: 1}, []byte{p}},
		{blend{Polls: 3, Proxied: 1}, []byte{p, p, x, p}},
		{blend{Polls: 2, Proxied: 2, Joins: 1}, []byte{p, x, j, p, x}},
	} {
		if got, err := tt.b.cycle(); !bytes.Equal(got, tt.want) || err != nil {
			t.Errorf("%+v: %v, %v; want %v", tt.b, got, err, tt.want)
		}
	}
	cycle, err := blend{Polls: 60, Proxied: 35, Joins: 5}.cycle()
	if n := bytes.Count(cycle, []byte{join}); err != nil || len(cycle) != 100 || n != 5 {
		t.Errorf("%d joins in %d, %v", n, len(cycle), err)
	}
}
