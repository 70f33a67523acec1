package adaptive

// Patience makes a controller wait before it cuts its rate, while other work that gives way to visitors runs on the same origin: that
// work may cause the overload.
type Patience struct {
	since int64 // when the overload began, µs; 0: there is none
}

// yields is the time in which other work must give way, µs: it detects the overload, its running jobs end, and they leave the
// measured window. A longer overload is caused by visitors.
const yields = 6_000_000

// Waits reports whether the controller keeps its rate at that level. others: other work ran lately.
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
