package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// desk is a store whose clock the test moves, with its schedules.
type desk struct {
	t      *testing.T
	us     int64
	prefix string
	store  *store.Store
	book   Book
}

func newDesk(t *testing.T, at string) *desk {
	t.Helper()
	d := &desk{t: t, prefix: redistest.Prefix(t)}
	d.at(at)
	d.store = d.open()
	d.book = NewBook(d.store)
	return d
}

func (d *desk) open() *store.Store {
	s, err := store.New(store.Options{Client: redistest.Client(d.t), Prefix: d.prefix, Timeout: 10 * time.Second, Settings: store.Defaults(), Now: func() int64 { return d.us }})
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// at sets the clock.
func (d *desk) at(text string) {
	d.t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.t.Fatal(err)
	}
	d.us = at.UnixMicro()
}

func (d *desk) create(change func(*Schedule)) *Schedule {
	d.t.Helper()
	s := template()
	if change != nil {
		change(s)
	}
	if err := s.Check(); err != nil {
		d.t.Fatal(err)
	}
	s, created, err := d.book.Create(d.t.Context(), s)
	if err != nil || !created {
		d.t.Fatal(created, err)
	}
	return s
}

func template() *Schedule {
	return &Schedule{ID: "nightly", Tenant: "acme", Cron: "0 * * * *", Zone: "Europe/Berlin", Group: store.GroupSpec{Type: "mail", Level: store.Low}, Jobs: []Job{{Payload: json.RawMessage(`{"n":1}`)}, {ID: "b", Payload: json.RawMessage(`2`), Cost: 3}}}
}

