package answer

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// compatFields are the fields of cfWaitingRoom in the order of Cloudflare's documentation.
var compatFields = []string{
	"inWaitingRoom", "waitTimeKnown", "waitTime", "waitTime25Percentile", "waitTime50Percentile", "waitTime75Percentile", "waitTimeFormatted",
	"queueIsFull", "queueAll", "lastUpdated", "refreshIntervalSeconds", "queueingMethod", "isFIFOQueue", "isRandomQueue", "isPassthroughQueue",
	"isRejectQueue", "isEventActive", "isEventPrequeueing", "timeUntilEventStart", "timeUntilEventStartFormatted", "timeUntilEventEnd",
	"timeUntilEventEndFormatted", "shuffleAtEventStart", "turnstile", "infiniteQueue",
}

const (
	noon   = int64(1893499200_000000) // 2030-01-01 12:00:00
	minute = int64(60_000000)
)

func inRoom(p admission.Policy, e forecast.Events) *forecast.Room {
	if p.Rate == 0 {
		p.Rate = 10_000
	}
	p.Enabled = true
	return &forecast.Room{Snapshot: &admission.Snapshot{Policy: p, Known: true}, Events: e}
}

// The golden files have the object in every state that a room and its visitor can be in.
func TestCompat_GoldenFiles(t *testing.T) {
	wait := forecast.Wait{Known: true, Seconds: 590, Low: 300, High: 845}
	status := func(state string, room *forecast.Room) *Status {
		return &Status{Room: "sale", State: state, Compat: room, Now: noon}
	}
	waiting := func(room *forecast.Room) *Status {
		s := status(StateWaiting, room)
		s.Position, s.Waiting, s.ETA, s.Refresh, s.JoinedAt = 1234, 50210, wait, 20, noon-minute
		return s
	}
	fifo := admission.Policy{Method: admission.FIFO}
	lottery := admission.Policy{Method: admission.Lottery}
	gathering := func(e forecast.Events) *Status {
		e.Prequeue, e.OpensAt = true, noon+15*minute
		s := status(StatePrequeue, inRoom(lottery, e))
		s.Waiting, s.Refresh, s.JoinedAt, s.OpensAt = 812, 45, noon-minute, e.OpensAt
		return s
	}
	open := status(StateAdmitted, inRoom(admission.Policy{Method: admission.Passthrough}, forecast.Events{}))
	active := status(StateActive, inRoom(fifo, forecast.Events{}))
	active.AdmittedAt, active.Pass, active.ExpiresAt = noon-minute, []byte("a.b.c"), (noon+4*minute)/1e6
	for _, row := range []struct {
		name   string
		object interface{ Append([]byte) []byte }
	}{
		{"waiting_fifo", waiting(inRoom(fifo, forecast.Events{}))},
		{"waiting_random", waiting(inRoom(lottery, forecast.Events{}))},
		{"prequeue", gathering(forecast.Events{})},
		{"event_active", waiting(inRoom(fifo, forecast.Events{Event: true, EventEnds: noon + 90*minute}))},
		{"event_prequeueing", gathering(forecast.Events{Event: true, EventEnds: noon + 75*minute})},
		{"passthrough", open},
		{"reject", RoomClosed.Until(noon+30*minute, 0, noon).WithCompat(inRoom(admission.Policy{Method: admission.Reject}, forecast.Events{OpensAt: noon + 30*minute}), noon)},
		{"full", RoomFull.WithCompat(inRoom(admission.Policy{Method: admission.FIFO, Capacity: 50210}, forecast.Events{}), noon)},
		{"draining", RoomDraining.WithCompat(inRoom(fifo, forecast.Events{}), noon)},
		{"admitted", active},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := json.Indent(&got, row.object.Append(nil), "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", "compat", row.name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; write it with: go test ./gateway/answer -run Compat -update", err)
			}
			if got.String() != string(want) {
				t.Errorf("%s:\n%s\nwant:\n%s", file, got.String(), want)
			}
		})
	}
}

