package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/visitor"
)

// The rooms break one promise each.
func TestFill_FindsBrokenPromises(t *testing.T) {
	const tickets = 60
	tests := []struct {
		fault string
		kept  bool
		lost  string
		hold  time.Duration // longer than the others
		check func(*testing.T, FillReport)
	}{
		{fault: "none", kept: true},
		{fault: "tokens are renewed", kept: true},
		{fault: "the store is slow", kept: true, check: func(t *testing.T, r FillReport) {
			if r.Unconfirmed == 0 {
				t.Error("every first poll was confirmed")
			}
		}},
		{fault: "closed at first", kept: true, check: func(t *testing.T, r FillReport) {
			if r.Errors["join: status 503"] == 0 {
				t.Errorf("no join was refused: %v", r.Errors)
			}
		}},
		{fault: "connections break", kept: true, check: func(t *testing.T, r FillReport) {
			if len(r.Errors) == 0 {
				t.Error("no connection broke")
			}
		}},
		{fault: "a position grows", hold: settleTime + 3*time.Second, check: func(t *testing.T, r FillReport) {
			if g := r.Grew; g.Polls == 0 || g.By == 0 || g.By > 7 {
				t.Errorf("grew %+v, want polls by up to 7", g)
			}
		}},
		{fault: "a position grows in the rush", kept: true, check: func(t *testing.T, r FillReport) {
			if r.GrewEarly.Polls == 0 {
				t.Error("nothing grew")
			}
		}},
		{fault: "positions are reversed", check: func(t *testing.T, r FillReport) {
			if k := r.Ranks[0]; k.Kept || k.Swapped == 0 || k.Max < 0.5 {
				t.Errorf("%+v", k)
			}
		}},
		{fault: "positions are off by a tenth", kept: true, check: func(t *testing.T, r FillReport) {
			if k := r.Ranks[0]; !k.Compared || k.Max < 0.05 {
				t.Errorf("%+v", k)
			}
		}},
		{fault: "last come first served", check: func(t *testing.T, r FillReport) {
			if r.Order.Kept() {
				t.Errorf("%+v", r.Order)
			}
		}},
		{fault: "a token is refused", lost: "token refused (401)"},
		{fault: "a place expires", lost: "expired: late"},
		{fault: "a place moves back", lost: "moved back"},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			room, url := newRoom(t, tt.fault)
			room.mu.Lock()
			room.pause = 0.1
			if tt.fault != "last come first served" {
				room.every = time.Hour // or no tickets are left for the sample
			}
			room.mu.Unlock()
			o := fillOptions{Tickets: tickets, Sample: 40, Timeout: 30 * time.Second, Hold: max(tt.hold, 300*time.Millisecond), TokensOut: filepath.Join(t.TempDir(), "tokens")}
			r := runFill(t.Context(), visitor.Options{URLs: []string{url}, Room: "default", Connections: 8, Timeout: 5 * time.Second}, o)
			if len(r.Ranks) == 0 && r.Waiting > 0 {
				t.Fatalf("no sample was taken: %+v", r)
			}
			if r.Kept != tt.kept || r.Joined != tickets || r.FillSeconds == 0 || r.JoinSeconds > r.FillSeconds {
				t.Errorf("%+v", r)
			}
			if n := r.Lost[tt.lost]; tt.lost != "" && n != 1 || tt.lost == "" && len(r.Lost) != 0 {
				t.Errorf("lost %v, want %q", r.Lost, tt.lost)
			}
			if p, err := loadTokens(o.TokensOut); err != nil || len(p.Waiting) < int(r.Waiting) {
				t.Errorf("%v, %v; want the tokens of %d waiting tickets", p, err, r.Waiting)
			}
			if tt.check != nil {
				tt.check(t, r)
			}
		})
	}
}

func TestFill_EndsWhereJoinsAreRefused(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	to := visitor.Options{URLs: []string{s.URL}, Room: "default", Connections: 4, Timeout: 5 * time.Second}
	if err := rig.Try(func() { runFill(t.Context(), to, fillOptions{Tickets: 10, Timeout: time.Minute}) }); err == nil || !strings.Contains(err.Error(), "status 404") {
		t.Errorf("%v, want the status of the joins", err)
	}
	_, to.URLs[0] = newRoom(t, "none")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := runFill(ctx, to, fillOptions{Tickets: 10, Timeout: time.Minute, Hold: time.Hour}); r.Kept {
		t.Errorf("an interrupted fill counts as kept: %+v", r)
	}
}

// Each position differs from the rank by at most e, as a share of the queue.
func TestJudgeRanks_FindsTheError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "waiting")
		e := rapid.SampledFrom([]float64{0, 0.001, 0.1}).Draw(t, "error")
		draw := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		orders := make([]int64, n)
		var sample []shownPosition
		worst := int64(0)
		for i := range orders {
			orders[i] = int64(i) * 7
			if draw.IntN(3) == 0 {
				by := int64(e * float64(n) * (2*draw.Float64() - 1))
				worst = max(worst, by, -by)
				sample = append(sample, shownPosition{orders[i], max(1, int64(i)+1+by)})
			}
		}
		draw.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
		r := judgeRanks(sample, orders, int64(n))
		if r.Sampled > 0 && (!r.Compared || r.Max > float64(worst)/float64(n)+1e-9 || e == 0 && (r.Swapped > 0 || !r.Kept)) {
			t.Fatalf("%+v, the worst is off by %d of %d", r, worst, n)
		}
		if others := judgeRanks(sample, orders, int64(2*n)+20); others.Compared {
			t.Fatalf("compared with ranks, though others wait too: %+v", others)
		}
	})
}
