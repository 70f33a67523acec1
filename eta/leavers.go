package eta

import "math"

const (
	leaveTime = 300.0 // s: time constant of the counts
	leaveFew  = 20.0  // visitors; fewer are weak evidence
)

// leavers counts the departures of visitors who left before the front of the queue reached them, or whose tickets expired. Counts fade with
// leaveTime.
type leavers struct {
	came, gone, waiting int64   // totals at the last forecast
	others              float64 // departures elsewhere than at the front
	exposure            float64 // visitors × s in the queue
}

// after returns the counts after a new input.
func (l leavers) after(in *Input, elapsed float64) leavers {
	next := leavers{came: in.Came, gone: in.Gone, waiting: max(in.Waiting, 0)}
	passed := float64(in.Gone - l.gone)
	others := float64(in.Came-l.came) - passed - float64(next.waiting-l.waiting)
	switch {
	case elapsed == 0 || in.Came < l.came || passed < 0:
		return next // the first input, or the totals began again
	case others > leaveFew && others > float64(l.waiting)/2:
		return next // the queue was emptied by hand
	}
	fade := math.Exp(-elapsed / leaveTime)
	next.others, next.exposure = l.others*fade+max(0, others), l.exposure*fade+float64(next.waiting)*elapsed
	return next
}

// hazard returns the share of the queue that leaves in a second. Few departures are shrunk towards 0.
func (l *leavers) hazard() float64 {
	if l.exposure == 0 {
		return 0
	}
	return l.others / l.exposure * min(1, l.others/leaveFew)
}

const (
	churnTime = 600.0 // s
	churnFew  = 20.0  // ended sessions from which on their hazard is known
	atRate    = 0.8   // share of the rate in force from which on a room fills at that rate
)

// churn counts sessions that end, fading with churnTime.
type churn struct {
	admitted, active int64 // at the last forecast
	ended, exposure  float64
}

func (c churn) after(in *Input, elapsed float64) churn {
	next := churn{admitted: in.Admitted, active: in.Active}
	ended := float64(in.Admitted-c.admitted) - float64(in.Active-c.active)
	if elapsed == 0 || in.Admitted < c.admitted {
		return next
	}
	fade := math.Exp(-elapsed / churnTime)
	next.ended, next.exposure = c.ended*fade+ended, c.exposure*fade+float64(in.Active)*elapsed
	return next
}

// hazard returns the hazard of a session to end, 1/s; 0: not known.
func (c *churn) hazard() float64 {
	if c.ended < churnFew || c.exposure <= 0 {
		return 0
	}
	return c.ended / c.exposure
}

// full returns after how many seconds a room that fills at rate will be full (+Inf: never), and its flow from then on. With n active
// sessions, each ending with hazard μ, dn/dt = rate − μn. While the hazard is unknown, the flow of a room that fills at its rate is
// unknown too, and 0 is returned. A room that is full already is forecast from its admissions since then.
func (c *churn) full(in *Input, rate float64) (seconds, flow float64) {
	hazard := c.hazard()
	flow = hazard * float64(in.MaxActive)
	switch {
	case in.MaxActive <= 0, in.Active >= in.MaxActive, hazard > 0 && rate <= flow,
		// Observed for minutes, the room has not become full: so few come and go that their hazard stays unknown.
		hazard == 0 && (rate < atRate*in.Rate || c.exposure > churnTime/2*float64(in.Active)):
		return math.Inf(1), 0
	case hazard == 0:
		return float64(in.MaxActive-in.Active) / rate, 0
	}
	return math.Log((rate-hazard*float64(in.Active))/(rate-flow)) / hazard, flow
}

// over returns after how many seconds a room with more than max_active active, as after that limit was lowered, admits again.
func (c *churn) over(in *Input) float64 {
	if hazard := c.hazard(); hazard > 0 && in.MaxActive > 0 && in.Active > in.MaxActive {
		return math.Log(float64(in.Active)/float64(in.MaxActive)) / hazard
	}
	return 0
}

// fullness describes a full room. Admissions from before the room was full, or from under another limit, do not show how many sessions
// end; the sessions' hazard and the later admissions do.
type fullness struct {
	is    bool
	limit int64
	since int64   // room time, s
	last  int64   // room time at which it was nearly full, s
	flow  float64 // visitors/s by the hazard; 0: not known
}

const (
	nearlyFull = 0.8 // share of max_active: a room that was full counts as full
	stillFull  = 60  // until it has been below that share for so many seconds, because a crowd that leaves at once is soon replaced
)

func (l fullness) after(in *Input, first bool, hazard float64) fullness {
	now := floorSeconds(in.Now)
	next := fullness{is: l.is, limit: in.MaxActive, since: l.since, last: l.last, flow: hazard * float64(in.MaxActive)}
	if float64(in.Active) >= nearlyFull*float64(in.MaxActive) {
		next.last = now
	}
	switch {
	case in.MaxActive <= 0 || now-next.last > stillFull:
		return fullness{limit: in.MaxActive}
	case first && in.Active >= in.MaxActive:
		next.is, next.since = true, math.MinInt64 // unknown, so assume the longest time
	case in.Active > in.MaxActive, in.Active == in.MaxActive && !l.is, l.is && l.limit != in.MaxActive:
		next.is, next.since = true, now+1 // this second filled it
	}
	return next
}
