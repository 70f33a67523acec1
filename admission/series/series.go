// Package series describes the recorded figures of a room: their names, how the seconds of a longer row are joined, the text of a row in
// the store, and the table of a range of time. It is pure.
//
// Reading order: series.go (figures and lengths), row.go (the text that lua/series_record.lua writes), table.go (what operators read).
package series

// Length is the length of a row.
type Length struct {
	Name    string // in the API
	Seconds int64
	Rows    int64 // that the store keeps
}

// The lengths of rows: ten minutes of seconds, a day of minutes and 30 days of ten minutes.
var (
	Second     = Length{"1s", 1, 600}
	Minute     = Length{"1m", 60, 1440}
	TenMinutes = Length{"10m", 600, 4320}
)

// Lengths are all lengths, the shortest first.
var Lengths = []Length{Second, Minute, TenMinutes}

// Figure is a figure of a room in one second.
type Figure int

// The figures. The store keeps them in this order: new ones go to the end.
const (
	Waiting Figure = iota
	Parked
	Admitted // and not claimed
	Inside   // that count in max_active: sessions and admitted
	MaxActive
	Limit      // rate in force, thousandths
	Wanted     // rate that an adaptive strategy has found, thousandths
	Expected   // rate on which a room with a budget can count, thousandths
	Joins      // the following are totals
	Admissions //
	Claims
	Lapses
	Abandons
	Wait // of a newcomer, ms
	WaitLow
	WaitHigh
	P95       // of the origin, µs
	ErrorRate // of the origin, millionths
	InFlight  // requests to the origin
	EmptyIn   // s until the queue is empty
	Reason    // index of reason.Codes
	Gateways
	Born // second at which the totals began at 0
	figures
)

// Count is the number of figures.
const Count = int(figures)

// kinds are the letters of series_record: x the largest, l the last, m the mean.
var kinds = [Count]byte{
	Waiting: 'x', Parked: 'x', Admitted: 'x', Inside: 'x', MaxActive: 'l', Limit: 'l', Wanted: 'l', Expected: 'l',
	Joins: 'l', Admissions: 'l', Claims: 'l', Lapses: 'l', Abandons: 'l',
	Wait: 'm', WaitLow: 'm', WaitHigh: 'm', P95: 'm', ErrorRate: 'm', InFlight: 'x', EmptyIn: 'l', Reason: 'l', Gateways: 'x', Born: 'l',
}

// Kinds returns how the seconds of longer rows are joined, in the form of series_record.
func Kinds() string { return string(kinds[:]) }
