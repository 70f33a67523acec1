package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc's times: USER_HZ, which Linux fixes at 100 for programs.
const tick = 10 * time.Millisecond

// CPU is the processor time that pid and all of its descendants have used so far.
func CPU(pid int) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoCPU, err)
	}
	type process struct {
		parent int
		used   time.Duration
	}
	all := map[int]process{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		parent, used, err := parseStat(raw)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", n, err)
		}
		all[n] = process{parent, used}
	}
	if _, ok := all[pid]; !ok {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	var sum time.Duration
	for n, p := range all {
		for at := n; at > 1; at = all[at].parent {
			if at == pid {
				sum += p.used
				break
			}
		}
	}
	return sum, nil
}

// parseStat reads the parent (field 4), and user and system time (14, 15), of /proc/<pid>/stat. The name in field 2 may
// hold blanks and brackets, so fields are counted from the last bracket.
func parseStat(raw []byte) (parent int, used time.Duration, err error) {
	i := bytes.LastIndexByte(raw, ')')
	f := strings.Fields(string(raw[i+1:]))
	if i < 0 || len(f) < 13 {
		return 0, 0, fmt.Errorf("cannot read %q", raw)
	}
	if parent, err = strconv.Atoi(f[1]); err != nil {
		return 0, 0, err
	}
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		used += time.Duration(n) * tick
	}
	return parent, used, nil
}

// Memory is what pid holds resident, in bytes.
func Memory(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(raw))
	if len(f) < 2 {
		return 0, fmt.Errorf("cannot read %q", raw)
	}
	n, err := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize()), err
}
