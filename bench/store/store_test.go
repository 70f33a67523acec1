package store

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/lua"
)

func TestParseInfo(t *testing.T) {
	st, err := parseInfo("# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nused_cpu_sys:0.500000\r\nused_cpu_user:1.250000\r\nused_cpu_sys_children:9\r\n" +
		"total_net_input_bytes:7\r\ntotal_net_output_bytes:8\r\ncmdstat_evalsha:calls=3,usec=9,usec_per_call=3.00\r\ncmdstat_evalsha_ro:calls=1,usec=9\r\ncmdstat_zadd:calls=40,usec=9\r\n")
	want := Stats{Memory: 1000, CPU: 1750 * time.Millisecond, Calls: 4, Commands: 44, In: 7, Out: 8}
	if err != nil || st != want {
		t.Errorf("%+v, %v; want %+v", st, err, want)
	}
	for _, bad := range []string{"", "used_memory:x\r\n"} {
		if _, err := parseInfo(bad); err == nil {
			t.Errorf("%q is read as INFO", bad)
		}
	}
}

// A real server: a script's calls are counted and timed under its name, and what it holds is measured.
func TestServer(t *testing.T) {
	ctx := t.Context()
	s, err := Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	before, err := s.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	script := lua.MustLoad().Script("layout_claim")
	if err := s.Client.Do(ctx, "SCRIPT", "LOAD", script.Source).Err(); err != nil {
		t.Fatal(err)
	}
	times, err := s.Time(ctx, "layout", func() error {
		for range 3 {
			if err := s.Client.EvalSha(ctx, script.SHA, []string{"wr:layout"}, 0, 1).Err(); err != nil && err != redis.Nil { //nolint:errorlint // as the client gives it
				return err
			}
		}
		return nil
	})
	if err != nil || len(times["layout_claim"]) != 3 || times["layout_claim"][0] <= 0 {
		t.Errorf("%v, %v", times, err)
	}
	if err := s.Client.Set(ctx, "a:snapshot", "12345", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Length(ctx, "*:snap*"); n != 5 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	after, err := s.Stats(ctx)
	if d := after.Since(before); err != nil || d.Calls != 3 || d.Commands < 4 || d.In <= 0 || d.Out <= 0 {
		t.Errorf("%+v, %v", d, err)
	}
}
