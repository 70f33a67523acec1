package policy

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MostLive is the highest number of events of a room that operators plan live.
const MostLive = 32

// EventsText returns live events as the store keeps them: id:starts:ends:rate:method:name, joined by commas, the name in base64url. It has no
// blanks, because a snapshot lists it among the live fields.
func EventsText(events []Event) string {
	words := make([]string, len(events))
	for i, e := range events {
		words[i] = strings.Join([]string{e.ID, itoa(e.Starts), itoa(e.Ends), itoa(e.Rate), e.Method, base64.RawURLEncoding.EncodeToString([]byte(e.Name))}, ":")
	}
	return strings.Join(words, ",")
}

// ParseEvents reads what EventsText has written.
func ParseEvents(text string) ([]Event, error) {
	if text == "" {
		return nil, nil
	}
	var events []Event
	for word := range strings.SplitSeq(text, ",") {
		w := strings.Split(word, ":")
		if len(w) != 6 || w[0] == "" {
			return nil, fmt.Errorf("live event %q", word)
		}
		e := Event{ID: w[0], Method: w[4]}
		for i, to := range []*int64{&e.Starts, &e.Ends, &e.Rate} {
			n, err := strconv.ParseInt(w[1+i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("live event %q: %w", word, err)
			}
			*to = n
		}
		name, err := base64.RawURLEncoding.DecodeString(w[5])
		if err != nil || e.Ends <= e.Starts || e.Method == Lottery {
			return nil, fmt.Errorf("live event %q", word)
		}
		e.Name = string(name)
		events = append(events, e)
	}
	return events, nil
}

// With returns the plan with the live events that overlap none of it. An event of the configuration takes precedence over a live one,
// and of two live ones the first in the list.
func (p *Plan) With(live []Event) *Plan {
	if len(live) == 0 {
		return p
	}
	q := &Plan{}
	if p != nil {
		q.events, q.draws = slices.Clone(p.events), p.draws
	}
	for i := range live {
		if q.Overlapping(&live[i]) == nil {
			q.events = append(q.events, live[i])
		}
	}
	slices.SortFunc(q.events, func(a, b Event) int { return cmp.Compare(a.begins(), b.begins()) })
	return q
}

// Overlapping returns an event of the plan that is in force at the same time as e, or nil. An event with the id of e is e before a change.
func (p *Plan) Overlapping(e *Event) *Event {
	if p == nil {
		return nil
	}
	for i := range p.events {
		other := &p.events[i]
		if (e.ID == "" || other.ID != e.ID) && e.begins() < other.Ends && other.begins() < e.Ends {
			return other
		}
	}
	return nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
