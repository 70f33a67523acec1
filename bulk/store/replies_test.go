package store

import (
	"maps"
	"strconv"
	"testing"

	"github.com/anteroom/anteroom/lua"
)

// TestReplies_AreThoseOfTheScripts compares the reply codes in Go with the headers of the scripts.
func TestReplies_AreThoseOfTheScripts(t *testing.T) {
	for script, codes := range map[string]map[string]int{
		"job_cancel":   {"CANCELLED": replyCancelled, "RUNNING": replyRunning, "NOT_FOUND": replyNotFound},
		"group_join":   {"NOT_JOINED": replyNotJoined, "JOINED": replyJoined},
		"group_resume": {"NO_GROUP": replyNoGroup, "NOT_WAITING": replyNotWaiting, "WAITING": replyWaiting},
		"group_reduce": {"NOT_REDUCED": replyNotReduced, "REDUCED": replyReduced},
		"leases_renew": {"LEASE_LOST": int(LeaseLost), "LEASE_HELD": int(LeaseHeld), "LEASE_CALLED": int(LeaseCalled)},
		"jobs_ack": {"ACK_DONE": replyAckDone, "ACK_FAILED": replyAckFailed, "ACK_RETRY": replyAckRetry, "ACK_THROTTLED": replyAckThrottled,
			"ACK_RETURNED": replyAckReturned, "ACK_DEAD": replyAckDead, "ACK_CANCELLED": replyAckCancelled, "ACK_STALE": replyAckStale},
	} {
		known := map[string]string{}
		for name, value := range codes {
			known[name] = strconv.Itoa(value)
			if script == "jobs_ack" { // its codes are letters
				known[name] = string(rune(value))
			}
		}
		if declared := lua.MustLoad().Script(script).Replies; !maps.Equal(known, declared) {
			t.Errorf("%s: Go has %v, the script %v", script, known, declared)
		}
	}
}