// Whatever the room and its visitor, the object has all its fields, in their order, with their types, and does not contradict itself.
func TestCompat_HasEveryField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := rapid.Bool().Draw(t, "event")
		e := forecast.Events{Prequeue: rapid.Bool().Draw(t, "prequeue"), Event: event}
		if e.Prequeue {
			e.OpensAt = rapid.Int64Range(noon-minute, noon+300*minute).Draw(t, "opens")
			e.JoinsAt = rapid.SampledFrom([]int64{0, noon + minute}).Draw(t, "joins")
		}
		if event {
			e.EventEnds = rapid.Int64Range(noon-minute, noon+300*minute).Draw(t, "ends")
		}
		room := inRoom(admission.Policy{
			Method:   rapid.SampledFrom([]string{admission.FIFO, admission.Lottery, admission.Passthrough, admission.Reject}).Draw(t, "method"),
			Capacity: rapid.Int64Range(0, 3).Draw(t, "capacity"), Paused: rapid.Bool().Draw(t, "paused"),
		}, e)
		low := rapid.Int64Range(0, 10_000).Draw(t, "low")
		var text []byte
		if rapid.Bool().Draw(t, "refused") {
			text = rapid.SampledFrom(Problems()).Draw(t, "problem").WithCompat(room, noon).Append(nil)
		} else {
			s := Status{
				State: rapid.SampledFrom([]string{StateWaiting, StatePrequeue, StateAdmitted, StateActive, StateRejected, StateExpired, StateLapsed, StateEnded}).Draw(t, "state"),
				ETA:   forecast.Wait{Known: rapid.Bool().Draw(t, "known"), Low: low, Seconds: low + 90, High: low + 200}, Refresh: 12, Compat: room, Now: noon,
			}
			text = s.Append(nil)
		}
		var out struct {
			CF json.RawMessage `json:"cfWaitingRoom"`
		}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var names []string
		object := map[string]any{}
		decoder := json.NewDecoder(bytes.NewReader(out.CF))
		_, _ = decoder.Token()
		for decoder.More() {
			name, _ := decoder.Token()
			value, _ := decoder.Token()
			names = append(names, name.(string))
			object[name.(string)] = value
		}
		if !slices.Equal(names, compatFields) {
			t.Fatalf("fields %v", names)
		}
		for name, value := range object {
			want := "bool"
			switch {
			case strings.HasSuffix(name, "Formatted"), name == "lastUpdated", name == "queueingMethod", name == "turnstile":
				want = "string"
			case strings.HasPrefix(name, "timeUntil"), strings.HasPrefix(name, "waitTime") && name != "waitTimeKnown", name == "refreshIntervalSeconds":
				want = "float64"
			}
			if got := reflect.TypeOf(value).String(); got != want {
				t.Fatalf("%s is a %s: %s", name, got, out.CF)
			}
		}
		for _, row := range []struct {
			rule string
			ok   bool
		}{
			{"a pre-queue is part of an event", object["isEventActive"] == true || object["isEventPrequeueing"] == false},
			{"an unknown wait is 0", object["waitTimeKnown"] == true || object["waitTime"] == 0. && object["waitTimeFormatted"] == "unavailable"},
			{"only a random queue has percentiles", object["isRandomQueue"] == true || object["waitTime75Percentile"] == 0.},
			{"the wait is the median of a random queue", object["isRandomQueue"] == false || object["waitTime"] == object["waitTime50Percentile"]},
			{"a reject queue is not refreshed", object["isRejectQueue"] == false || object["refreshIntervalSeconds"] == 0.},
			{"without a pre-queue the start is unavailable", object["isEventPrequeueing"] == true || object["timeUntilEventStart"] == 0. && object["timeUntilEventStartFormatted"] == "unavailable"},
			{"without an event the end is unavailable", object["isEventActive"] == true || object["timeUntilEventEnd"] == 0. && object["timeUntilEventEndFormatted"] == "unavailable" && object["shuffleAtEventStart"] == false},
		} {
			if !row.ok {
				t.Fatalf("%s: %s", row.rule, out.CF)
			}
		}
	})
}

func TestCompat_AllocatesNothing(t *testing.T) {
	s := Status{State: StateWaiting, ETA: forecast.Wait{Known: true, Seconds: 61, Low: 5, High: 200}, Compat: inRoom(admission.Policy{Method: admission.Lottery}, forecast.Events{Event: true, EventEnds: noon + minute}), Now: noon}
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = s.Append(buf[:0]) }); n > 0 {
		t.Errorf("a status with the object makes %v allocations", n)
	}
}
