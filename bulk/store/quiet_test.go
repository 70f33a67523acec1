package store

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/calendar"
)

func TestQuiet_NoStartWithinTheHours(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Lease = 24 * time.Hour })
	c.us = time.Date(2026, 10, 24, 21, 59, 0, 0, time.FixedZone("", 7200)).UnixMicro() // the night in which clocks go back in Berlin
	spec := counted("g")
	spec.Quiet = calendar.Quiet{From: "22:00", To: "08:00", Zone: "Europe/Berlin"}
	create(t, s, spec)
	add(t, s, "g", 0, 5)
	running := pull(t, s, 1).Jobs
	if len(running) != 1 {
		t.Fatal(running)
	}
	c.advance(time.Minute)
	if p := pull(t, s, 5); len(p.Jobs) != 0 || p.Next != 11*time.Hour {
		t.Fatalf("%+v", p)
	}
	if g, err := s.Group(t.Context(), "g"); err != nil || g.GatedBy != GatedByQuiet || g.Quiet != spec.Quiet || !g.GatedUntil.Equal(after(c.us, 11*time.Hour)) {
		t.Fatalf("%+v %v", g, err)
	}
	clean(t, s)
	ack(t, s, Done, running...)
	if g, err := s.Patch(t.Context(), "g", Patch{Quiet: new(calendar.Quiet{From: "21:00", To: "23:00", Zone: "Europe/Berlin"})}); err != nil || !g.GatedUntil.Equal(after(c.us, time.Hour)) {
		t.Fatalf("%+v %v", g, err)
	}
	c.advance(time.Hour - 1)
	if p := pull(t, s, 5); len(p.Jobs) != 0 {
		t.Fatalf("%+v", p)
	}
	c.us++
	if p := pull(t, s, 1); len(p.Jobs) != 1 {
		t.Fatalf("%+v", p)
	}
	if g, err := s.Patch(t.Context(), "g", Patch{Quiet: new(spec.Quiet)}); err != nil || g.GatedBy != GatedByQuiet {
		t.Fatalf("%+v %v", g, err)
	}
	if g, err := s.Patch(t.Context(), "g", Patch{Quiet: new(calendar.Quiet{})}); err != nil || g.Gated || g.Quiet != (calendar.Quiet{}) {
		t.Fatalf("%+v %v", g, err)
	}
	_, err := s.Patch(t.Context(), "g", Patch{Quiet: new(calendar.Quiet{From: "1", To: "2"})})
	refused(t, err, CodeInvalid)
	clean(t, s)
}

// TestQuiet_EndsAsClocksShow compares the script's end of quiet hours with the first minute that is none, around changes of clocks.
func TestQuiet_EndsAsClocksShow(t *testing.T) {
	s, c := open(t, nil)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", ""}).Draw(rt, "zone")
		in, err := calendar.Zone(zone)
		if err != nil {
			rt.Fatal(err)
		}
		// Within a day of a change, if there is one.
		at := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(rt, "month")), 1, 0, 0, 0, 0, time.UTC).In(in)
		if _, end := at.ZoneBounds(); !end.IsZero() {
			at = end.Add(-12 * time.Hour).Truncate(time.Minute)
		}
		at = at.Add(time.Duration(rapid.IntRange(0, 24*60).Draw(rt, "minute")) * time.Minute)
		hour := func(name string) string {
			return rapid.SampledFrom([]string{"00:00", "01:30", "02:00", "02:15", "02:30", "03:00", "08:00", "22:00"}).Draw(rt, name)
		}
		run++
		spec := counted(fmt.Sprint("g", run))
		spec.Quiet = calendar.Quiet{From: hour("from"), To: hour("to"), Zone: zone}
		if spec.Quiet.From == spec.Quiet.To {
			rt.Skip("no hours")
		}
		if c.us = at.UnixMicro(); s.o.Client.Del(t.Context(), s.keys...).Err() != nil { // time goes back
			rt.Fatal("cannot empty the store")
		}
		g, _, err := s.CreateGroup(t.Context(), spec)
		if err != nil {
			rt.Fatal(err)
		}
		end := at
		for spec.Quiet.At(end) {
			end = end.Add(time.Minute)
		}
		// A gate may open early where clocks change; it is closed again then, and never opens late.
		if g.Gated != end.After(at) || g.Gated && (g.GatedUntil.After(end) || !g.GatedUntil.After(at)) {
			rt.Fatalf("%v at %s: until %s, want %s", spec.Quiet, at, g.GatedUntil, end)
		}
		for steps := 0; g.Gated; steps++ {
			if c.us = g.GatedUntil.UnixMicro(); steps > 3 {
				rt.Fatal("the gate opens too often")
			}
			if _, err := s.Dispatch(t.Context()); err != nil {
				rt.Fatal(err)
			}
			if g, err = s.Group(t.Context(), spec.ID); err != nil {
				rt.Fatal(err)
			}
		}
		if !micros(c.us).Equal(end) {
			rt.Fatalf("%v at %s: it opened at %s, want %s", spec.Quiet, at, micros(c.us).In(in), end)
		}
	})
}

// At 03:00 of summer time the clocks show 02:00 again, and the quiet hours begin at 02:15 again.
func TestQuiet_EndsWhereClocksGoBackBeforeItsBeginning(t *testing.T) {
	back := time.Date(2026, time.October, 25, 1, 0, 0, 0, time.UTC)
	s, c := open(t, nil)
	c.us = back.Add(-45 * time.Minute).UnixMicro()
	spec := counted("g")
	spec.Quiet = calendar.Quiet{From: "02:15", To: "00:00", Zone: "Europe/Berlin"}
	g, _, err := s.CreateGroup(t.Context(), spec)
	if err != nil || !g.Gated || !g.GatedUntil.Equal(back) {
		t.Fatalf("quiet until %s, want %s (%v)", g.GatedUntil, back, err)
	}
}
