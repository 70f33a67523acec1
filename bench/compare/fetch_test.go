package main

import (
	"strings"
	"testing"
)

func TestSumOf(t *testing.T) {
	const page = "# HELP x y\nanteroom_requests_total{outcome=\"proxied\",room=\"open\"} 5\nanteroom_requests_total{outcome=\"proxied\",room=\"line\"} 7\nanteroom_requests_total{outcome=\"let_in\",room=\"open\"} 1e+06\n"
	if n, err := sumOf(strings.NewReader(page), "anteroom_requests_total{", `outcome="proxied"`, `room="open"`); n != 5 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if n, err := sumOf(strings.NewReader(page), "anteroom_requests_total{", `room="open"`); n != 1_000_005 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := sumOf(strings.NewReader(page), "anteroom_requests_total{", `room="shut"`); err == nil {
		t.Error("lines that are not there were added up")
	}
	if _, err := sumOf(strings.NewReader("anteroom_x five\n"), "anteroom_x"); err == nil {
		t.Error("a word was added up")
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--only pass,polls": `--only "polls": want some of pass, poll, join, mix, slow`,
		"--slow 0":          "--slow 0",
		"--rounds 0":        "--rounds 0",
	} {
		cmd := command()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if o := (options{only: []string{"mix"}}); !o.wants("mix") || o.wants("slow") || !(options{}).wants("slow") {
		t.Error("--only does not choose")
	}
}
