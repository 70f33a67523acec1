package main

import (
	"math"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/pace"
)

// Room is a room in a steady state: as many visitors join as are admitted.
type Room struct {
	Waiting  float64
	Rate     float64 // admissions a second
	Arrivals float64 // joins a second; in a steady state the rate
	Absence  time.Duration
	Claim    time.Duration // claim_window
	Budget   int           // polls a second
	Visit    time.Duration // how long a session is used
	Requests float64       // a second of a session; at most one heartbeat every quarter of TTL
	TTL      time.Duration
	Gateways int     // 0: as many as needed, at least two
	Cores    float64 // of one gateway
	Direct   bool    // visitors connect to the gateways and not to a balancer
}

// Outcome is the resources that a room needs. Rates are a second, of all gateways together.
type Outcome struct {
	Tail      float64 // s that the last visitor of the queue waits
	Polls     float64 // of waiting visitors, without the first poll of each
	Front     float64 // polls at the front, which are checked with the store
	Renewals  float64 // polls behind the front that renew the presence hold
	Calls     float64 // scripts
	Commands  float64 // all commands, those within scripts included
	RedisCPU  float64 // of one core
	RedisMem  float64 // bytes
	RedisIn   float64 // bytes
	RedisOut  float64
	Gateways  int
	CPU       float64 // cores, all gateways together
	Memory    float64 // bytes, of one gateway
	Connected float64 // visitors' connections of one gateway
	In, Out   float64 // bytes of visitors' polls and joins, headers included
	Fits      bool    // one Redis core is enough
}

// The planned load in the steady state, which leaves room for bursts: of a gateway's cores, and of the one core that Redis
// has for a room.
const (
	gatewayShare = 0.6
	redisShare   = 0.7
)

// The gateway's intervals.
const (
	tick       = 0.25  // s between two ticks or reads of one gateway
	tickGap    = 0.175 // s after a tick in which other gateways only read
	nearWait   = 0.001 // s that a check at the front, or an enrolment, waits for others
	farWait    = 0.008 // s that a renewal waits
	batchMost  = 500
	idleClose  = 75.0 // s after which a gateway closes an idle connection
	endedExtra = 900  // s beyond absence for which an ended ticket is remembered
)

// Front returns how many visitors are at the front: ten seconds of the rate, from 1,000 to 20,000.
func (r Room) Front() float64 { return min(r.Waiting, max(1000, min(20000, 10*r.Rate))) }

// Outcome calculates what the room takes.
func (r Room) Outcome(c *Calibration) Outcome {
	cr := r.crowd()
	if r.Gateways > 0 {
		return r.with(cr, r.Gateways, c)
	}
	for g := 2; ; g++ {
		o := r.with(cr, g, c)
		if o.CPU <= gatewayShare*r.Cores*float64(g) || g == 10_000 {
			return o
		}
		g = max(g, int(o.CPU/(gatewayShare*r.Cores))-1) // more gateways tick more
	}
}

// crowd is the polls of the waiting visitors, a second.
type crowd struct{ tail, polls, front, renewals float64 }

// slices is the number of parts of the queue that are calculated. Each part is longer than the previous one by the same factor.
const slices = 400

// crowd adds up the parts of the queue. The position determines the wait, and the wait the polling interval. A poll at the
// front is checked with the store, any other if the presence hold of the last check is about to end.
func (r Room) crowd() crowd {
	if r.Waiting < 1 || r.Rate <= 0 {
		return crowd{}
	}
	cr := crowd{tail: r.Waiting / r.Rate}
	policy := admission.Policy{Absence: r.Absence, ClaimWindow: r.Claim}
	plan := pace.New(policy.LongestPoll(), r.Budget, int64(r.Waiting), 0, cr.tail)
	front := r.Front()
	growth := math.Pow(r.Waiting+1, 1.0/slices)
	for i, lo := 0, 0.0; i < slices; i++ {
		hi := min(math.Pow(growth, float64(i+1))-1, r.Waiting)
		if i == slices-1 {
			hi = r.Waiting
		}
		people := hi - lo
		wait := math.Floor((lo + hi) / 2 / r.Rate)
		interval := plan.Interval(int64(lo), wait, true)
		polls := people / interval
		cr.polls += polls
		near := max(0, min(hi, front)-lo) / max(people, 1e-9)
		cr.front += polls * near
		if near < 1 {
			cr.renewals += people * (1 - near) / renewal(&policy, interval, wait)
		}
		lo = hi
	}
	return cr
}

