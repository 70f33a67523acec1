package main

import (
	"fmt"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// phase is where a visitor's visit stands.
type phase uint8

const (
	joining phase = iota
	waiting
	shopping
	done     // let in and left again
	left     // gave the place up on purpose
	vanished // went without a word
)

// person is one visitor of the crowd. Only the worker that holds it touches it.
type person struct {
	cred visitor.Credentials

	phase    phase
	lost     string // why the place was lost; empty while it was not
	abandons bool   // will leave the line after two polls
	silent   bool   // will go without a word, at a random time of the wait that was first shown
	absent   bool   // out of touch for longer than presence lasts

	id      string // jti of the place
	order   int64
	ordered bool
	forward bool // the gateway corrected the order to an earlier one

	joinSent, answered time.Time
	heard              time.Time // the last answer
	interval           time.Duration
	admittedAt         int64 // microseconds; 0: unknown
	failures           int   // connection errors and 5xx in a row
	polls              int
	visits             int       // requests made with the pass
	goes               time.Time // when one who is silent goes; zero: not known yet
	shown              []shownEstimate
}

// keep notes a newly heard token, and says how the place changed if it did so for the worse.
func (p *person) keep(token string) (lost string, err error) {
	if token == "" {
		return "", nil
	}
	c, err := visitor.Decode(token)
	if err != nil {
		return "", err
	}
	had, hadOrder := p.id, p.ordered
	old := p.order
	p.id = c.ID
	if c.Order != nil {
		p.order, p.ordered = *c.Order, true
	}
	switch {
	case had != "" && c.ID != had:
		return fmt.Sprintf("another ticket: %s became %s", had, c.ID), nil
	case hadOrder && p.order > old:
		return fmt.Sprintf("moved back: order %d became %d", old, p.order), nil
	case hadOrder && p.order < old:
		p.forward = true
	}
	return "", nil
}

// contact notes that the gateway answered, and whether the visitor was present all the time since the answer before.
func (p *person) contact(now time.Time) {
	present := max(30*time.Second, 2*p.interval+10*time.Second)
	if !p.heard.IsZero() && p.phase == waiting && now.Sub(p.heard) > present {
		p.absent = true
	}
	p.heard = now
}

// startOver forgets the place, as one whose ticket was refused has to.
func (p *person) startOver() {
	p.cred.Token, p.cred.Pass = "", ""
	p.id, p.order, p.ordered = "", 0, false
	p.phase = joining
}
