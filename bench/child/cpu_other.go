//go:build !linux

package child

import "time"

func CPU(int) (time.Duration, error) { return 0, ErrNoCPU }

func Memory(int) (int64, error) { return 0, ErrNoCPU }
