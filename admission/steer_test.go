package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// pilots are gateways of one adaptive room on a clock of the test's, second by second.
type pilots struct {
	t      *testing.T
	client redis.UniversalClient
	prefix string
	now    *atomic.Int64
	policy Policy
	cores  []*Core
	joined uint16
}

func newPilots(t *testing.T, p Policy, n int) *pilots {
	t.Helper()
	s := &pilots{t: t, client: redistest.Client(t), prefix: redistest.Prefix(t), now: new(atomic.Int64), policy: p}
	s.now.Store(1_780_000_000_000_000)
	for range n {
		s.another()
	}
	return s
}

func (s *pilots) another() *Core {
	s.t.Helper()
	core, err := New(Options{Client: s.client, Prefix: s.prefix, Timeout: patience, Gateway: fmt.Sprintf("g%d", len(s.cores)),
		Log: slog.New(slog.DiscardHandler), Now: s.now.Load})
	if err != nil {
		s.t.Fatal(err)
	}
	s.cores = append(s.cores, core)
	core.Room("sale", s.policy)
	s.ok(s.room(len(s.cores) - 1).Tick(s.t.Context()))
	return core
}

func (s *pilots) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *pilots) room(i int) *Room { return s.cores[i].Room("sale", s.policy) }

// seconds runs those gateways second by second. Each records so many requests of that latency a second, and a queue uses the rate.
func (s *pilots) seconds(n int, latency time.Duration, failed bool, gateways ...int) {
	s.t.Helper()
	ctx := s.t.Context()
	for range n {
		for range 4 {
			s.now.Add(250_000)
			for _, i := range gateways {
				r := s.room(i)
				for r.Snapshot().Waiting < 15 {
					s.joined++
					_, _, err := r.Join(ctx, Arrival{ID: ID{0: byte(s.joined >> 8), 1: byte(s.joined), 2: 9}, Interval: time.Minute})
					s.ok(err)
					if s.joined%15 == 0 {
						break
					}
				}
				s.ok(r.Tick(ctx))
			}
		}
		for _, i := range gateways {
			for range 30 {
				s.cores[i].Origin("shop").Add(latency, failed)
			}
			s.ok(s.cores[i].PublishHealth(ctx))
		}
		for _, i := range gateways {
			s.ok(s.room(i).Steer(ctx))
		}
	}
	for _, i := range gateways {
		s.now.Add(250_000)
		s.ok(s.room(i).Tick(ctx))
	}
}

func (s *pilots) leaders() (n int) {
	for i := range s.cores {
		if at := s.room(i).Steering(); at != nil && at.Leader {
			n++
		}
	}
	return n
}

func adaptivePolicy() Policy {
	p := steady
	p.Strategy, p.Origin, p.Rate, p.Burst, p.MinRate, p.MaxRate = StrategyAdaptive, "shop", 10_000, 0, 2_000, 40_000
	p.MinWait = time.Microsecond
	p.Adaptive = Adaptive{Mode: adaptive.ModeGradient, TargetP95: 100 * time.Millisecond, MaxErrorRate: 0.05}
	return p
}

const (
	well = 20 * time.Millisecond
	ill  = 500 * time.Millisecond
)

