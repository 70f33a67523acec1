package main

import (
	_ "embed" // for calibration.json
	"encoding/json"
	"fmt"
	"math"
	"os"
)

// Cost is the cost of an operation for Redis and for the gateway that requests it.
type Cost struct {
	CPU      float64 `json:"cpu_us"`
	Caller   float64 `json:"caller_us"` // of the gateway's processor time
	Commands float64 `json:"commands"`  // those within scripts included
	In       float64 `json:"bytes_in"`
	Out      float64 `json:"bytes_out"`
}

func (c Cost) plus(o Cost, times float64) Cost {
	return Cost{c.CPU + o.CPU*times, c.Caller + o.Caller*times, c.Commands + o.Commands*times, c.In + o.In*times, c.Out + o.Out*times}
}

// Script is the cost of a script: of each call, and of each ticket or session in it.
type Script struct {
	Call Cost `json:"call"`
	Item Cost `json:"item"`
}

func (s Script) mix(o Script, part float64) Script {
	return Script{mix(s.Call, o.Call, part), mix(s.Item, o.Item, part)}
}

func mix(a, b Cost, part float64) Cost { return Cost{}.plus(a, 1-part).plus(b, part) }

// Size is the costs that depend on how many visitors wait.
type Size struct {
	Waiting float64 `json:"waiting"`
	Bytes   float64 `json:"bytes_a_visitor"` // of Redis
	Seen    Script  `json:"seen"`
	Enrol   Script  `json:"enrol"`
	Tick    Cost    `json:"tick"` // a tick, with its snapshot
	Read    Cost    `json:"read"` // reading a tick of another gateway
}

// Calibration is the costs of operations on one machine.
type Calibration struct {
	Machine   string  `json:"machine"`
	Sizes     []Size  `json:"sizes"` // ascending
	Claim     Script  `json:"claim"`
	Beat      Script  `json:"heartbeat"`
	Admission Cost    `json:"admission"`  // of one ticket, in a tick
	Gone      float64 `json:"gone_bytes"` // of Redis, for an admitted visitor: session, grant, the remembered ID
	RedisBase float64 `json:"redis_base_bytes"`
	Gateway   Gateway `json:"gateway"`
}

// Gateway is the costs of a gateway, in µs of processor time and in bytes.
type Gateway struct {
	Idle       float64    `json:"idle_us"` // a second, without requests
	Polls      []PollCost `json:"polls"`   // behind the front, by rate; ascending
	Join       float64    `json:"join_us"`
	Sign       float64    `json:"sign_us"`    // a renewed token: signed, and sent in the body and as a cookie
	Claim      float64    `json:"claim_us"`   // a pass: signed and sent
	Pass       float64    `json:"pass_us"`    // of a request with a pass
	Base       float64    `json:"base_bytes"` // resident
	Ticket     float64    `json:"ticket_bytes"`
	Connection float64    `json:"connection_bytes"`
	PollIn     float64    `json:"poll_in_bytes"`
	PollOut    float64    `json:"poll_out_bytes"`
	TokenOut   float64    `json:"token_out_bytes"` // additional, if the token is renewed
	JoinIn     float64    `json:"join_in_bytes"`
	JoinOut    float64    `json:"join_out_bytes"`
}

// PollCost is the cost of a poll at a rate. At a low rate each poll wakes the gateway and costs more.
type PollCost struct {
	Rate float64 `json:"rate"`
	CPU  float64 `json:"cpu_us"`
}

// segment returns the two neighbours of x among points in ascending order, and where x lies between them by its logarithm: 0 at the
// first or before all, 1 at the second, more beyond all.
func segment[P any](points []P, x float64, of func(P) float64) (a, b P, part float64) {
	if len(points) == 1 {
		return points[0], points[0], 0
	}
	i := 1
	for i < len(points)-1 && x > of(points[i]) {
		i++
	}
	a, b = points[i-1], points[i]
	return a, b, max(0, math.Log(x/of(a))/math.Log(of(b)/of(a)))
}

// poll interpolates the cost of a poll between the measured rates.
func (g *Gateway) poll(rate float64) float64 {
	a, b, part := segment(g.Polls, rate, func(p PollCost) float64 { return p.Rate })
	return a.CPU + min(1, part)*(b.CPU-a.CPU)
}

// at interpolates the costs for a queue length, and extrapolates them beyond the longest one. The bytes a visitor are constant there.
func (c *Calibration) at(waiting float64) Size {
	a, b, part := segment(c.Sizes, waiting, func(s Size) float64 { return s.Waiting })
	bytes := a.Bytes + min(1, part)*(b.Bytes-a.Bytes)
	// A cost that decreased between the last two sizes, by chance, is not extrapolated.
	if part > 1 {
		part = 1 + (part-1)*beyond(a, b)
	}
	return Size{
		Waiting: waiting, Bytes: bytes, Seen: a.Seen.mix(b.Seen, part), Enrol: a.Enrol.mix(b.Enrol, part),
		Tick: mix(a.Tick, b.Tick, part), Read: mix(a.Read, b.Read, part),
	}
}

// beyond returns 0 if a cost decreases from a to b, else 1.
func beyond(a, b Size) float64 {
	for _, d := range []float64{b.Seen.Call.CPU - a.Seen.Call.CPU, b.Seen.Item.CPU - a.Seen.Item.CPU, b.Enrol.Call.CPU - a.Enrol.Call.CPU,
		b.Enrol.Item.CPU - a.Enrol.Item.CPU, b.Tick.CPU - a.Tick.CPU, b.Read.CPU - a.Read.CPU} {
		if d < 0 {
			return 0
		}
	}
	return 1
}

// measured is the calibration behind the tables of docs/scaling.md.
//
//go:embed calibration.json
var measured []byte

// loadCalibration reads a calibration from a file, or returns the measured one.
func loadCalibration(path string) (*Calibration, error) {
	raw := measured
	if path != "" {
		var err error
		if raw, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	c := &Calibration{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(c.Sizes) == 0 || len(c.Gateway.Polls) == 0 {
		return nil, fmt.Errorf("%s: sizes or gateway.polls are missing; see bench/simulate/calibration.json", path)
	}
	return c, nil
}
