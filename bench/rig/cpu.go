package rig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// ErrNoCPU is returned where the system does not report the processor time of other processes.
var ErrNoCPU = errors.New("processor time is only read from /proc")

// CPU returns the processor time that pid and all of its descendants have used so far.
func CPU(pid int) (time.Duration, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoCPU, err)
	}
	processes := map[int]procfs.ProcStat{}
	for _, p := range all {
		if s, err := p.Stat(); err == nil { // else it has ended meanwhile
			processes[p.PID] = s
		}
	}
	if _, ok := processes[pid]; !ok {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	sum := 0.0
	for at, p := range processes {
		for ; at > 1 && at != pid; at = processes[at].PPID {
		}
		if at == pid {
			sum += p.CPUTime()
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
}

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// Reaped returns the processor time of the children of pid that have ended.
func Reaped(pid int) (time.Duration, error) {
	s, err := stat(pid)
	return time.Duration(s.CUTime+s.CSTime) * (time.Second / 100), err // in hundredths, as CPUTime
}

// Memory returns the resident memory of pid, in bytes.
func Memory(pid int) (int64, error) {
	s, err := stat(pid)
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

// OwnCPU returns the processor time that this process has used.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// LoadAverage returns the load of the machine in the last minute, or "unknown".
func LoadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(raw), " ")
	return first
}
