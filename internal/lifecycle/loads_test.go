package lifecycle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A failed reload shows until one succeeds, and does not move the time of the last success.
func TestLoads_ShowTheLastReload(t *testing.T) {
	reg := prometheus.NewRegistry()
	l := NewLoads(reg, "x")
	want := func(value string) {
		t.Helper()
		text := "# HELP x_config_last_reload_successful 1 if the last reload of the configuration succeeded, 0 while an older one is in force.\n" +
			"# TYPE x_config_last_reload_successful gauge\nx_config_last_reload_successful " + value + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "x_config_last_reload_successful"); err != nil {
			t.Error(err)
		}
	}
	want("1")
	at := testutil.ToFloat64(l.at)
	if d := time.Since(time.Unix(int64(at), 0)); d < -time.Minute || d > time.Minute {
		t.Errorf("the start is %s ago", d)
	}
	l.Record(errors.New("bad file"))
	want("0")
	if testutil.ToFloat64(l.at) != at {
		t.Error("a failed reload moved the time of the last success")
	}
	l.Record(nil)
	want("1")
	if testutil.ToFloat64(l.at) < at {
		t.Error("the time of the last success went back")
	}
}
