package child

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// CPU returns the processor time that pid and all of its descendants have used so far.
func CPU(pid int) (time.Duration, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoCPU, err)
	}
	type process struct {
		parent int
		used   time.Duration
	}
	processes := map[int]process{}
	for _, p := range all {
		if s, err := p.Stat(); err == nil { // else it has ended meanwhile
			processes[p.PID] = process{s.PPID, time.Duration(s.CPUTime() * float64(time.Second))}
		}
	}
	if _, ok := processes[pid]; !ok {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	var sum time.Duration
	for at, p := range processes {
		for ; at > 1 && at != pid; at = processes[at].parent {
		}
		if at == pid {
			sum += p.used
		}
	}
	return sum, nil
}

// Reaped returns the processor time of the children of pid that have ended.
func Reaped(pid int) (time.Duration, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return time.Duration(s.CUTime+s.CSTime) * (time.Second / 100), err // in hundredths, as CPUTime
}

// Memory returns the resident memory of pid, in bytes.
func Memory(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	s, err := p.Stat()
	return int64(s.ResidentMemory()), err
}

// Files returns how many file descriptors pid has open.
func Files(pid int) (int, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	return p.FileDescriptorsLen()
}
