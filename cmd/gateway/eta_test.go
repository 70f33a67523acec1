package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission"
)

func TestExport_TellsWhoLeftWithoutAWord(t *testing.T) {
	m := admission.Minute{At: 1_772_445_600, Admissions: 7, Waiting: 3, Rate: 20_000, Returned: 1,
		Absent: []admission.AgeTime{{From: 15, Count: 4}, {From: 31, Count: 2}}, Lapsed: []admission.AgeTime{{From: 7, Count: 5}}}
	line, err := json.Marshal(exported("sale", &m, nil))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"room":"sale","at":"2026-03-02T10:00:00Z","joins":0,"admissions":7,"abandoned":0,"waiting":3,"rate":20,"returned":1,` +
		`"absent_by_age":[[15,4],[31,2]],"lapsed_by_age":[[7,5]],"wait_p50_seconds":0,"wait_p90_seconds":0}`
	if string(line) != want {
		t.Errorf("%s\nwant %s", line, want)
	}
}

// The export once opened a new embedded store where the configuration names none, and printed nothing.
func TestExport_OpensNoNewStore(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "gateway.yaml", usual)
	cmd := newRoot(nil)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"eta", "export", "--config", "gateway.yaml"})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "store.url is not set") || !strings.Contains(err.Error(), "ANTEROOM_STORE__URL") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat("data"); err == nil {
		t.Error("it created the directory of a store")
	}
}
