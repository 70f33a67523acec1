package rig

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/lua"
)

func TestParseInfo_ReadsEverySection(t *testing.T) {
	st, err := parseInfo("# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nused_cpu_sys:0.500000\r\nused_cpu_user:1.250000\r\nused_cpu_sys_children:9\r\n" +
		"mem_clients_normal:5\r\ntotal_net_input_bytes:7\r\ntotal_net_output_bytes:8\r\ncmdstat_evalsha:calls=3,usec=9,usec_per_call=3.00\r\ncmdstat_evalsha_ro:calls=1,usec=9\r\ncmdstat_zadd:calls=40,usec=9\r\n")
	want := Stats{Memory: 1000, Clients: 5, At: st.At, CPU: 1750 * time.Millisecond, Calls: 4, Commands: 44, In: 7, Out: 8}
	if err != nil || st != want {
		t.Errorf("%+v, %v; want %+v", st, err, want)
	}
	for _, bad := range []string{"", "used_memory:x\r\n"} {
		if _, err := parseInfo(bad); err == nil {
			t.Errorf("parseInfo(%q) returns no error", bad)
		}
	}
}

// TestRedis_CountsAndTimesScripts uses a real server.
func TestRedis_CountsAndTimesScripts(t *testing.T) {
	script := lua.MustLoad().Script("layout_claim")
	err := Do(t.Context(), io.Discard, func(r *Run) {
		s := r.Redis()
		before := Must(s.Stats(r))
		Check(s.Client.Do(r, "SCRIPT", "LOAD", script.Source).Err())
		times, err := s.Time(r, "layout", func() error {
			for range 3 {
				if err := s.Client.EvalSha(r, script.SHA, []string{"wr:layout"}, 0, 1).Err(); err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
			}
			return nil
		})
		if err != nil || len(times["layout_claim"]) != 3 || times["layout_claim"][0] <= 0 {
			t.Errorf("%v, %v", times, err)
		}
		Check(s.Client.Set(r, "a:snapshot", "12345", 0).Err())
		if n, err := s.Length(r, "*:snap*"); n != 5 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if d := Must(s.Stats(r)).Since(before); d.Calls != 3 || d.Commands < 4 || d.In <= 0 || d.Out <= 0 {
			t.Errorf("%+v", d)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
