package rig

import (
	"os"
	"testing"
	"time"
)

func TestClock_AgreesWithProc(t *testing.T) {
	before, err := Clock(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var self time.Duration
	for used := before; used < before+time.Millisecond; {
		if used, err = Clock(os.Getpid()); err != nil {
			t.Fatal(err)
		}
		self = used
	}
	all, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if all+2*tick < self {
		t.Errorf("the clock reads %v, /proc %v", self, all)
	}
	for _, pid := range []int{-1, 0, mostPID, 1 << 28, 1 << 30} {
		if used, err := Clock(pid); err == nil {
			t.Errorf("process %d does not exist and has used %v", pid, used)
		}
	}
}
