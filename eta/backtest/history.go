package backtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anteroom/anteroom/eta"
)

// Minute is one line of a room's history, as gateway eta export writes it: NDJSON, one object a minute.
type Minute struct {
	Room       string     `json:"room"`
	At         time.Time  `json:"at"`                   // beginning of the minute
	Joins      int64      `json:"joins"`                // tickets taken
	Admissions int64      `json:"admissions"`           // admissions
	Abandoned  int64      `json:"abandoned"`            // tickets that left the queue, or expired by absence
	Waiting    int64      `json:"waiting"`              // visitors in the queue at its end
	Rate       float64    `json:"rate"`                 // of the policy at its end, visitors/s
	Planned    *float64   `json:"planned,omitempty"`    // by policy and events for its end, visitors/s; nil: no events
	Found      bool       `json:"found,omitempty"`      // Rate was set by an adaptive controller
	Share      float64    `json:"share,omitempty"`      // of the origin's budget, at its end, visitors/s; 0: no budget
	MaxActive  int64      `json:"max_active,omitempty"` // at its end; 0: no limit
	Active     int64      `json:"active,omitempty"`     // counted against it, at its end
	Paused     float64    `json:"paused_seconds,omitempty"`
	Returned   int64      `json:"returned,omitempty"`      // absent visitors, of any minute, who came back
	Absent     []AgeCount `json:"absent_by_age,omitempty"` // tickets that were absent when the front of the queue reached them
	Lapsed     []AgeCount `json:"lapsed_by_age,omitempty"` // admissions that were not claimed
	WaitP50    float64    `json:"wait_p50_seconds"`
	WaitP90    float64    `json:"wait_p90_seconds"`
}

// AgeCount is a time in the queue, s, and the number of silent departures after that time or up to twice as much.
type AgeCount [2]int64

// Bounds of a history.
const (
	maxLine    = 4 << 10
	maxMinutes = 100_000
	maxCount   = 10_000_000 // of anything in a minute
	maxJoins   = 5_000_000  // in one sale
)

