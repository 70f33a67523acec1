package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// Parse reads what lua/room_advance.lua wrote: five parts, one a line, the operator's message last, then the packed part.
// schedule is the configured policy.
func Parse(text string, schedule *policy.Schedule) (*Snapshot, error) {
	line, _, _ := strings.Cut(text, "\n")
	head := strings.Fields(line)
	if len(head) != 29 || head[0] != "4" {
		return nil, fmt.Errorf("snapshot: header %q", line)
	}
	p := &intParser{}
	n := func(i int) int64 { return p.int(head[i]) }
	size := n(28)
	if size < 0 || size > int64(len(text)-len(line)) {
		return nil, fmt.Errorf("snapshot: %d packed bytes of %d", size, len(text))
	}
	text, packed := text[:int64(len(text))-size], text[int64(len(text))-size:]
	parts := strings.SplitN(text, "\n", 5)
	if len(parts) != 5 {
		return nil, fmt.Errorf("snapshot: %d lines of 5", len(parts))
	}
	s := &Snapshot{
		Known: true, Seq: n(1), Epoch: head[2], Fence: n(3), RoomTime: n(4), RedisTime: n(5),
		Waiting: n(6), Parked: n(7), Admitted: n(8), Active: n(9), Oldest: n(10), Version: n(11), Since: n(12),
		Gateways: n(13), Joins: n(14), Admissions: n(15), Claims: n(16), Lapses: n(17), Abandons: n(18),
	}
	s.Time, s.Reset = n(19), n(21)
	if head[20] != "-" {
		for g := range strings.SplitSeq(head[20], ",") {
			till, us, _ := strings.Cut(g, ":")
			s.Silences = append(s.Silences, Silence{p.int(till), p.int(us)})
		}
	}
	s.Hold = n(22)
	s.Rate, s.Opens, s.Drawn, s.Prequeued, s.Target = n(23), n(24), n(25), n(26), n(27)
	s.overlay(schedule.At(s.RedisTime), parts[1], parts[4], p)
	for f := range fields(parts[2]) {
		sec, c, _ := strings.Cut(f, ":")
		s.Pending = append(s.Pending, Pending{Second: p.int(sec), Count: p.int(c)})
	}
	slices.SortFunc(s.Pending, func(a, b Pending) int { return int(a.Second - b.Second) })
	for f := range fields(parts[3]) {
		w := strings.Split(f, ":")
		if len(w) != 3 {
			return nil, fmt.Errorf("snapshot: flow %q", f)
		}
		s.Flow = append(s.Flow, Flow{Second: p.int(w[0]), Admitted: p.int(w[1]), Busy: p.int(w[2]) / 1000})
	}
	if p.err != nil {
		return nil, fmt.Errorf("snapshot: %w", p.err)
	}
	if err := s.unpack(packed); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

// overlay sets Policy and Live: the live changes of a line over the configured policy.
func (s *Snapshot) overlay(configured *policy.Span, line, message string, p *intParser) {
	s.Policy, s.Configured, s.Live = configured.Policy, configured, nil
	s.Facts.Hash, s.Facts.SoldOut, s.Events = "", false, ""
	if s.Policy.Adapts() && s.Rate > 0 {
		s.Policy.Rate = min(s.Policy.MaxRate, max(s.Policy.MinRate, s.Rate))
	}
	for f := range strings.FieldsSeq(line) {
		name, v, _ := strings.Cut(f, "=")
		if name == "evacuated" {
			fence, at, _ := strings.Cut(v, ":")
			s.Evacuation = Evacuation{Fence: p.int(fence), At: p.int(at)}
			continue
		}
		if name == "records" {
			s.Records = p.int(v)
			continue
		}
		s.Live = append(s.Live, name)
		switch name {
		case "rate":
			s.Policy.Rate = p.int(v)
		case "burst":
			s.Policy.Burst = p.int(v)
		case "max_active":
			s.Policy.MaxActive = p.int(v)
		case "session.ttl":
			s.Policy.SessionTTL = time.Duration(p.int(v)) * time.Microsecond
		case "paused":
			s.Policy.Paused = v == "1"
		case "draining":
			s.Policy.Draining = v == "1"
		case "method":
			s.Policy.Method = v
		case "enabled":
			s.Policy.Enabled = v == "1"
		case "message":
			s.Policy.Message = message
		case OnSoldOut:
			s.Policy.SoldOutCloses = v == SoldOutClose
		case Events:
			s.Events = v
		case Challenge:
			s.Policy.Challenge = v
		case FactsHash:
			s.Facts.Hash = v
		case SoldOut:
			s.Facts.SoldOut = v == "1"
		}
	}
	slices.Sort(s.Live)
	s.Policy.SoldOut = s.Facts.SoldOut && s.Policy.SoldOutCloses
	if s.Policy.Burst <= 0 {
		s.Policy.Burst = max(1000, s.Policy.Rate)
	}
	if s.Policy.Method == policy.Lottery && s.Policy.OpensAt > 0 && s.Drawn == 0 {
		s.Policy.OpensAt = max(s.Policy.OpensAt, s.Opens) // the latest opening of all gateways holds
	}
}

// WithPolicy returns the snapshot over another configured policy, at a time of Redis's clock.
func (s *Snapshot) WithPolicy(configured *policy.Span, now int64) *Snapshot {
	c := *s
	live, line := s.LiveFields(), make([]string, 0, len(s.Live))
	for i := 0; i < len(live); i += 2 {
		switch live[i] {
		case FactsText:
		case "message":
			line = append(line, "message=1")
		default:
			line = append(line, live[i]+"="+live[i+1])
		}
	}
	c.RedisTime = now
	c.overlay(configured, strings.Join(line, " "), s.Policy.Message, &intParser{})
	return &c
}

// Live fields that are not settings, or have no name of a setting. FactsText is not in a snapshot: gateways read it where FactsHash has changed.
const (
	OnSoldOut = "on_sold_out"
	Challenge = "challenge"
	Events    = "events"
	FactsText = "facts"
	FactsHash = "facts_hash"
	SoldOut   = "sold_out"
)

// SoldOutClose is the value of OnSoldOut by which a room closes.
const SoldOutClose = "close"

// LiveFields returns the live changes as the store keeps them, name and value in turn.
func (s *Snapshot) LiveFields() []string {
	out := make([]string, 0, 2*len(s.Live))
	for _, name := range s.Live {
		var v string
		switch name {
		case "rate":
			v = itoa(s.Policy.Rate)
		case "burst":
			v = itoa(s.Policy.Burst)
		case "max_active":
			v = itoa(s.Policy.MaxActive)
		case "session.ttl":
			v = itoa(s.Policy.SessionTTL.Microseconds())
		case "paused":
			v = bit(s.Policy.Paused)
		case "draining":
			v = bit(s.Policy.Draining)
		case "method":
			v = s.Policy.Method
		case "enabled":
			v = bit(s.Policy.Enabled)
		case "message":
			v = s.Policy.Message
		case OnSoldOut:
			if v = "keep"; s.Policy.SoldOutCloses {
				v = SoldOutClose
			}
		case Events:
			v = s.Events
		case Challenge:
			v = s.Policy.Challenge
		case FactsHash:
			if s.Facts.Text == "" {
				continue // without the text the hash would name nothing
			}
			out = append(out, FactsText, s.Facts.Text)
			v = s.Facts.Hash
		case SoldOut:
			v = bit(s.Facts.SoldOut)
		default:
			continue
		}
		out = append(out, name, v)
	}
	return out
}

// Head returns the epoch and the seq of a snapshot's text; an empty epoch where the text is not a snapshot.
func Head(text string) (epoch string, seq int64) {
	words := strings.SplitN(text[:min(len(text), 100)], " ", 4)
	if len(words) < 4 {
		return "", 0
	}
	seq, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return "", 0
	}
	return words[2], seq
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// fields yields the parts between the commas of a line, which may be empty.
func fields(line string) func(func(string) bool) {
	if line == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(line, ",")
}

// intParser keeps the first error.
type intParser struct{ err error }

func (p *intParser) int(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && p.err == nil {
		p.err = err
	}
	return n
}
