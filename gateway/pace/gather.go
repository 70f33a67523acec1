package pace

import "math"

// Gathering computes the polls of visitors who wait for an opening. Times are in seconds.
type Gathering struct {
	Left    float64 // until the opening
	Spread  float64 // after it, within which all are to poll
	People  int64
	Budget  int     // polls a second of all of them; 0: any number
	Quarter float64 // of absence
}

// Next returns the seconds to the next poll: a tenth of the time that is left, from 2 s to a minute, or longer if the budget
// requires it, and never more than a quarter of absence. A poll that would come after the opening is due at a random moment of
// the spread.
func (g *Gathering) Next(random float64) int {
	after := min(max(g.Left/10, shortest), longest)
	if g.Budget > 0 {
		after = max(after, float64(g.People)/float64(g.Budget))
	}
	after = min(after, g.Quarter)
	if after*(1+jitter) < g.Left || g.Left > g.Quarter { // after the last one the opening is nearer than that
		return Spread(after, g.Quarter, random)
	}
	return max(1, int(math.Ceil(max(g.Left, 0)+random*g.Spread)))
}
