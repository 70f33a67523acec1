package admission_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/internal/short"
)

// advisedVisitor polls exactly when the last response advised, until it is admitted or leaves.
type advisedVisitor struct {
	t     Ticket
	next  int64 // of the clock, µs
	goes  int64 // leaves silently at that time; 0: stays
	in    int64 // admitted_at
	ended State
}

func (v *advisedVisitor) gone(now int64) bool { return v.goes > 0 && now >= v.goes }

// advisedCrowd is visitors of one room who poll through several gateways, each time advised as the gateway would advise them.
type advisedCrowd struct {
	t        *testing.T
	s        *stage
	gateways []*stagedGateway
	dice     *rand.Rand
	keyed    bool // as with a proof of work, an account or an Idempotency-Key
	all      []*advisedVisitor
	polls    int
}

func newAdvisedCrowd(t *testing.T, seed uint64, gateways int, p Policy) *advisedCrowd {
	t.Helper()
	m := &advisedCrowd{t: t, s: newStage(t), dice: rand.New(rand.NewPCG(seed, 1))}
	for range gateways {
		g := m.s.gateway(p)
		g.tick()
		m.gateways = append(m.gateways, g)
	}
	return m
}

func (m *advisedCrowd) now() int64   { return m.s.us.Load() }
func (m *advisedCrowd) first() *Room { return m.gateways[0].room }

// join adds n visitors, 50,000 a second. goes returns after how long a visitor leaves; 0: never.
func (m *advisedCrowd) join(n int, goes func() time.Duration) {
	m.t.Helper()
	for i := range n {
		m.s.pass(20 * time.Microsecond) // no two have the same order
		m.s.serial++
		var id ID
		binary.BigEndian.PutUint64(id[:], m.s.serial*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(id[8:], m.s.serial)
		a := Arrival{ID: id, Client: Client{2, byte(i), byte(i >> 8)}, Interval: pace.LongestFirst, Keyed: m.keyed}
		st, refusal, err := m.gateways[i%len(m.gateways)].room.Join(m.t.Context(), a)
		if err != nil || refusal != Granted {
			m.t.Fatalf("join: %v %q", err, refusal)
		}
		if st.State == Active {
			continue
		}
		v := &advisedVisitor{t: st.Ticket, next: m.now() + 1_000_000 + m.dice.Int64N(2_000_000)}
		v.t.Client = a.Client
		if goes != nil {
			if after := goes(); after > 0 {
				v.goes = m.now() + after.Microseconds()
			}
		}
		m.all = append(m.all, v)
	}
}

// live lets time pass, with a tick and the polls that are due every 250 ms.
func (m *advisedCrowd) live(d time.Duration, each func()) {
	m.t.Helper()
	for range int(d / tick) {
		m.s.pass(tick)
		for _, g := range m.gateways {
			g.tick()
		}
		m.pollDue()
		if each != nil {
			each()
		}
	}
}

func (m *advisedCrowd) pollDue() {
	var due []*advisedVisitor
	for _, v := range m.all {
		if v.in == 0 && v.ended == 0 && m.now() >= v.next && !v.gone(m.now()) {
			due = append(due, v)
		}
	}
	m.polls += len(due)
	snap := m.first().Snapshot()
	rate := float64(snap.Policy.Rate) / 1000
	if snap.Policy.Paused {
		rate = 0
	}
	tail := 0.0
	if rate > 0 {
		tail = float64(snap.Waiting) / rate
	}
	plan := pace.New(snap.Policy.LongestPoll(), 20000, snap.Waiting, m.first().Arriving(), tail)
	var all sync.WaitGroup
	slots := make(chan struct{}, 400)
	for _, v := range due {
		g, random := m.gateways[m.dice.IntN(len(m.gateways))], m.dice.Float64()
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			m.poll(g.room, v, &plan, rate, random)
		})
	}
	all.Wait()
}

