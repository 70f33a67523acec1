package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/anteroom/anteroom/admission/series"
)

// rowsOfACall is how many rows one call of the store reads.
const rowsOfACall = 720

// Rows returns the recorded rows of a length in a range, and the last one of the two minutes or of the step before it, ascending.
func (r *Recorder) Rows(ctx context.Context, room *Room, l series.Length, in series.Range) ([]series.Row, error) {
	now := room.RedisNow() / 1e6
	first := max(in.From-max(120, l.Seconds), now-l.Seconds*l.Rows, 0) / l.Seconds
	last := min(in.To, now+l.Seconds) / l.Seconds
	key := seriesKeys(r.c.o.Prefix, room.id)[slices.Index(series.Lengths, l)]
	ctx, cancel := context.WithTimeout(ctx, r.c.tickTimeout())
	defer cancel()
	var rows []series.Row
	for from := first; from <= last; from += rowsOfACall {
		var fields []string
		for slot := from; slot <= min(last, from+rowsOfACall-1); slot++ {
			fields = append(fields, itoa(slot%l.Rows))
		}
		values, err := r.c.o.Client.HMGet(ctx, key, fields...).Result()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrStore, err)
		}
		for i, v := range values {
			if v == nil {
				continue
			}
			row, err := series.ParseRow(l, asString(v))
			if err != nil {
				return nil, err
			}
			if row.At == (from+int64(i))*l.Seconds { // another one is as old as the hash is long
				rows = append(rows, row)
			}
		}
	}
	series.Sort(rows)
	return rows, nil
}
