package main

import (
	"strings"
	"testing"
	"time"
)

func TestFlags_RefuseWrongValues(t *testing.T) {
	for args, want := range map[string]string{
		"--only facts,webhooks": `--only "webhooks": want some of change, evacuate, facts`,
		"--changes 0":           "--changes 0",
		"--publications 0":      "--publications 0",
	} {
		cmd := command()
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A visitor sees a version once, and only the one that was published.
func TestPublication_CountsTheVersionOnce(t *testing.T) {
	p := &publication{version: "v2", at: time.Unix(100, 0), seen: map[int]bool{}, listened: map[int]bool{}}
	p.saw(1, "v1", time.Unix(101, 0), 10*time.Second)
	p.saw(1, "v2", time.Unix(111, 0), 10*time.Second)
	p.saw(1, "v2", time.Unix(121, 0), 10*time.Second)
	p.receivedBy(1, "v1", time.Unix(101, 0))
	p.receivedBy(1, "v2", time.Unix(102, 0))
	p.receivedBy(1, "v2", time.Unix(103, 0))
	if len(p.polled) != 1 || p.polled[0] != (sighting{11 * time.Second, time.Second}) {
		t.Errorf("polled: %v", p.polled)
	}
	if len(p.received) != 1 || p.received[0] != 2*time.Second {
		t.Errorf("received: %v", p.received)
	}
}