// One gateway leads, the rate follows what both measure, and all that use the rate get the one in force.
func TestAdaptive_RateFollowsOrigin(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 2)
	if snap := s.room(0).Snapshot(); snap.Policy.Rate != 10_000 || snap.Target != 0 || snap.Policy.Burst != 10_000 {
		t.Fatalf("begins with %+v", snap.Policy)
	}
	s.seconds(10, well, false, 0, 1)
	if s.leaders() != 1 {
		t.Fatalf("%d leaders", s.leaders())
	}
	snap := s.room(1).Snapshot()
	if snap.Target <= 10_000 || snap.Policy.Rate != snap.Target || snap.Rate != snap.Target || snap.Policy.Burst != snap.Target {
		t.Fatalf("after 10 s without trouble: target %d, policy %+v", snap.Target, snap.Policy)
	}
	if at := s.room(1).Steering(); at.Level != adaptive.Healthy || at.Origin.Gateways != 2 || at.Origin.Requests != 180 || at.Origin.Waiting < 10 {
		t.Fatalf("both see %+v", at)
	}
	if minutes, err := s.room(0).History(t.Context(), 1); err != nil || !minutes[0].Found || minutes[0].Rate != snap.Target {
		t.Fatalf("history: %+v %v", minutes, err)
	}
	grown := snap.Target
	s.seconds(20, ill, false, 0, 1)
	if snap := s.room(0).Snapshot(); snap.Target > grown*2/3 || s.room(0).Steering().Level != adaptive.Unhealthy {
		t.Fatalf("an origin that is slow keeps %d of %d", snap.Target, grown)
	}
	s.seconds(20, well, true, 0, 1)
	if snap := s.room(0).Snapshot(); snap.Target != 2_000 {
		t.Fatalf("an origin that fails is given %d, not the least", snap.Target)
	}
}

// Another gateway continues where the leader stopped. The former leader can no longer set the rate.
func TestAdaptive_LeaderIsFenced(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 2)
	s.seconds(5, well, false, 0)
	if at := s.room(0).Steering(); !at.Leader {
		t.Fatal("the only one does not lead")
	}
	before := s.room(0).Snapshot().Target
	s.seconds(1, well, false, 1)
	if s.room(1).Steering().Leader {
		t.Fatal("a second one leads beside the first")
	}
	s.seconds(5, ill, false, 1) // the first is silent; its lease ends
	if !s.room(1).Steering().Leader {
		t.Fatal("nobody took over")
	}
	after := s.room(1).Snapshot().Target
	if after > before*9/10 || after < before/3 {
		t.Fatalf("the second came to %d from %d: it did not go on there", after, before)
	}
	// The first wakes with what it thought then.
	s.ok(s.room(0).Steer(t.Context()))
	s.ok(s.room(0).Steer(t.Context()))
	if s.ok(s.room(1).Tick(t.Context())); s.room(1).Snapshot().Target != after {
		t.Fatalf("a former leader set %d", s.room(1).Snapshot().Target)
	}
	if s.leaders() != 1 {
		t.Fatalf("%d leaders", s.leaders())
	}
}

// While nobody is admitted, or an operator has set the rate, the controller keeps its rate. The operator's rate counts.
func TestAdaptive_HoldsRate(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 1)
	s.seconds(5, well, false, 0)
	found := s.room(0).Snapshot().Target
	rate := int64(50_000)
	s.ok(s.room(0).Patch(t.Context(), "ann", Live{Rate: &rate}))
	s.seconds(8, ill, false, 0)
	if snap := s.room(0).Snapshot(); snap.Target != found || snap.Policy.Rate != rate {
		t.Fatalf("pinned to %d: in force %d, found %d, before %d", rate, snap.Policy.Rate, snap.Target, found)
	}
	s.ok(s.room(0).Patch(t.Context(), "ann", Live{Clear: []string{"rate"}}))
	if snap := s.room(0).Snapshot(); snap.Policy.Rate != found {
		t.Fatalf("cleared: %d, before %d", snap.Policy.Rate, found)
	}
	s.ok(s.room(0).Pause(t.Context(), "ann"))
	s.seconds(8, ill, false, 0)
	if snap := s.room(0).Snapshot(); snap.Target != found {
		t.Fatalf("paused: %d, before %d", snap.Target, found)
	}
	s.ok(s.room(0).Resume(t.Context(), "ann"))
	s.seconds(2, ill, false, 0)
	if snap := s.room(0).Snapshot(); snap.Target >= found {
		t.Fatalf("resumed: %d, before %d", snap.Target, found)
	}
}

