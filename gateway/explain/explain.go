// Package explain has the questions and answers of the URL tester: a request, and what a gateway would do with it, and why.
package explain

import "net/netip"

// Request is a request whose decision is explained.
type Request struct {
	Method, Host, Target string
	Address              netip.Addr // of the visitor
	TLS                  bool
	Header               [][2]string
}

// Explanation is what a gateway would do with a request, and why.
type Explanation struct {
	Room     string   `json:"room,omitempty"`
	Rule     Rule     `json:"rule"`
	Decision string   `json:"decision"` // proxy, admit, wait, challenge, redirect, refuse, own
	Why      string   `json:"why"`      // no_room, room_open, preflight, bypass, pass, capacity, admitted, queue, challenge, several_readings, refused, own
	Text     string   `json:"text"`
	Status   int      `json:"status,omitempty"` // of the gateway's response; absent: the origin's
	Code     string   `json:"code,omitempty"`   // of the problem
	Origin   string   `json:"origin,omitempty"`
	Kind     string   `json:"kind"`     // of the request
	Readings []string `json:"readings"` // of the path
	Tokens   Tokens   `json:"token"`
}

// Rule is what the request matched.
type Rule struct {
	Kind  string `json:"kind"`           // room, bypass, default_origin, own, none, ambiguous
	Host  string `json:"host,omitempty"` // pattern of the room
	Path  string `json:"path,omitempty"` // pattern of the room; absent: the path could not be matched
	Index *int   `json:"index,omitempty"`
}

// Tokens are what the tokens of the request are worth: none, valid or invalid.
type Tokens struct {
	Pass   string `json:"pass"`
	Ticket string `json:"ticket"`
}

// Fault is returned for a request that a gateway would refuse as malformed.
type Fault struct{ Code, Detail string }

func (e *Fault) Error() string { return e.Detail }