// poll checks a ticket as gateway.serveStatus does, with the interval and wait that the response is about to show.
func (m *advisedCrowd) poll(r *Room, v *advisedVisitor, plan *pace.Plan, rate, random float64) {
	ahead, wait, known := r.Ahead(v.t.Order), 0.0, rate > 0
	v.t.Wait = 0
	if known {
		wait = math.Ceil(float64(ahead) / rate)
		v.t.Wait = time.Duration(max(1, wait)) * time.Second
	}
	seconds := pace.Spread(plan.Interval(ahead, wait, known), plan.Most(wait, known), random)
	v.t.Interval = time.Duration(seconds) * time.Second
	st, err := r.Check(m.t.Context(), v.t)
	if st.State == Admitted {
		st, err = r.Claim(m.t.Context(), v.t)
	}
	if err != nil && !errors.Is(err, ErrNotYet) {
		m.t.Error(err)
	}
	v.next = m.now() + int64(seconds)*1_000_000
	switch st.State {
	case Waiting:
		client := v.t.Client
		v.t = st.Ticket
		v.t.Client = client
	case Active:
		v.in = st.AdmittedAt
	default:
		v.ended = st.State
	}
}

// staying returns the visitors who poll to the end, by order.
func (m *advisedCrowd) staying() []*advisedVisitor {
	list := slices.DeleteFunc(slices.Clone(m.all), func(v *advisedVisitor) bool { return v.goes > 0 })
	slices.SortFunc(list, func(a, b *advisedVisitor) int { return cmp.Compare(a.t.Order, b.t.Order) })
	return list
}

// verdict checks that no visitor who polls as advised lost the place, or was overtaken by a later order by more than a tick.
func (m *advisedCrowd) verdict(allIn bool) {
	m.t.Helper()
	list := m.staying()
	in, lost, overtaken, worst := 0, 0, 0, int64(0)
	for _, v := range list {
		switch {
		case v.ended != 0:
			lost++
		case v.in > 0:
			in++
		default: // it may have been admitted since its last poll
			if f, err := m.first().Lookup(m.t.Context(), v.t.ID); err == nil && f.State == Admitted {
				v.in = f.AdmittedAt
			}
		}
	}
	earliest := int64(math.MaxInt64) // admission of a later order
	for _, v := range slices.Backward(list) {
		at := v.in
		if at == 0 {
			at = m.now()
		}
		if late := at - earliest; late > tick.Microseconds() {
			overtaken++
			worst = max(worst, late)
		}
		if v.in > 0 {
			earliest = min(earliest, v.in)
		}
	}
	m.t.Logf("%d visitors, %d of whom stay; %d polls; %d in; %d lost; %d overtaken, at worst by %.1f s", len(m.all), len(list), m.polls, in, lost, overtaken, float64(worst)/1e6)
	if lost > 0 || overtaken > 0 {
		m.t.Errorf("of %d who polled as advised %d lost the place and %d were overtaken by a later order, at worst by %.1f s", len(list), lost, overtaken, float64(worst)/1e6)
	}
	if allIn && in < len(list) {
		m.t.Errorf("%d of %d who polled as advised are in", in, len(list))
	}
}

// nobodyParked fails when more tickets are parked than visitors have left: a visitor who polls as advised is parked then.
func (m *advisedCrowd) nobodyParked() func() {
	failed := false
	return func() {
		var gone int64
		for _, v := range m.all {
			if v.gone(m.now()) {
				gone++
			}
		}
		if n := m.first().Snapshot().Parked; n > gone && !failed {
			failed = true
			m.t.Errorf("%d are parked, %d have gone", n, gone)
		}
	}
}

