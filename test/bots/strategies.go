package main

import (
	"fmt"
	"strings"
	"time"
)

// strategy is one way to take places. i is the number of the try.
type strategy struct {
	name, about string
	address     func(i int) string // the client's address
	key         func(i int) string // Idempotency-Key; nil: none
	page        bool               // requests the page, as a browser without cookies, instead of a ticket
	shared      bool               // all tries send the cookies of the first, as tabs of one browser do
	solve       bool               // proofs of work are solved
	replay      bool               // one proof is sent with every try
	silent      bool               // tokens are not polled: only passes of the join count
}

func one(int) string { return "198.51.100.7" }

// anywhere returns a different address for each try, nearly always in a different network, and others in another run.
func anywhere(i int) string {
	n := uint32(i)*2654435761 + base
	return fmt.Sprintf("%d.%d.%d.%d", 128+(n>>24)%64, n>>16&255, n>>8&255, n&255)
}

var base = uint32(time.Now().UnixNano()) // of this run

var strategies = []strategy{
	{name: "one-address", about: "one address, no cookies", address: one},
	{name: "one-page", about: "one address that requests the page without cookies", address: func(int) string { return "198.51.101.7" }, page: true},
	{name: "one-keys", about: "one address, an Idempotency-Key for each try", address: func(int) string { return "198.51.102.7" },
		key: func(i int) string { return fmt.Sprintf("bots-%06d-%022d", base%1e6, i) }},
	{name: "one-tabs", about: "one browser with a tab for each try", address: func(int) string { return "198.51.103.7" }, shared: true},
	{name: "one-silent", about: "one address that never polls", address: func(int) string { return "198.51.104.7" }, silent: true},
	{name: "one-/24", about: "all addresses of one /24 in turn", address: func(i int) string { return fmt.Sprintf("192.0.2.%d", i%256) }},
	{name: "one-/64", about: "an address of one /64 for each try", address: func(i int) string { return fmt.Sprintf("2001:db8:1:1::%x:%x", i>>16, i&0xffff) }},
	{name: "one-/48", about: "a /64 of one /48 for each try", address: func(i int) string { return fmt.Sprintf("2001:db8:2:%x::1", i&0xffff) }},
	{name: "anywhere", about: "an address anywhere for each try", address: anywhere},
	{name: "anywhere-proof", about: "the same, solving proofs of work", address: func(i int) string { return anywhere(i + 1<<22) }, solve: true},
	{name: "one-proof", about: "one address that solves proofs of work", address: func(int) string { return "198.51.105.7" }, solve: true},
	{name: "replay", about: "one proof of work, sent from anywhere", address: func(i int) string { return anywhere(i + 1<<23) }, replay: true},
}

func find(name string) *strategy {
	for i := range strategies {
		if strategies[i].name == name {
			return &strategies[i]
		}
	}
	return nil
}

func names() string {
	var all []string
	for _, s := range strategies {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ")
}
