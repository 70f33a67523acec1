//go:build !linux

package main

import "time"

func cpu(int) (time.Duration, error) { return 0, errNoCPU }
