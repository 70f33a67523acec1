package gateway

import (
	"github.com/anteroom/anteroom/internal/table"
	"github.com/anteroom/anteroom/token"
)

// touches remembers which sessions were reported lately, so that a request with a pass does not report its session again.
type touches struct{ *table.Table[struct{}] }

func newTouches() touches { return touches{table.New[struct{}](1 << 14)} }

// due reports whether a session was not reported for every seconds, and if so records that it is now. now is in seconds.
func (t touches) due(sid token.ID, now, every int64) (due bool) {
	t.Update(t.Key(sid[:]), now, func(_ *struct{}, next *int64) {
		if due = *next <= now || *next > now+every; due { // the clock may have gone back
			*next = now + every
		}
	})
	return due
}