// An origin that stays slow has the least rate, and the room reports for how long that has not improved the origin. An
// improvement, a pause, and a rate set by an operator end that time.
func TestAdaptive_ReportsTimeAtMinRate(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	p := adaptivePolicy()
	p.Adaptive.Mode = adaptive.ModeStep
	s := newPilots(t, p, 2)
	at := func() *Steering { return s.room(1).Steering() }
	s.seconds(5, well, false, 0, 1)
	if d := at().AtMin; d != 0 {
		t.Fatalf("a healthy origin: %s", d)
	}
	s.seconds(40, ill, false, 0, 1)
	before := at().AtMin
	if snap := s.room(1).Snapshot(); snap.Policy.Rate != 2_000 || before <= 0 || before >= Unmoved {
		t.Fatalf("after 40 s at %d: %s", snap.Policy.Rate, before)
	}
	s.seconds(50, ill, false, 0, 1)
	if d := at().AtMin; d < Unmoved || d < before+50*time.Second {
		t.Fatalf("after 90 s: %s", d)
	}
	rate := int64(2000)
	s.ok(s.room(0).Patch(t.Context(), "ann", Live{Rate: &rate}))
	s.seconds(2, ill, false, 0, 1)
	if d := at().AtMin; d != 0 {
		t.Errorf("while an operator holds the rate: %s", d)
	}
	s.ok(s.room(0).Patch(t.Context(), "ann", Live{Clear: []string{"rate"}}))
	s.seconds(3, ill, false, 0, 1)
	if d := at().AtMin; d <= 0 || d > 5*time.Second {
		t.Errorf("let go again: %s", d)
	}
	s.seconds(40, well, false, 0, 1)
	if d := at().AtMin; d != 0 {
		t.Errorf("an origin that got better: %s", d)
	}
}

// While bulk work that yields to visitors is reported, the room keeps its rate for the time that this work may take to slow down. The
// room lowers its rate once no work is reported any more, and after that time even while work is.
func TestAdaptive_WaitsForJobsToSlowDown(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 1)
	s.seconds(5, well, false, 0)
	found := func() int64 { return s.room(0).Snapshot().Target }
	before := found()
	s.ok(s.cores[0].ReportJobs(t.Context(), "shop"))
	s.seconds(3, ill, false, 0)
	if found() != before || s.room(0).Steering().Level != adaptive.Unhealthy {
		t.Fatalf("beside jobs: %d, before %d, %s", found(), before, s.room(0).Steering().Level)
	}
	s.seconds(3, ill, false, 0) // they ended a while ago
	if found() >= before {
		t.Fatalf("without jobs: %d, before %d", found(), before)
	}
	s.seconds(10, well, false, 0)
	before = found()
	for range 8 {
		s.ok(s.cores[0].ReportJobs(t.Context(), "shop"))
		s.seconds(1, ill, false, 0)
	}
	if found() >= before {
		t.Fatalf("beside jobs that do not give way: %d, before %d", found(), before)
	}
}

// In shadow mode the controller computes and reports a rate, and the room admits at the configured rate.
func TestAdaptive_ShadowKeepsConfiguredRate(t *testing.T) {
	t.Parallel()
	p := adaptivePolicy()
	p.Adaptive.Shadow = true
	s := newPilots(t, p, 1)
	s.seconds(3, well, false, 0)
	s.seconds(4, ill, false, 0)
	if snap := s.room(0).Snapshot(); snap.Target == 0 || snap.Target > 9_000 || snap.Policy.Rate != 10_000 || snap.Rate != 10_000 {
		t.Fatalf("found %d, in force %d and %d", snap.Target, snap.Rate, snap.Policy.Rate)
	}
}

