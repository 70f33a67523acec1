package freeport

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// No port is found twice, whichever goroutine or process asks, though no program listens on it yet.
func TestFind_ReturnsNoPortTwice(t *testing.T) {
	const asks, processes = 200, 4
	if os.Getenv("FREEPORT_TEST_CHILD") != "" {
		for range asks {
			_, port, _ := strings.Cut(Address(t), ":")
			_, _ = os.Stdout.WriteString("port " + port + "\n")
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // holds its ports until all have asked
		return
	}
	var mu sync.Mutex
	found := map[string]int{}
	var all, asked sync.WaitGroup
	asked.Add(processes)
	done := make(chan struct{})
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFind_ReturnsNoPortTwice$")
		cmd.Env = append(os.Environ(), "FREEPORT_TEST_CHILD=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			lines := bufio.NewScanner(out)
			for n := 0; n < asks && lines.Scan(); {
				if port, ok := strings.CutPrefix(lines.Text(), "port "); ok {
					mu.Lock()
					found[port]++
					mu.Unlock()
					n++
				}
			}
			asked.Done()
			<-done
			_ = in.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	close(done)
	all.Wait()
	if len(found) != processes*asks {
		t.Errorf("%d processes found %d ports with %d calls each", processes, len(found), asks)
	}
}

// A port is not found while a program listens on it, or at a distance that must be free too.
func TestFree_SeesListenersAtDistances(t *testing.T) {
	port, err := Find(10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{port, port + 10_000} {
		if !free(port, []int{10_000}) {
			t.Fatalf("%d is taken by something else", port)
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
		if err != nil {
			t.Fatal(err)
		}
		if free(port, []int{10_000}) {
			t.Errorf("%d counts as free while a program listens on %d", port, at)
		}
		_ = l.Close()
	}
}
