package admission

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/admission/series"
	"github.com/anteroom/anteroom/internal/redistest"
)

// recorderStage is a number of gateways over one store with a clock that only the test moves.
type recorderStage struct {
	t        *testing.T
	client   redis.UniversalClient
	prefix   string
	clock    *testClock
	policy   Policy
	gateways []*recorded
}

// recorded is one gateway.
type recorded struct {
	room     *Room
	fleet    *Fleet
	recorder *Recorder
	measures Measures
}

func newRecorderStage(t *testing.T, p Policy, gateways int) *recorderStage {
	t.Helper()
	st := &recorderStage{t: t, client: redistest.Client(t), prefix: redistest.Prefix(t), clock: newTestClock(), policy: p}
	for range gateways {
		st.start()
	}
	return st
}

// start adds a gateway.
func (st *recorderStage) start() *recorded {
	st.t.Helper()
	g := &recorded{room: testRoom(st.t, st.client, st.prefix, st.clock, st.policy)}
	c := g.room.identity.c
	g.fleet = NewFleet(c, func() Gateway { return Gateway{Version: "v1", InFlight: map[string]int{"shop": 3}} })
	g.recorder = NewRecorder(c, g.fleet, func(_ string, m *Measures) { *m = g.measures })
	st.gateways = append(st.gateways, g)
	return g
}

// second lets a second pass, in which each gateway ticks, reports and records.
func (st *recorderStage) second() {
	st.t.Helper()
	st.clock.pass(time.Second)
	for _, g := range st.gateways {
		for _, do := range []error{g.room.Tick(ctx5(st.t)), g.fleet.Report(ctx5(st.t)), g.recorder.Notice(ctx5(st.t)), g.recorder.Record(ctx5(st.t))} {
			if do != nil {
				st.t.Fatal(do)
			}
		}
	}
}

func (st *recorderStage) join(g *recorded, n int) (waiting []Ticket) {
	st.t.Helper()
	for range n {
		st.clock.us++
		s, refusal, err := g.room.Join(ctx5(st.t), Arrival{ID: testID(), Interval: 10 * time.Second})
		if err != nil || refusal != Granted {
			st.t.Fatal(err, refusal)
		}
		if s.State == Waiting {
			waiting = append(waiting, s.Ticket)
		}
	}
	return waiting
}

func (st *recorderStage) rows(g *recorded, l series.Length) []series.Row {
	st.t.Helper()
	now := st.clock.us / 1e6
	rows, err := g.recorder.Rows(ctx5(st.t), g.room, l, series.Range{From: now - l.Seconds*l.Rows + l.Seconds, To: now + 1})
	if err != nil {
		st.t.Fatal(err)
	}
	return rows
}

// However many gateways run, each second is recorded once, longer rows join the same seconds, and counts of all gateways are added.
func TestRecorder_RecordsEachSecondOnce(t *testing.T) {
	p := basePolicy
	p.Rate, p.Burst, p.MaxActive, p.Origin = 1000, 1000, 500, "shop"
	st := newRecorderStage(t, p, 3)
	st.clock.us -= st.clock.us % 600e6 // so that all is in one row of ten minutes
	for i := range 61 {
		if i < 40 {
			st.join(st.gateways[i%3], 3)
		}
		for n, g := range st.gateways {
			g.measures = Measures{Known: true, Wait: 10, Low: 5, High: 20, Counts: map[string]int64{"arrived": int64(i * (n + 1)), "none": 0}}
		}
		st.second()
	}
	seconds, minutes, tens := st.rows(st.gateways[1], series.Second), st.rows(st.gateways[0], series.Minute), st.rows(st.gateways[2], series.TenMinutes)
	if len(seconds) != 61 || len(minutes) != 2 || len(tens) != 1 {
		t.Fatalf("%d seconds, %d minutes and %d of ten minutes", len(seconds), len(minutes), len(tens))
	}
	s := st.gateways[0].room.Snapshot()
	last := seconds[60].Figures
	if got, want := fmt.Sprint(last), fmt.Sprint(series.Figures{
		s.Waiting, s.Parked, s.Admitted, s.Admitted + s.Active, 500, 1000, series.Unknown, series.Unknown, 120, s.Admissions, s.Claims, 0, 0,
		10_000, 5_000, 20_000, series.Unknown, series.Unknown, 9, last[series.EmptyIn], int64(reason.Index(reason.Rate)), 3, seconds[0].At - 1,
	}); got != want {
		t.Errorf("the last second is\n%s, want\n%s", got, want)
	}
	if s.Waiting == 0 || s.Admissions == 0 {
		t.Fatalf("the test shows nothing: %d wait, %d were admitted", s.Waiting, s.Admissions)
	}
	if minutes[0].Seconds != 59 || minutes[1].Seconds != 2 || tens[0].Seconds != 61 {
		t.Errorf("rows of %d, %d and %d seconds", minutes[0].Seconds, minutes[1].Seconds, tens[0].Seconds)
	}
	if got := minutes[0].Counts["arrived"] + minutes[1].Counts["arrived"]; got != 60*6 || tens[0].Counts["arrived"] != 60*6 {
		t.Errorf("%d and %d arrived, want %d", got, tens[0].Counts["arrived"], 60*6)
	}
	if _, there := tens[0].Counts["none"]; there {
		t.Error("a count of 0 is recorded")
	}
	var waits, peak int64
	for name, n := range tens[0].Counts {
		if strings.HasPrefix(name, "w") {
			waits += n
		}
	}
	for _, r := range seconds[:59] {
		peak = max(peak, r.Figures[series.Waiting])
	}
	if peak == 0 || minutes[0].Figures[series.Waiting] != peak {
		t.Errorf("the longest queue of the minute is %d, want %d", minutes[0].Figures[series.Waiting], peak)
	}
	if admitted := seconds[58].Figures[series.Admissions]; waits == 0 || waits != admitted {
		t.Errorf("%d waits are in the row of ten minutes, %d were admitted until the end of the minute", waits, admitted)
	}
	table := series.NewTable(series.Second, series.Range{From: seconds[1].At, To: seconds[60].At + 1}, seconds)
	if got, want := table.Total(series.Joins), int64(120-3); got != want {
		t.Errorf("%d joined in the table, want %d", got, want)
	}
	// Another process reads the same, and goes on with its own counts from 0.
	next := st.start()
	next.measures.Counts = map[string]int64{"arrived": 5}
	st.gateways = []*recorded{next}
	st.second()
	if tens := st.rows(next, series.TenMinutes); tens[0].Seconds != 62 || tens[0].Counts["arrived"] != 365 {
		t.Errorf("after a restart %d seconds, %d arrived", tens[0].Seconds, tens[0].Counts["arrived"])
	}
}

