package child

import (
	"os"
	"testing"
	"time"
)

func TestClock_CountsWorkAlone(t *testing.T) {
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
		t.Errorf("the clock shows %v, /proc %v", self, all)
	}
	if _, err := Clock(1 << 30); err == nil {
		t.Error("a process that is not there has a clock")
	}
}
