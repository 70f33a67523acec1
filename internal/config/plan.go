package config

import (
	"bytes"
	"fmt"
	"time"
)

const methodLottery = "lottery"

// minDrawSecret is the fewest bytes of a secret that seeds a draw.
const minDrawSecret = 32

// DrawSecret reads the secret that seeds the room's draws; it returns nil without a file.
func (r *Room) DrawSecret() ([]byte, error) {
	if r.Queue.DrawSecretFile == "" {
		return nil, nil
	}
	data, err := readSmall(r.Queue.DrawSecretFile)
	if err != nil {
		return nil, err
	}
	secret := bytes.TrimSpace(data)
	if len(secret) < minDrawSecret {
		return nil, fmt.Errorf("%q has %d bytes; a secret that nobody can guess has at least %d", r.Queue.DrawSecretFile, len(secret), minDrawSecret)
	}
	return secret, nil
}

// Span is the time of an event, or of a lottery, whose Ends is zero. Gathers is the beginning of the pre-queue, zero without one.
type Span struct{ Gathers, Starts, Ends time.Time }

func (s *Span) begins() time.Time {
	if !s.Gathers.IsZero() {
		return s.Gathers
	}
	return s.Starts
}

// Opening returns the time of the room's own lottery, with zero times where nothing is configured.
func (r *Room) Opening() Span {
	return Span{Gathers: parsed(r.Queue.PrequeueAt), Starts: parsed(r.Queue.OpensAt)}
}

// Span returns the event's time.
func (e *Event) Span() Span {
	return Span{Gathers: parsed(e.PrequeueAt), Starts: parsed(e.StartsAt), Ends: parsed(e.EndsAt)}
}

// parsed returns a time of a checked configuration; zero for "".
func parsed(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
