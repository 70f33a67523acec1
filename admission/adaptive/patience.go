package adaptive

// Patience is of a controller on whose origin other work runs that gives way to it: what that work made too much is no reason
// to cut one's own rate.
type Patience struct {
	since int64 // µs; when the trouble began; 0: there is none
}

// yields is how long others have to give way, µs: to hear of it, to end what runs, and for it to leave the window that is
// measured. Trouble that outlasts it is one's own.
const yields = 6_000_000

// Waits tells whether an origin at that level is to be left to the others. others says that they ran lately.
func (p *Patience) Waits(level Level, others bool, now int64) bool {
	if level <= Healthy {
		p.since = 0
		return false
	}
	if p.since == 0 || p.since > now {
		p.since = now
	}
	return others && now-p.since < yields
}