func (d *desk) round() Counts {
	d.t.Helper()
	did, err := NewRunner(d.store).Round(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return did
}

// groups returns the ids of all groups, the oldest first, without the prefix and the schedule's id.
func (d *desk) groups() string {
	d.t.Helper()
	list, _, err := d.store.Groups(d.t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	var ids []string
	for _, g := range list {
		if !g.Sealed || g.Total != 2 || g.Type != "mail" || g.Level != store.Low {
			d.t.Fatalf("%+v", g)
		}
		ids = append([]string{strings.TrimPrefix(g.ID, Prefix+"nightly:")}, ids...)
	}
	return strings.Join(ids, " ")
}

func (d *desk) want(did, want Counts, groups string) {
	d.t.Helper()
	if did != want || d.groups() != groups {
		d.t.Fatalf("did %+v, want %+v; groups %s, want %s", did, want, d.groups(), groups)
	}
}

func TestRunner_RunsAtTheTimes(t *testing.T) {
	d := newDesk(t, "2026-11-26T09:59:00Z")
	s := d.create(nil)
	if at := s.Next.Format(time.RFC3339); at != "2026-11-26T10:00:00Z" {
		t.Fatal(at)
	}
	d.want(d.round(), Counts{}, "")
	d.at("2026-11-26T10:00:00Z")
	d.want(d.round(), Counts{Started: 1}, "20261126T100000Z")
	d.want(d.round(), Counts{}, "20261126T100000Z")
	p, err := d.store.Pull(t.Context(), 5)
	if err != nil || len(p.Jobs) != 2 || p.Jobs[0].ID != "1" || string(p.Jobs[0].Payload) != `{"n":1}` || p.Jobs[1].ID != "b" || p.Jobs[1].Cost != 3 {
		t.Fatalf("%+v %v", p, err)
	}
	s, err = d.book.Get(t.Context(), "nightly")
	if err != nil || s.Last.Group != "schedule:nightly:20261126T100000Z" || s.Counts.Started != 1 || !s.Next.Equal(s.Last.At.Add(time.Hour)) {
		t.Fatalf("%+v %v", s, err)
	}
	// A pause misses nothing, and a new time holds from now on.
	if _, err := d.book.Change(t.Context(), "nightly", func(s *Schedule) error { s.Paused = true; return nil }); err != nil {
		t.Fatal(err)
	}
	d.at("2026-11-26T12:10:00Z")
	d.want(d.round(), Counts{}, "20261126T100000Z")
	s, err = d.book.Change(t.Context(), "nightly", func(s *Schedule) error { s.Paused, s.Cron = false, "15 * * * *"; return nil })
	if err != nil || s.Upcoming(2)[1].Format(time.RFC3339) != "2026-11-26T13:15:00Z" {
		t.Fatalf("%+v %v", s, err)
	}
	d.at("2026-11-26T12:15:01Z")
	d.want(d.round(), Counts{Started: 1}, "20261126T100000Z 20261126T121500Z")
	if err := d.book.Delete(t.Context(), "nightly"); err != nil {
		t.Fatal(err)
	}
	d.at("2026-11-27T12:15:01Z")
	d.want(d.round(), Counts{}, "20261126T100000Z 20261126T121500Z")
	var refusal *store.Refusal
	if _, err := d.book.Get(t.Context(), "nightly"); !errors.As(err, &refusal) || refusal.Code != store.CodeNotFound {
		t.Fatal(err)
	}
	if list, err := d.book.List(t.Context()); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
}

// Clocks in Berlin change on 2026-03-29 and 2026-10-25: a nightly run at 02:30 is made once on each day.
func TestRunner_RunsOnceWhenClocksChange(t *testing.T) {
	for day, want := range map[string]string{
		"2026-03-28T12:00:00Z": "20260329T010000Z 20260330T003000Z",
		"2026-10-24T12:00:00Z": "20261025T003000Z 20261026T013000Z",
	} {
		d := newDesk(t, day)
		id := "at" + day[:10]
		d.create(func(s *Schedule) { s.ID, s.Cron = id, "30 2 * * *" })
		for range 2 * 24 * 6 {
			d.us += (10 * time.Minute).Microseconds()
			d.round()
		}
		s, err := d.book.Get(t.Context(), id)
		if err != nil || s.Counts.Started != 2 {
			t.Fatalf("%+v %v", s, err)
		}
		for at := range strings.FieldsSeq(want) {
			if _, err := d.store.Group(t.Context(), Prefix+id+":"+at); err != nil {
				t.Error(err)
			}
		}
		if err := d.book.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunner_CatchesUp(t *testing.T) {
	for _, row := range []struct {
		catch  CatchUp
		back   string
		did    Counts
		groups string
	}{
		{None, "2026-11-26T13:30:00Z", Counts{Missed: 4}, ""},
		{None, "2026-11-26T13:00:30Z", Counts{Missed: 3, Started: 1}, "20261126T130000Z"},
		{One, "2026-11-26T13:30:00Z", Counts{Missed: 3, Started: 1}, "20261126T130000Z"},
		{All, "2026-11-26T13:30:00Z", Counts{Started: 4}, "20261126T100000Z 20261126T110000Z 20261126T120000Z 20261126T130000Z"},
	} {
		t.Run(fmt.Sprint(row.catch, row.back), func(t *testing.T) {
			d := newDesk(t, "2026-11-26T09:59:00Z")
			d.create(func(s *Schedule) { s.CatchUp = row.catch })
			d.at(row.back)
			d.want(d.round(), row.did, row.groups)
			d.want(d.round(), Counts{}, row.groups)
		})
	}
	d := newDesk(t, "2025-11-26T09:59:00Z")
	d.create(func(s *Schedule) { s.CatchUp, s.Cron, s.Expire = All, "* * * * *", 90*time.Minute })
	d.at("2025-11-26T12:00:30Z")
	if did := d.round(); did.Started != 90 || did.Missed != 31 { // 121 runs: a hundred at most, of which ten expired
		t.Fatalf("%+v", did)
	}
}

func TestRunner_Overlaps(t *testing.T) {
	const first, second = "20261126T100000Z", "20261126T110000Z"
	for _, row := range []struct {
		overlap Overlap
		did     Counts
		groups  string
		starts  int // jobs that may start in the second hour, beside those that run
	}{
		{Allow, Counts{Started: 1}, first + " " + second, 2},
		{Skip, Counts{Skipped: 1}, first, 0},
		{Queue, Counts{Started: 1}, first + " " + second, 0},
	} {
		t.Run(string(row.overlap), func(t *testing.T) {
			d := newDesk(t, "2026-11-26T09:59:00Z")
			d.create(func(s *Schedule) { s.Overlap = row.overlap })
			d.at("2026-11-26T10:00:00Z")
			d.want(d.round(), Counts{Started: 1}, first)
			running, err := d.store.Pull(t.Context(), 5)
			if err != nil || len(running.Jobs) != 2 {
				t.Fatal(running, err)
			}
			d.at("2026-11-26T11:00:00Z")
			d.want(d.round(), row.did, row.groups)
			p, err := d.store.Pull(t.Context(), 5)
			if err != nil || len(p.Jobs) != row.starts {
				t.Fatalf("%+v %v", p, err)
			}
			var acks []store.Ack
			for _, j := range append(running.Jobs, p.Jobs...) {
				acks = append(acks, store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done})
			}
			if _, err := d.store.Ack(t.Context(), acks); err != nil {
				t.Fatal(err)
			}
			d.us += 100
			for range 2 {
				did, err := d.store.Dispatch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range did.Tend {
					if _, err := d.store.Tend(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
			}
			if p, err = d.store.Pull(t.Context(), 5); err != nil || (len(p.Jobs) == 2) != (row.overlap == Queue) {
				t.Fatalf("%+v %v", p, err)
			}
			d.at("2026-11-26T12:00:00Z")
			if did := d.round(); row.overlap == Skip && did != (Counts{Started: 1}) {
				t.Fatalf("%+v", did)
			}
		})
	}
}

// TestRunner_ManyProcessesRunOnce: processes that find the same run due create one group, with each job once, and count it once.
func TestRunner_ManyProcessesRunOnce(t *testing.T) {
	d := newDesk(t, "2026-11-26T09:59:00Z")
	d.create(func(s *Schedule) { s.Overlap = Queue })
	var groups []string
	for hour := range 4 {
		d.at(fmt.Sprintf("2026-11-26T1%d:00:00Z", hour))
		groups = append(groups, fmt.Sprintf("20261126T1%d0000Z", hour))
		var all sync.WaitGroup
		for range 8 {
			s := d.open()
			all.Go(func() {
				if _, err := NewRunner(s).Round(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if got := d.groups(); got != strings.Join(groups, " ") {
		t.Fatal(got)
	}
	s, err := d.book.Get(t.Context(), "nightly")
	if err != nil || s.Counts != (Counts{Started: 4}) {
		t.Fatalf("%+v %v", s, err)
	}
}

// dying is a store whose process dies after a number of writes.
type dying struct {
	stored
	left int
}

type stored interface {
	groups
	jobs
	due
}

var errDead = errors.New("the process is dead")

func (d *dying) write() error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return nil
}

func (d *dying) CreateGroup(ctx context.Context, g store.GroupSpec) (store.Group, bool, error) {
	if err := d.write(); err != nil {
		return store.Group{}, false, err
	}
	return d.stored.CreateGroup(ctx, g)
}

func (d *dying) AddJobs(ctx context.Context, group string, c store.Chunk, jobs []store.Job) (store.Added, error) {
	if err := d.write(); err != nil {
		return store.Added{}, err
	}
	return d.stored.AddJobs(ctx, group, c, jobs)
}

func (d *dying) Seal(ctx context.Context, group string) (store.Group, error) {
	if err := d.write(); err != nil {
		return store.Group{}, err
	}
	return d.stored.Seal(ctx, group)
}

func (d *dying) WriteSchedule(ctx context.Context, r store.ScheduleRecord, next time.Time) (store.ScheduleRecord, bool, error) {
	if err := d.write(); err != nil {
		return store.ScheduleRecord{}, false, err
	}
	return d.stored.WriteSchedule(ctx, r, next)
}

// TestRunner_ContinuesWhatADeadProcessBegan: wherever the keeper dies within a run, the next one completes it, and it is made once.
func TestRunner_ContinuesWhatADeadProcessBegan(t *testing.T) {
	for writes := range 5 {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			d := newDesk(t, "2026-11-26T09:59:00Z")
			d.create(func(s *Schedule) { s.Overlap = Queue })
			d.at("2026-11-26T10:00:00Z")
			d.want(d.round(), Counts{Started: 1}, "20261126T100000Z")
			d.at("2026-11-26T11:00:00Z")
			_, err := NewRunner(&dying{d.store, writes}).Round(t.Context())
			if dead := errors.Is(err, errDead); dead != (writes < 4) {
				t.Fatal(err)
			}
			// Meanwhile the run before has ended, and the template was changed.
			if _, err := d.store.Cancel(t.Context(), Prefix+"nightly:20261126T100000Z"); err != nil {
				t.Fatal(err)
			}
			if _, err := d.store.Tend(t.Context(), Prefix+"nightly:20261126T100000Z"); err != nil {
				t.Fatal(err)
			}
			d.round()
			if got := d.groups(); got != "20261126T100000Z 20261126T110000Z" {
				t.Fatal(got)
			}
			if s, err := d.book.Get(t.Context(), "nightly"); err != nil || s.Counts != (Counts{Started: 2}) || s.Next.Format(time.RFC3339) != "2026-11-26T12:00:00Z" {
				t.Fatalf("%+v %v", s, err)
			}
			if broken, err := d.store.Audit(t.Context()); err != nil || len(broken) > 0 {
				t.Fatal(broken, err)
			}
		})
	}
}

// TestRunner_NotesWhatTheStoreRefuses: a run that a ceiling refuses is counted with the reason, and the next one is made.
func TestRunner_NotesWhatTheStoreRefuses(t *testing.T) {
	d := newDesk(t, "2026-11-26T09:59:00Z")
	d.create(func(s *Schedule) { s.MaxPending = 3 })
	d.at("2026-11-26T10:00:00Z")
	d.want(d.round(), Counts{Started: 1}, "20261126T100000Z")
	d.at("2026-11-26T11:00:00Z")
	if did := d.round(); did != (Counts{Failed: 1}) {
		t.Fatalf("%+v", did)
	}
	s, err := d.book.Get(t.Context(), "nightly")
	if err != nil || !strings.Contains(s.Counts.Error, "2026-11-26T11:00:00Z") || !strings.Contains(s.Counts.Error, "max_pending") || s.Next.Format(time.RFC3339) != "2026-11-26T12:00:00Z" {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestSchedule_IsChecked(t *testing.T) {
	for field, change := range map[string]func(*Schedule){
		"id":            func(s *Schedule) { s.ID = "a b" },
		"tenant":        func(s *Schedule) { s.Tenant = "" },
		"type":          func(s *Schedule) { s.Group.Type = "" },
		"cron":          func(s *Schedule) { s.Cron = "every day" },
		"time_zone":     func(s *Schedule) { s.Zone = "Mars" },
		"overlap":       func(s *Schedule) { s.Overlap = "wait" },
		"catch_up":      func(s *Schedule) { s.CatchUp = "two" },
		"expires_after": func(s *Schedule) { s.Expire = -1 },
		"jobs":          func(s *Schedule) { s.Jobs = nil },
		"given twice":   func(s *Schedule) { s.Jobs[1].ID = "1" },
		"cost":          func(s *Schedule) { s.Jobs[0].Cost = 5000 },
	} {
		s := template()
		change(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestBook_CreatesOnceAndKeepsChanges: of creations at once one is made, and no change overwrites another.
func TestBook_CreatesOnceAndKeepsChanges(t *testing.T) {
	d := newDesk(t, "2026-11-26T09:59:00Z")
	first := d.create(nil)
	again, created, err := d.book.Create(t.Context(), template())
	if err != nil || created || again.version != first.version {
		t.Fatal(again, created, err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := d.book.Change(context.Background(), "nightly", func(s *Schedule) error { s.Counts.Missed++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s, err := d.book.Get(t.Context(), "nightly"); err != nil || s.Counts.Missed != 4 {
		t.Fatalf("%+v %v", s, err)
	}
	stop := errors.New("no")
	if _, err := d.book.Change(t.Context(), "nightly", func(*Schedule) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

// TestRunner_NamesASplitBeyondTheShards: where fewer shards are open than a schedule's groups are split on, a run that was begun
// before is completed, and the later ones fail with the reason until a shard is opened again.
func TestRunner_NamesASplitBeyondTheShards(t *testing.T) {
	d := newDesk(t, "2026-11-26T09:59:00Z")
	fleet, err := store.NewFleet(store.Options{Shards: 2, Prefix: d.prefix, Timeout: 10 * time.Second, Settings: store.Defaults(), Now: func() int64 { return d.us }}, redistest.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	d.book = NewBook(fleet)
	d.create(func(s *Schedule) { s.Group.Split = 2 })
	round := func(at string, want Counts) *Schedule {
		t.Helper()
		d.at(at)
		if _, err := fleet.ShardList(t.Context()); err != nil { // reads the placements at this time
			t.Fatal(err)
		}
		did, faults := NewRunner(fleet).Round(t.Context())
		s, err := d.book.Get(t.Context(), "nightly")
		if err != nil || faults != nil || did != want {
			t.Fatalf("%s: %+v, %v, %v: %+v", at, did, faults, err, s)
		}
		return s
	}
	d.at("2026-11-26T10:00:00Z")
	if _, err := NewRunner(&dying{fleet, 1}).Round(t.Context()); !errors.Is(err, errDead) { // once the group is created
		t.Fatal(err)
	}
	if _, err := fleet.DrainShard(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s := round("2026-11-26T10:00:02Z", Counts{Started: 1})
	if g, err := fleet.Group(t.Context(), s.Last.Group); err != nil || !g.Sealed || g.Total != 2 || g.Split != 2 {
		t.Errorf("the run that was begun: %+v, %v", g, err)
	}
	s = round("2026-11-26T11:00:00Z", Counts{Failed: 1})
	if want := "2026-11-26T11:00:00Z: split 2: one shard is open for new groups; leave split out, or add or open shards (docs/bulk-operations.md)"; s.Counts.Error != want {
		t.Errorf("%q, want %q", s.Counts.Error, want)
	}
	if _, err := fleet.OpenShard(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	round("2026-11-26T12:00:00Z", Counts{Started: 1})
}
