package admission

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Reading one hour of a day of history does not read the rest.
func TestHistory_ReadsRequestedMinutesOnly(t *testing.T) {
	client := redistest.Server(t).Client()
	const day, last = 1440, 29_666_666
	pipe := client.Pipeline()
	for m := int64(last - day + 1); m <= last; m++ {
		args := []any{itoa(m) + "a", m % 1000, itoa(m) + "s", 7}
		for f := range 40 {
			args = append(args, itoa(m)+"w"+itoa(int64(2*f)), 1+f)
		}
		pipe.HSet(ctx5(t), "h", args...)
	}
	if _, err := pipe.Exec(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	// took returns the time (µs) that a command took of Redis in all.
	took := func(command string) (us float64) {
		t.Helper()
		for line := range strings.Lines(client.Info(ctx5(t), "commandstats").Val()) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
				var calls float64
				if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f", &calls, &us); err != nil {
					t.Fatal(err)
				}
			}
		}
		return us
	}
	all, err := readMinutes(ctx5(t), client, "h", last*60e6, day)
	if err != nil {
		t.Fatal(err)
	}
	whole := took("hgetall")
	hour, err := readMinutes(ctx5(t), client, "h", last*60e6, 60)
	if err != nil {
		t.Fatal(err)
	}
	part := took("hmget") + took("hlen")
	t.Logf("a day takes %.1f ms of Redis, its last hour %.1f ms", whole/1000, part/1000)
	if len(hour) != 60 || took("hgetall") != whole {
		t.Errorf("an hour of %d minutes read the whole day", len(hour))
	}
	for i, m := range hour {
		if !reflect.DeepEqual(m, all[day-60+i]) || m.Admissions == 0 || m.Share != 7 || m.WaitP90 == 0 {
			t.Fatalf("minute %d: %+v, of the whole day %+v", i, m, all[day-60+i])
		}
	}
}