// renewal returns the mean time in seconds between two checks of a visitor behind the front. A check is due when the next poll
// would come less than admission.HoldSlack before the presence hold ends: on average half an interval before that time.
func renewal(p *admission.Policy, interval, wait float64) float64 {
	return (p.Hold(seconds(interval), seconds(wait), false) - admission.HoldSlack).Seconds() - interval/2
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// batches returns the script calls a second of one gateway: the first request of a batch waits for others.
func batches(requests, wait float64) float64 {
	if requests <= 0 {
		return 0
	}
	return max(requests/(1+requests*wait), requests/batchMost)
}

// ticks returns the ticks a second: the first gateway after the gap ticks.
func ticks(gateways int) float64 {
	apart := tick / float64(gateways)
	return 1 / (math.Ceil(tickGap/apart-1e-9) * apart)
}

func (r Room) with(cr crowd, gateways int, c *Calibration) Outcome {
	g := float64(gateways)
	o := Outcome{Tail: cr.tail, Polls: cr.polls, Front: cr.front, Renewals: cr.renewals, Gateways: gateways}
	at := c.at(r.Waiting)

	sessions := r.Rate * r.Visit.Seconds()
	beats := 0.0
	if r.Requests > 0 {
		beats = sessions * min(r.Requests, 4/r.TTL.Seconds())
	}
	var sum Cost
	calls := 0.0
	script := func(s Script, calledEach, items float64) {
		n := g * calledEach
		calls += n
		sum = sum.plus(s.Call, n).plus(s.Item, items)
	}
	script(at.Seen, batches(cr.front/g, nearWait)+batches(cr.renewals/g, farWait), cr.front+cr.renewals)
	script(at.Enrol, batches(r.Arrivals/g, nearWait), r.Arrivals)
	script(c.Claim, batches(r.Rate/g, nearWait), r.Rate)
	script(c.Beat, min(beats/g, 1/tick), beats)
	done := 0.0
	if r.Waiting > 0 || sessions > 0 {
		done = ticks(gateways)
		calls += g / tick
		sum = sum.plus(at.Tick, done).plus(at.Read, max(0, g/tick-done)).plus(c.Admission, r.Rate)
	}
	o.Calls, o.Commands, o.RedisCPU, o.RedisIn, o.RedisOut = calls, sum.Commands, sum.CPU/1e6, sum.In, sum.Out
	o.RedisMem = c.RedisBase + r.Waiting*at.Bytes + (sessions+r.Rate*(r.Absence.Seconds()+endedExtra))*c.Gone
	o.Fits = o.RedisCPU <= redisShare

	q := &c.Gateway
	// sum includes the gateways' cost of store calls.
	o.CPU = (g*q.Idle + sum.Caller + cr.polls*q.poll(cr.polls/g) + cr.renewals*q.Sign +
		r.Arrivals*(q.Join+q.poll((cr.polls+r.Arrivals)/g)+q.Sign) + r.Rate*q.Claim + sessions*r.Requests*q.Pass) / 1e6
	o.Connected = min(r.Waiting/g, 256)
	if r.Direct {
		// A page polls over an open connection if the last poll was recent.
		o.Connected = r.Waiting / g
		if mean := r.Waiting / max(cr.polls, 1e-9); mean > idleClose {
			o.Connected *= idleClose / mean
		}
	}
	o.Memory = q.Base + r.Waiting/g*q.Ticket + o.Connected*q.Connection
	o.In = cr.polls*q.PollIn + r.Arrivals*(q.JoinIn+q.PollIn)
	o.Out = cr.polls*q.PollOut + cr.renewals*q.TokenOut + r.Arrivals*(q.JoinOut+q.PollOut+q.TokenOut)
	return o
}