// The next leader sets the rate again in a store that lost it, also if it never led before.
func TestAdaptive_RateSurvivesEmptiedStore(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 2)
	s.seconds(20, well, false, 0, 1)
	found := s.room(0).Snapshot().Target
	if found < 12_000 {
		t.Fatalf("found %d", found)
	}
	for _, leader := range []bool{true, false} {
		keys, err := s.client.Keys(t.Context(), s.prefix+":{room:*").Result()
		s.ok(err)
		s.ok(s.client.Del(t.Context(), keys...).Err())
		for i := range s.cores {
			if s.room(i).Steering().Leader == leader {
				s.ok(s.room(i).Tick(t.Context()))
				if snap := s.room(i).Snapshot(); snap.Rate != found {
					t.Fatalf("led before: %t, before anybody leads %d is in force, was %d", leader, snap.Rate, found)
				}
				s.now.Add(1_000_000)
				s.ok(s.room(i).Steer(t.Context()))
				s.ok(s.room(i).Steer(t.Context()))
				s.now.Add(1_000_000)
				s.ok(s.room(i).Tick(t.Context()))
				if snap := s.room(i).Snapshot(); snap.Target != found || snap.Rate != found {
					t.Fatalf("led before: %t, the store has %d, was %d", leader, snap.Target, found)
				}
				break
			}
		}
		for i := range s.cores {
			s.ok(s.room(i).Tick(t.Context()))
			s.ok(s.room(i).Steer(t.Context()))
		}
	}
}

// scores is a scorer of the test's.
type scores struct {
	asked atomic.Int64
	give  func() (float64, error)
}

func (s *scores) Score(context.Context) (float64, error) {
	s.asked.Add(1)
	return s.give()
}

// Only the leader asks for an external score. The score counts beside the measurements, and is forgotten when no new one
// arrives.
func TestAdaptive_UsesScore(t *testing.T) {
	t.Parallel()
	var value atomic.Int64 // hundredths; negative: an error
	give := func() (float64, error) {
		if v := value.Load(); v >= 0 {
			return float64(v) / 100, nil
		}
		return 0, errors.New("away")
	}
	p := adaptivePolicy()
	sc := [2]*scores{{give: give}, {give: give}}
	s := newPilots(t, p, 0)
	s.policy.Adaptive.Scorer = sc[0]
	s.another()
	s.seconds(1, well, false, 0) // it leads
	level := func(want adaptive.Level, scored bool) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); ; {
			s.seconds(1, well, false, 0)
			at := s.room(0).Steering()
			if at.Level == want && at.Origin.Scored == scored {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%+v, want %v", at, want)
			}
		}
	}
	value.Store(0)
	level(adaptive.Unhealthy, true)
	value.Store(100)
	level(adaptive.Healthy, true)
	value.Store(50)
	level(adaptive.Strained, true)
	value.Store(-1)
	level(adaptive.Healthy, false) // unknown after 15 s
	value.Store(200)               // no score
	s.seconds(12, well, false, 0)
	if at := s.room(0).Steering(); at.Origin.Scored {
		t.Fatalf("a score of 2 counts: %+v", at)
	}
	asked := sc[0].asked.Load()
	s.policy.Adaptive.Scorer = sc[1]
	s.another()
	s.policy.Adaptive.Scorer = sc[0]
	s.seconds(10, well, false, 0)
	if s.room(0).Steering().Leader && sc[1].asked.Load() != 0 || sc[0].asked.Load() == asked {
		t.Fatalf("the leader asked %d times, the other %d", sc[0].asked.Load()-asked, sc[1].asked.Load())
	}
}

