package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
)

// flowSeconds is for how many seconds admissions are kept second by second.
const flowSeconds = 900

// loadFlow reads the room's admissions per second from the store.
func (r *ticker) loadFlow(ctx context.Context) ([]Flow, error) {
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	h, err := r.c.o.Client.HGetAll(ctx, r.keys[keyFlow]).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	bySec := map[int64]Flow{}
	for field, v := range h {
		if len(field) < 2 {
			continue
		}
		sec, err1 := strconv.ParseInt(field[:len(field)-1], 10, 64)
		n, err2 := strconv.ParseInt(v, 10, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		f := bySec[sec]
		f.Second = sec
		if strings.HasSuffix(field, "a") {
			f.Admitted = n
		} else {
			f.Busy = n / 1000
		}
		bySec[sec] = f
	}
	return slices.SortedFunc(maps.Values(bySec), func(a, b Flow) int { return cmp.Compare(a.Second, b.Second) }), nil
}

// mergeFlow replaces the newest seconds of the flow and returns a slice that is never changed.
func (r *ticker) mergeFlow(news []Flow, room int64) []Flow {
	old := r.flow
	from := int64(math.MaxInt64)
	if len(news) > 0 {
		from = news[0].Second
	}
	out := make([]Flow, 0, len(old)+len(news))
	for _, f := range old {
		if f.Second < from && f.Second > room/1e6-flowSeconds {
			out = append(out, f)
		}
	}
	for _, f := range news {
		if f.Admitted > 0 || f.Busy > 0 {
			out = append(out, f)
		}
	}
	r.flow = out
	return out
}

// Minute is one minute of a room's history.
type Minute struct {
	At                           int64 // start, seconds of Redis's clock
	Joins, Admissions, Abandoned int64
	Returned                     int64     // parked tickets that came back
	Absent, Lapsed               []AgeTime // tickets that were parked, and admissions that were not claimed, by time in the queue
	Waiting                      int64     // at its end
	Rate                         int64     // thousandths, in force at its end
	Found                        bool      // Rate was found by the controller of an adaptive room
	Share                        int64     // thousandths: part of the origin's budget that the room could count on, at its end; 0: none
	MaxActive, Active            int64     // at its end; 0: there was no limit
	Paused                       time.Duration
	WaitP50, WaitP90             time.Duration
}

// AgeTime counts tickets with a time in the queue, s, from From to less than 2·From + 1.
type AgeTime struct{ From, Count int64 }

// addOctave appends the count of an octave of wait_bucket in lua/lib/room.lua.
func addOctave(list []AgeTime, octave string, n int64) []AgeTime {
	i, err := strconv.Atoi(octave)
	if err != nil || i < 0 || i > octaves {
		return list
	}
	return append(list, AgeTime{From: 1<<i - 1, Count: n})
}

// History returns the last minutes of the room, oldest first, at most 1440.
func (r *operators) History(ctx context.Context, minutes int) ([]Minute, error) {
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	return readMinutes(ctx, r.c.o.Client, r.keys[keyMinutes], r.view.RedisNow(), minutes)
}

// ReadHistory returns the last minutes of a room as Room.History does, without a Core.
func ReadHistory(ctx context.Context, client redisstore.Client, prefix, room string, minutes int) ([]Minute, error) {
	now, err := client.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return readMinutes(ctx, client, roomKeys(prefix, room)[keyMinutes], now.UnixMicro(), minutes)
}

func readMinutes(ctx context.Context, client redisstore.Client, key string, now int64, minutes int) ([]Minute, error) {
	minutes = max(1, min(1440, minutes))
	last := now / 60e6
	h, err := readFields(ctx, client, key, last, minutes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := make([]Minute, minutes)
	waits := make([]map[int]int64, minutes)
	for i := range out {
		out[i].At = (last - int64(minutes-1-i)) * 60
		waits[i] = map[int]int64{}
	}
	for field, v := range h {
		cut := strings.IndexFunc(field, func(c rune) bool { return c < '0' || c > '9' })
		if cut < 1 {
			continue
		}
		m, err1 := strconv.ParseInt(field[:cut], 10, 64)
		n, err2 := strconv.ParseInt(v, 10, 64)
		i := int(m - last + int64(minutes) - 1)
		if err1 != nil || err2 != nil || i < 0 || i >= minutes {
			continue
		}
		switch b := &out[i]; field[cut] {
		case 'j':
			b.Joins = n
		case 'a':
			b.Admissions = n
		case 'x':
			b.Abandoned = n
		case 'q':
			b.Waiting = n
		case 'r':
			b.Rate = n
		case 'm':
			b.MaxActive = n
		case 'c':
			b.Active = n
		case 'k':
			b.Found = n == 1
		case 's':
			b.Share = n
		case 'p':
			b.Paused = time.Duration(n) * time.Microsecond
		case 'b':
			b.Returned = n
		case 'h':
			b.Absent = addOctave(b.Absent, field[cut+1:], n)
		case 'l':
			b.Lapsed = addOctave(b.Lapsed, field[cut+1:], n)
		case 'w':
			if idx, err := strconv.Atoi(field[cut+1:]); err == nil {
				waits[i][idx] = n
			}
		}
	}
	for i := range out {
		for _, list := range [][]AgeTime{out[i].Absent, out[i].Lapsed} {
			slices.SortFunc(list, func(a, b AgeTime) int { return cmp.Compare(a.From, b.From) })
		}
		out[i].WaitP50, out[i].WaitP90 = quantile(waits[i], 0.5), quantile(waits[i], 0.9)
	}
	return out, nil
}

// octaves is the last octave of a time in the queue.
const octaves = 20

// minuteFields are the fields of a minute in the history, without the minute: those of room_advance, and the buckets of
// count_wait and count_octave.
var minuteFields = func() []string {
	fields := []string{"j", "a", "x", "b", "q", "r", "m", "c", "p", "k", "s"}
	for i := range 81 {
		fields = append(fields, "w"+strconv.Itoa(i))
	}
	for i := range octaves + 1 {
		fields = append(fields, "h"+strconv.Itoa(i), "l"+strconv.Itoa(i), "y"+strconv.Itoa(i))
	}
	return fields
}()

// readFields reads the fields of the last minutes of a history, one hour a call, or the whole history where it is smaller.
func readFields(ctx context.Context, client redisstore.Client, key string, last int64, minutes int) (map[string]string, error) {
	held, err := client.HLen(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	if held <= int64(minutes*len(minuteFields)) {
		return client.HGetAll(ctx, key).Result()
	}
	h := map[string]string{}
	var fields []string
	for m := last - int64(minutes) + 1; m <= last; m++ {
		for _, f := range minuteFields {
			fields = append(fields, itoa(m)+f)
		}
		if m < last && len(fields) < 60*len(minuteFields) {
			continue
		}
		values, err := client.HMGet(ctx, key, fields...).Result()
		if err != nil {
			return nil, err
		}
		for i, v := range values {
			if v != nil {
				h[fields[i]] = asString(v)
			}
		}
		fields = fields[:0]
	}
	return h, nil
}

// quantile returns a quantile of a histogram of count_wait in lua/lib/room.lua: the middle of bucket i, which holds waits from
// 2^(i/4)-1 s.
func quantile(h map[int]int64, q float64) time.Duration {
	var total int64
	keys := make([]int, 0, len(h))
	for k, n := range h {
		total += n
		keys = append(keys, k)
	}
	if total == 0 {
		return 0
	}
	slices.Sort(keys)
	want := int64(math.Ceil(q * float64(total)))
	for _, k := range keys {
		if want -= h[k]; want <= 0 {
			if k == 0 {
				return 0
			}
			return time.Duration((math.Exp2((float64(k)+0.5)/4) - 1) * float64(time.Second))
		}
	}
	return 0
}