// The reason has the same beginning on all gateways, and after a restart; an operator is named at once.
func TestRecorder_KeepsSinceWhenReasonHolds(t *testing.T) {
	p := basePolicy
	p.Rate, p.Burst, p.MaxActive = 1000, 1000, 2
	st := newRecorderStage(t, p, 2)
	st.join(st.gateways[0], 5)
	for range 8 {
		st.second()
	}
	full := st.gateways[1].recorder.Reason(st.gateways[1].room)
	if full.Code != reason.MaxActive || full.Since == 0 || full.Since > st.clock.us-5e6 || full.Until <= st.clock.us {
		t.Fatalf("%+v at %d", full, st.clock.us)
	}
	st.second()
	next := st.start()
	st.second()
	for _, g := range []*recorded{st.gateways[0], next} {
		if again := g.recorder.Reason(g.room); again.Code != full.Code || again.Since != full.Since {
			t.Errorf("%+v, before %+v", again, full)
		}
	}
	if err := st.gateways[0].room.Pause(ctx5(t), "alice"); err != nil {
		t.Fatal(err)
	}
	paused := st.clock.us
	st.second()
	if why := next.recorder.Reason(next.room); why.Code != reason.Paused || why.Who != "alice" || why.Since/1e6 != paused/1e6 || why.Text != "Paused by alice 1 s ago: 3 visitors wait" {
		t.Errorf("%+v", why)
	}
	if err := st.gateways[0].room.Resume(ctx5(t), "bob"); err != nil {
		t.Fatal(err)
	}
	st.second()
	if why := next.recorder.Reason(next.room); why.Code != reason.MaxActive || why.Since <= paused || why.Who != "" {
		t.Errorf("%+v", why)
	}
}

// An idle room is recorded once a minute, and the totals of the row before still count.
func TestRecorder_RecordsIdleRoomOnceAMinute(t *testing.T) {
	st := newRecorderStage(t, basePolicy, 2)
	for range 130 {
		st.second()
	}
	if rows := st.rows(st.gateways[0], series.Second); len(rows) < 2 || len(rows) > 6 {
		t.Errorf("%d rows of an idle room in 130 s", len(rows))
	}
}

// boundOfRoom is the most bytes that the recorded figures of a room take in the store; docs/store.md has it.
const boundOfRoom = 24 << 20

const storeDocs = "../docs/store.md"

// A room with the largest figures and all counts in each row takes no more of the store than the documentation says.
func TestRecorder_BoundsBytesInStore(t *testing.T) {
	client := redistest.Server(t).Client()
	figures := series.NewFigures()
	for i := range figures {
		figures[i] = 999_999_999
	}
	text := strings.ReplaceAll(figures.String(), "999999999", "599999999400:600")
	var counts []string
	for i := range 81 {
		counts = append(counts, fmt.Sprintf("w%d=99999", i))
	}
	for i := range 21 {
		for _, kind := range []string{"y", "h", "l", "tn", "tt", "tr", "ti"} {
			counts = append(counts, fmt.Sprintf("%s%d=99999", kind, i))
		}
	}
	for i := range 40 {
		counts = append(counts, fmt.Sprintf("refused.reason_%02d=99999", i))
	}
	keys := seriesKeys("wr", "sale")
	for i, l := range series.Lengths {
		pipe := client.Pipeline()
		for slot := range l.Rows {
			all := counts
			if l == series.Second {
				all = nil
			}
			pipe.HSet(ctx5(t), keys[i], slot, fmt.Sprintf("%d;600;%s;%s", 1_780_000_000/l.Seconds+slot, text, strings.Join(all, ",")))
		}
		if _, err := pipe.Exec(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	var sum int64
	for i, key := range keys {
		n, err := client.MemoryUsage(ctx5(t), key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d rows, %d bytes", key, series.Lengths[i].Rows, n)
		sum += n
	}
	if sum > boundOfRoom {
		t.Errorf("%d bytes, the bound is %d", sum, boundOfRoom)
	}
	page, err := os.ReadFile(storeDocs)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("at most %d MiB", boundOfRoom>>20); !strings.Contains(string(page), want) {
		t.Errorf("%s does not have %q", storeDocs, want)
	}
}