// The reports of gateways on an origin are merged and forgotten within seconds. With few requests a longer span counts.
func TestOriginHealth_MergesReports(t *testing.T) {
	t.Parallel()
	s := newPilots(t, adaptivePolicy(), 3)
	ctx := t.Context()
	read := func() OriginHealth {
		t.Helper()
		h, err := s.cores[2].OriginHealth(ctx, "shop")
		s.ok(err)
		return h
	}
	if h := read(); h.Gateways != 0 || h.Requests != 0 || h.P95 != 0 {
		t.Fatalf("of nothing: %+v", h)
	}
	for range 2 {
		for i, latency := range []time.Duration{well, ill} {
			for n := range 50 {
				s.cores[i].Origin("shop").Add(latency, n == 0)
			}
			s.ok(s.cores[i].PublishHealth(ctx))
		}
		s.now.Add(1_000_000)
	}
	h := read()
	if h.Gateways != 2 || h.Requests != 200 || h.Errors != 4 || h.Span != 3*time.Second || h.P95 < 400*time.Millisecond || h.P95 > 600*time.Millisecond {
		t.Fatalf("%+v", h)
	}
	for range 5 { // one goes on, without requests
		s.now.Add(1_000_000)
		s.ok(s.cores[0].PublishHealth(ctx))
	}
	if h := read(); h.Gateways != 1 || h.Requests != 100 || h.Span != 30*time.Second || h.P95 > 2*well {
		t.Fatalf("a silent gateway counts, or the longer span is not used: %+v", h)
	}
	for range 30 {
		s.now.Add(1_000_000)
		s.ok(s.cores[0].PublishHealth(ctx))
	}
	if h := read(); h.Gateways != 0 {
		t.Fatalf("of what was long ago: %+v", h)
	}
	if read().Jobs {
		t.Error("no jobs are reported")
	}
	s.ok(s.cores[0].ReportJobs(ctx, "shop"))
	s.now.Add(4_000_000)
	if !read().Jobs {
		t.Error("jobs are in what was measured of the last seconds")
	}
	s.now.Add(1_000_000)
	if read().Jobs {
		t.Error("jobs ended")
	}
	keys, err := s.client.Keys(ctx, s.prefix+":{origin:*").Result()
	s.ok(err)
	s.ok(s.client.Del(ctx, s.prefix+":{origin:shop}:jobs").Err())
	keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasSuffix(k, "{origin:shop}:jobs") })
	for _, k := range keys {
		if ttl := s.client.TTL(ctx, k).Val(); ttl <= 0 || ttl > time.Minute || !strings.HasSuffix(k, "{origin:shop}:health") {
			t.Errorf("%s ends in %v", k, ttl)
		}
	}
	// An unreadable report of one gateway does not spoil the others. Its waiting visitors count, and it is logged once.
	var log bytes.Buffer
	reader, err := New(Options{Client: s.client, Prefix: s.prefix, Now: s.now.Load, Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.ok(err)
	for n := range 50 {
		s.cores[0].Origin("shop").Add(well, n == 0)
	}
	s.ok(s.cores[0].PublishHealth(ctx))
	s.ok(s.client.HSet(ctx, keys[0], "x", fmt.Sprintf("%d|7|nonsense", s.now.Load())).Err())
	for range 3 {
		h, err := reader.OriginHealth(ctx, "shop")
		if s.ok(err); h.Gateways != 1 || h.Unread != 1 || h.Requests != 50 || h.Waiting != 7 {
			t.Fatalf("with nonsense in the store: %+v", h)
		}
	}
	if n := strings.Count(log.String(), "cannot read a gateway's report"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

// While an event bounds the rate, the controller works within that bound and lowers the rate in force.
func TestAdaptive_EventBoundsRate(t *testing.T) {
	p := adaptivePolicy()
	s := newPilots(t, p, 1)
	s.seconds(3, 10*time.Millisecond, false, 0)
	starts := s.now.Load() + time.Second.Microseconds()
	p.Plan = NewPlan(nil, "sale", &p, []Event{{Name: "quiet", Starts: starts, Ends: starts + time.Hour.Microseconds(), Rate: 2500}})
	s.policy = p
	s.seconds(8, 10*time.Millisecond, false, 0)
	if snap := s.room(0).Snapshot(); snap.Rate != 2500 {
		t.Fatalf("the rate of an event of 2.5 a second is %d", snap.Rate)
	}
	s.seconds(14, 10*time.Second, false, 0) // it goes on to answer as much, so that it takes a while to be sure
	if snap := s.room(0).Snapshot(); snap.Rate >= 2500 {
		t.Errorf("the origin is slow, and the rate still %d", snap.Rate)
	}
}