func (m *advisedCrowd) patch(rate int64) {
	m.t.Helper()
	if err := m.first().Patch(m.gateways[0].ctx(), "ann", Live{Rate: &rate, Burst: &rate}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *advisedCrowd) operate(f func(*Room, context.Context, string) error) {
	m.t.Helper()
	if err := f(m.first(), m.gateways[0].ctx(), "ann"); err != nil {
		m.t.Fatal(err)
	}
}

func atOnce() time.Duration { return 4 * time.Second } // after the first poll

// An operator raises the rate a hundredfold: the whole queue advances before its visitors poll again.
func TestAdvisedPolling_RateRaised(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 1_000, 1_000
	m := newAdvisedCrowd(t, 1, 2, p)
	m.join(2500, nil)
	m.live(155*time.Second, m.nobodyParked())
	m.patch(100_000)
	m.live(90*time.Second, m.nobodyParked())
	m.verdict(true)
}

// A pause of some minutes ends.
func TestAdvisedPolling_Resumed(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	p := faultPolicy
	p.Rate, p.Burst = 50_000, 50_000
	m := newAdvisedCrowd(t, 2, 2, p)
	m.operate((*Room).Pause)
	m.join(2000, nil)
	m.live(130*time.Second, m.nobodyParked())
	m.operate((*Room).Resume)
	m.live(110*time.Second, m.nobodyParked())
	m.verdict(true)
}

// A block of visitors who polled once and left is ahead of visitors who poll as advised, and expires all at the same time.
func TestAdvisedPolling_DeadBlock(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	for name, keyed := range map[string]bool{"plain joins": false, "joins by a key": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst = 20_000, 20_000
			m := newAdvisedCrowd(t, 3, 1, p)
			m.keyed = keyed
			m.join(2000, atOnce)
			m.gateways[0].tick2()
			m.join(600, nil)
			m.live(190*time.Second, m.nobodyParked())
			m.verdict(true)
		})
	}
}

// The promise holds for any change of the rate by operators and any number of departures.
func TestAdvisedPolling_AnyChangeOfSpeed(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	for seed := range uint64(3) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			dice := rand.New(rand.NewPCG(seed, 2))
			p.Rate = 1000 * (1 + dice.Int64N(20))
			p.Burst = p.Rate
			p.Absence = time.Duration(3+dice.IntN(60)) * time.Minute
			p.ClaimWindow = time.Duration(20+dice.IntN(300)) * time.Second
			m := newAdvisedCrowd(t, seed, 2, p)
			share := dice.Float64() / 2
			m.join(1000+dice.IntN(1000), func() time.Duration {
				if dice.Float64() < share {
					return 4*time.Second + time.Duration(dice.Int64N(int64(5*time.Minute)))
				}
				return 0
			})
			for range 6 {
				m.live(time.Duration(1+dice.IntN(60))*time.Second, m.nobodyParked())
				switch dice.IntN(4) {
				case 0:
					m.operate((*Room).Pause)
				case 1:
					m.operate((*Room).Resume)
				default:
					m.patch(1000 * (1 + dice.Int64N(300)))
				}
			}
			m.verdict(false)
		})
	}
}

// A third of the visitors leave silently, each at a random time of the wait. A ticket whose last check still holds is admitted
// although its visitor has gone. before is the share of admissions that lapsed before holds existed, when the store also parked
// many visitors who stayed.
func TestAdvisedPolling_SilentLeaversLapse(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	for name, c := range map[string]struct {
		rate, crowd  int64
		before, more float64 // %, and percentage points
	}{
		"waits of 400 s":                         {10, 4000, 10.7, 2},
		"waits of 70 s, mostly behind the front": {100, 7000, 18.2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := faultPolicy
			p.Rate, p.Burst = c.rate*1000, c.rate*1000
			m := newAdvisedCrowd(t, 4, 1, p)
			n := 0
			m.join(int(c.crowd), func() time.Duration {
				n++
				if m.dice.IntN(3) > 0 {
					return 0
				}
				wait := float64(n) / float64(c.rate)
				return max(4*time.Second, time.Duration(m.dice.Float64()*wait*float64(time.Second)))
			})
			m.live(time.Duration(float64(c.crowd)/float64(c.rate)*0.8)*time.Second, nil)
			m.live(p.ClaimWindow, nil)
			s := m.first().Snapshot()
			share := 100 * float64(s.Lapses) / float64(s.Admissions)
			t.Logf("%d admissions, %d lapsed: %.1f %%", s.Admissions, s.Lapses, share)
			if share > c.before+c.more {
				t.Errorf("%.1f %% of the admissions lapsed, %.1f %% before", share, c.before)
			}
			m.verdict(true)
		})
	}
}