// ReadHistory reads a history and returns a sale for each of its rooms, in the order of their first lines.
func ReadHistory(r io.Reader) ([]Sale, error) {
	rooms := map[string][]Minute{}
	var order []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		if len(lines.Bytes()) == 0 {
			continue
		}
		if n > maxMinutes {
			return nil, fmt.Errorf("more than %d lines", maxMinutes)
		}
		var m Minute
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if rooms[m.Room] == nil {
			order = append(order, m.Room)
		}
		rooms[m.Room] = append(rooms[m.Room], m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(order) == 0 {
		return nil, errors.New("the history is empty; write one with gateway eta export")
	}
	sales := make([]Sale, 0, len(order))
	for _, room := range order {
		s, err := recorded(room, rooms[room])
		if err != nil {
			return nil, fmt.Errorf("room %s: %w", room, err)
		}
		sales = append(sales, s)
	}
	return sales, nil
}

func (m *Minute) check() error {
	for name, n := range map[string]int64{"joins": m.Joins, "admissions": m.Admissions, "abandoned": m.Abandoned, "waiting": m.Waiting,
		"max_active": m.MaxActive, "active": m.Active, "returned": m.Returned} {
		if n < 0 || n > maxCount {
			return fmt.Errorf("%s %d is not from 0 to %d", name, n, maxCount)
		}
	}
	for name, list := range map[string][]AgeCount{"absent_by_age": m.Absent, "lapsed_by_age": m.Lapsed} {
		for _, c := range list {
			if c[0] < 0 || c[0] > maxCount || c[1] < 0 || c[1] > maxCount {
				return fmt.Errorf("%s [%d, %d] is not from 0 to %d", name, c[0], c[1], maxCount)
			}
		}
	}
	switch {
	case m.Room == "" || len(m.Room) > 63:
		return errors.New("room is missing, or longer than 63 characters")
	case m.At.Year() < 2000 || m.At.Year() > 9999 || m.At.Unix()%60 != 0:
		return fmt.Errorf("at %s is not the beginning of a minute", m.At.Format(time.RFC3339))
	case !(m.Paused >= 0 && m.Paused <= 60):
		return fmt.Errorf("paused_seconds %v is not from 0 to 60", m.Paused)
	case !(m.Rate >= 0 && m.Rate <= 1e6):
		return fmt.Errorf("rate %v is not from 0 to 1000000", m.Rate)
	case m.Planned != nil && !(*m.Planned >= 0 && *m.Planned <= 1e6):
		return fmt.Errorf("planned %v is not from 0 to 1000000", *m.Planned)
	case !(m.Share >= 0 && m.Share <= 1e6):
		return fmt.Errorf("share %v is not from 0 to 1000000", m.Share)
	}
	return nil
}

// recorded returns a sale with the joins, departures and admissions of each recorded minute, spread evenly over the part of the
// minute that was not paused. A pause lies at the beginning of its minute if the minute before ended paused, and at the end
// otherwise. The queue begins as it was at the end of the first minute.
func recorded(room string, minutes []Minute) (Sale, error) {
	slices.SortStableFunc(minutes, func(a, b Minute) int { return a.At.Compare(b.At) })
	first, last := minutes[0], minutes[len(minutes)-1]
	n := int(last.At.Sub(first.At) / time.Minute)
	if n < 2 || n > maxMinutes {
		unit := "minutes"
		if n == 0 {
			unit = "minute"
		}
		return Sale{}, fmt.Errorf("the history has %d %s, from %s to %s; use 3 to %d", n+1, unit, first.At.Format(time.RFC3339), last.At.Format(time.RFC3339), maxMinutes)
	}
	all := make([]Minute, n) // missing minutes have no joins or admissions
	before := first
	joins := first.Waiting
	for _, m := range minutes[1:] {
		if i := int(m.At.Sub(first.At)/time.Minute) - 1; i >= 0 {
			all[i] = m
			joins += m.Joins
		}
	}
	if joins > maxJoins {
		return Sale{}, fmt.Errorf("the history has %d joins, at most %d are accepted; use fewer minutes", joins, maxJoins)
	}
	for i := range all {
		if all[i].Room == "" {
			all[i].Rate, all[i].Planned, all[i].Found, all[i].Share = before.Rate, before.Planned, before.Found, before.Share
		}
		before = all[i]
	}
	losses := elsewhere(all)
	start := first.At.Add(time.Minute)
	pauses := make([][2]float64, n) // s of the minute, from and until
	for i := range all {
		if p := all[i].Paused; p > 0 {
			pauses[i] = [2]float64{60 - p, 60}
			if i > 0 && pauses[i-1][1] == 60 {
				pauses[i] = [2]float64{0, p}
			}
		}
	}
	minute := func(t float64) int { return min(max(int(t/60), 0), n-1) }
	paused := func(t float64) bool {
		i := minute(t)
		return t-float64(60*i) >= pauses[i][0] && t-float64(60*i) < pauses[i][1]
	}
	by := func(get func(*Minute) float64) func(float64) float64 {
		return func(t float64) float64 { return get(&all[minute(t)]) }
	}
	return Sale{
		Name: room, Start: start, Seconds: float64(60 * n), Tick: 0.5, Initial: first.Waiting, Exact: true,
		Arrivals: by(func(m *Minute) float64 { return float64(m.Joins) / 60 }),
		Flow:     by(func(m *Minute) float64 { return float64(m.Admissions) / max(60-m.Paused, 1) }),
		Losses:   func(t float64) float64 { return losses[minute(t)] / 60 },
		Gone:     goneBefore(all, losses),
		Rate: by(func(m *Minute) float64 {
			if m.Share > 0 {
				return min(m.Rate, m.Share)
			}
			return m.Rate
		}),
		Set: by(func(m *Minute) float64 {
			if m.Found {
				return 0
			}
			return m.Rate
		}),
		Steps:  planned(start, all),
		Paused: paused,
		Full:   func(t float64) (limit, active int64) { m := &all[minute(t)]; return m.MaxActive, m.Active },
	}, nil
}

// elsewhere returns, by minute, how many visitors left the queue elsewhere than at its front. A visitor who was parked at the front
// and did not come back is counted in Abandoned when the ticket expires, and is subtracted here.
func elsewhere(minutes []Minute) []float64 {
	losses := make([]float64, len(minutes))
	parked := int64(0)
	for i := range minutes {
		m := &minutes[i]
		parked = max(0, parked-m.Returned)
		lost := min(parked, m.Abandoned)
		losses[i] = float64(m.Abandoned - lost)
		parked -= lost
		for _, c := range m.Absent {
			parked += c[1]
		}
	}
	return losses
}

// goneBefore returns Sale.Gone of a history, nil without silent departures. The chance of one is the absent share of the minute in
// which the front reaches the visitor: when as many have left the queue as were ahead.
func goneBefore(minutes []Minute, losses []float64) func(float64, int64, *rand.Rand) (float64, bool) {
	left := make([]float64, len(minutes)+1) // departures from the queue until the beginning of each minute
	absent := make([]float64, len(minutes))
	any := false
	for i := range minutes {
		for _, c := range minutes[i].Absent {
			absent[i] += float64(c[1])
		}
		any = any || absent[i] > 0
		left[i+1] = left[i] + losses[i] + absent[i] + float64(minutes[i].Admissions)
	}
	if !any {
		return nil
	}
	return func(t float64, ahead int64, rng *rand.Rand) (float64, bool) {
		now := min(max(int(t/60), 0), len(minutes)-1)
		until := left[now] + (left[now+1]-left[now])*(t/60-float64(now)) + float64(ahead)
		i, _ := slices.BinarySearch(left, until)
		turn := max(i-1, now) // the minute in which so many have left
		if turn >= len(minutes) || absent[turn] == 0 || rng.Float64()*(absent[turn]+float64(minutes[turn].Admissions)) >= absent[turn] {
			return 0, false
		}
		which := rng.Float64() * absent[turn]
		for _, c := range minutes[turn].Absent {
			if which -= float64(c[1]); which < 0 {
				seconds := float64(c[0]) + rng.Float64()*float64(c[0]+1)
				return min(seconds, max(0.95*(60*(float64(turn)+0.5)-t), 0)), true
			}
		}
		return 0, false
	}
}

// planned returns Sale.Steps of a history: the rates planned after a time, none while an operator had set another rate.
func planned(start time.Time, minutes []Minute) func(float64) []eta.Step {
	var steps []eta.Step
	from := make([]int, len(minutes)) // the first step after a minute's beginning
	for i := 1; i < len(minutes); i++ {
		if a, b := minutes[i-1].Planned, minutes[i].Planned; a != nil && b != nil && *a != *b {
			steps = append(steps, eta.Step{At: start.Add(time.Duration(i) * time.Minute).UnixMicro(), Rate: *b})
		}
		from[i] = len(steps)
	}
	if len(steps) == 0 {
		return nil
	}
	return func(t float64) []eta.Step {
		i := min(max(int(t/60), 0), len(minutes)-1)
		if m := &minutes[i]; m.Planned == nil || !m.Found && m.Rate != *m.Planned {
			return nil
		}
		return steps[from[i]:]
	}
}
