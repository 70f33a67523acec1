package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// SessionEnds is what SessionEnds found. Times are room time, µs.
type SessionEnds struct {
	Ending  []ID  // sessions that end within the time, unless they are used meanwhile
	Gone    []ID  // of those that were asked about: they have ended
	Revoked []ID  // sessions that were revoked since
	Until   int64 // up to which Revoked is complete
}

// mostSessionEnds bounds the sessions in each list of SessionEnds.
const mostSessionEnds = 5000

// SessionEnds reads which sessions end within a time, which of the given ones have ended, and which were revoked after since; 0: none were.
// Whoever keeps Ending and Until and asks again before the time is over learns of each end once.
func (r *operators) SessionEnds(ctx context.Context, of []ID, since int64, within time.Duration) (SessionEnds, error) {
	if r.store.away.Load() {
		return SessionEnds{}, r.store.away.err()
	}
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	s := r.view.Snapshot()
	now := s.RoomTime + (r.c.mono()-s.ReadAt)/1000
	var scores *redis.FloatSliceCmd
	var ending *redis.StringSliceCmd
	var revoked *redis.ZSliceCmd
	_, err := r.c.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if len(of) > 0 {
			ids := make([]string, len(of))
			for i := range of {
				ids[i] = string(of[i][:])
			}
			scores = p.ZMScore(ctx, r.keys[keySessions], ids...)
		}
		ending = p.ZRangeByScore(ctx, r.keys[keySessions], &redis.ZRangeBy{Min: "-inf", Max: itoa(now + within.Microseconds()), Count: mostSessionEnds})
		if since > 0 {
			revoked = p.ZRangeByScoreWithScores(ctx, r.keys[keyRevoked], &redis.ZRangeBy{Min: "(" + itoa(since), Max: "+inf", Count: mostSessionEnds})
		}
		return nil
	})
	if err != nil {
		return SessionEnds{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	found := SessionEnds{Until: max(since, now)}
	more := false
	if revoked != nil {
		found.Revoked, found.Until, more = revokedSince(revoked.Val(), since)
	}
	for _, text := range ending.Val() {
		// What was revoked between the two reads is in Revoked.
		if id, ok := toID(text); ok && !slices.Contains(found.Revoked, id) {
			found.Ending = append(found.Ending, id)
		}
	}
	if scores == nil {
		return found, nil
	}
	for i, score := range scores.Val() {
		switch {
		case score != 0: // a member
		case more: // it may have been revoked, which a later call reads
			found.Ending = append(found.Ending, of[i])
		default:
			found.Gone = append(found.Gone, of[i])
		}
	}
	return found, nil
}

// revokedSince reads a list of revoked sessions by room time. more reports that the list goes on; the sessions of one moment are then left to
// the next call, which reads them together.
func revokedSince(list []redis.Z, since int64) (ids []ID, until int64, more bool) {
	n, until := len(list), since
	if more = n == mostSessionEnds; more {
		for last := list[n-1].Score; n > 0 && list[n-1].Score == last; {
			n--
		}
		if n > 0 {
			list = list[:n]
		}
	}
	for _, z := range list {
		text, _ := z.Member.(string)
		if id, ok := toID(text); ok {
			ids = append(ids, id)
		}
		until = max(until, int64(z.Score))
	}
	return ids, until, more
}
