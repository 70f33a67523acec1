//go:build !linux

package rig

import "time"

// Clock returns ErrNoCPU on this system.
func Clock(int) (time.Duration, error) { return 0, ErrNoCPU }
