package main

import (
	"math"
	"strings"
	"testing"
)

func TestParseWrk_RefusesFailedRuns(t *testing.T) {
	const ok = "Running 3s test\n  2 threads\n\nRESULT {\"requests\":3000,\"micros\":3000000,\"p50\":100,\"p99\":2500,\"broken\":0,\"refused\":0}\n"
	if r, err := parseWrk([]byte(ok)); err != nil || r.Requests != 3000 || r.P99 != 2500 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, tt := range map[string]struct{ out, err string }{
		"no result":        {"unable to connect", "no result"},
		"not JSON":         {"\nRESULT {", "EOF"},
		"nothing answered": {"\nRESULT {\"requests\":0,\"micros\":3000000}", "no request was answered"},
		"refusals":         {"\nRESULT {\"requests\":1000,\"micros\":3000000,\"refused\":2}", "2 of 1000 requests failed"},
		"broken":           {"\nRESULT {\"requests\":1000,\"micros\":3000000,\"broken\":2}", "2 of 1000 requests failed"},
	} {
		if _, err := parseWrk([]byte(tt.out)); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
	}
}

func TestFlags_RefuseWrongValues(t *testing.T) {
	for args, want := range map[string]string{
		"--only pass,polls":                 `--only "polls": want some of pass, poll, join, check, mix, slow`,
		"--slow 0":                          "--slow 0",
		"--against gateway --only poll,mix": `--only "mix": --against compares only pass, poll, join`,
		"--together":                        "--together: want also --against",
		"--rounds 0":                        "--rounds 0",
	} {
		cmd := command()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if o := (options{only: []string{"mix"}}); !o.wants("mix") || o.wants("slow") || !(options{}).wants("slow") {
		t.Error("--only does not select parts")
	}
}

func TestStandardError_IsOfMean(t *testing.T) {
	if got := standardError([]float64{1, 2, 3, 4}); math.Abs(got-0.6455) > 0.0001 {
		t.Errorf("%v", got)
	}
	if got := standardError([]float64{1}); got != 0 {
		t.Errorf("of one figure: %v", got)
	}
}
