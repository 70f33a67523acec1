package paths

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// known are spellings that some server reads in its own way.
var known = []string{
	"/sale", "/sale/buy", "/sale/", "/sale/.", "/sale;v=1/buy", "/%73ale", "/%2573ale", "/sale%2fbuy", "/sale%5cbuy", "/sale\\buy", "/sale%00.png", "/sale%3bv",
	"/sale/buy/../../x", "/sale/buy/%2e%2e/%2e%2e/x", "/sale/../x", "/sale/buy/../../static/x", "/sale/buy//../../static/x",
	"/static/../sale", "/static/%2e%2e/sale", "/static/..%2fsale", "/static%2f..%2fsale", "/static/..;/sale/buy", "/static/..;a=b/sale",
	"/static;/..;/sale", "/static/%2e%2e%5csale", "/static\\..\\sale", "/static/a/p%2fq/../..%2f..%2fsale", "/static/.//..//sale", "/static//../sale", "/static/x%2f../../sale",
	"//h/sale", "///h/sale/buy", "//sale", "//static/sale", "//static/x/../sale", "/static/../sale%2f../../static/x", "//h//sale", "///sale",
	"/a/%2e%2e/sale/%2e%2e/../static", "/%u0073ale/buy", "/static/%u002e%u002e/sale", "/sale%2f..%2fstatic/x", "/static/..%2f/h/sale",
	"/sale%c0%afbuy", "/sale%e2%84%aa", "/%c5%bfale", "/sale%0a", "/sale%20", "/sale%09/x", "/sale.", "/sale%3fx", "/sale%23x", "/sale|x", "/./sale", "/.;/sale", "/%2e;/sale", "/;/sale", "/;x/sale",
	"http://shop.test/sale", "http://shop.test//h/sale", "http://shop.test/static/../sale", "/http://shop.test/sale", "/vip/../sale", "/vip/..;/sale/buy", "/vip%2f..%2fsale", "/sale/..;/vip",
	"/static;x/sale", "/static%3bx", "/static%00/sale", "/static%0asale", "/static%5c..%5csale", "/static/%252e%252e/sale", "/static/..%252fsale",
}

var pieces = []string{
	"/", "/", "/", "/", "sale", "sale", "static", "vip", "buy", "h", "..", "..", ".", "%2e", "%2e%2e", "%2E.", "%2f", "%2F", "%5c", "\\", ";", ";a=b", "%3b", "%00", "%73ale", "s%61le",
	"%u0073ale", "%u002f", "%25", "%252f", "%252e", "%0a", "%20", "%c0%af", "%c5%bfale", "@", ":80", "//", "/./", "/../", "http:", "%", "%zz", "|", "+", "~",
}

// spellings returns the known ones and n that are drawn from pieces of paths.
func spellings(n int, random *rand.Rand) []string {
	all := slices.Clone(known)
	for len(all) < len(known)+n {
		var b strings.Builder
		b.WriteString("/")
		for range 1 + random.IntN(8) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		all = append(all, b.String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// asker asks one server, over a connection that it keeps while the server does.
type asker struct {
	addr   string
	fields string
	conn   net.Conn
	in     *bufio.Reader
}

// ask returns the answer to a GET of a target as it is written, or nil where the server closes without one.
func (a *asker) ask(target string) (status int, header http.Header, body string, err error) {
	for try := 0; ; try++ {
		fresh := a.conn == nil
		if fresh {
			if a.conn, err = net.DialTimeout("tcp", a.addr, patience); err != nil {
				a.conn = nil
				return 0, nil, "", err
			}
			a.in = bufio.NewReader(a.conn)
		}
		status, header, body, err = a.once(target)
		if err == nil || fresh {
			return status, header, body, nil // one that closes without an answer runs no handler
		}
	}
}

func (a *asker) once(target string) (int, http.Header, string, error) {
	if err := a.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return a.end(err)
	}
	if _, err := fmt.Fprintf(a.conn, "GET %s HTTP/1.1\r\nHost: shop.test\r\nAccept: application/json\r\n%s\r\n", target, a.fields); err != nil {
		return a.end(err)
	}
	r, err := http.ReadResponse(a.in, nil)
	if err != nil {
		return a.end(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return a.end(err)
	}
	if r.Close {
		_ = a.conn.Close()
		a.conn = nil
	}
	return r.StatusCode, r.Header, strings.TrimSpace(string(body)), nil
}

func (a *asker) end(err error) (int, http.Header, string, error) {
	_ = a.conn.Close()
	a.conn = nil
	return 0, nil, "", err
}

// No server runs a handler that the gateway in front of it takes for another.
func TestServers_ReadNoPathOtherwise(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("PATHS_SPELLINGS"))
	if err != nil {
		t.Skip("PATHS_SPELLINGS is not set; make explore runs it")
	}
	seed := rand.Uint64()
	t.Logf("PATHS_SEED=%d repeats this run", seed)
	if text := os.Getenv("PATHS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	all := spellings(n, rand.New(rand.NewPCG(seed, 0)))
	servers := startServers(t)
	gates := startGateways(t)
	ran := make([][]string, len(servers)) // by server, which handler each spelling ran
	passed := make([][]bool, len(gates))  // by gateway, whether a spelling reached its origin
	var asking sync.WaitGroup
	for i, s := range servers {
		ran[i] = make([]string, len(all))
		asking.Go(func() {
			a := &asker{addr: s.addr}
			for j, target := range all {
				status, _, body, err := a.ask(target)
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
					return
				}
				if status == http.StatusOK {
					ran[i][j] = body
				}
			}
		})
	}
	for i, g := range gates {
		passed[i] = make([]bool, len(all))
		asking.Go(func() {
			a := &asker{addr: g.addr, fields: g.fields}
			for j, target := range all {
				_, header, _, err := a.ask(target)
				if err != nil {
					t.Errorf("%s: %v", g.name, err)
					return
				}
				passed[i][j] = header.Get("X-Origin") != ""
			}
		})
	}
	asking.Wait()
	for i, s := range servers {
		counts := map[string]int{}
		for j, target := range all {
			counts[ran[i][j]]++
			for k, g := range gates {
				if passed[k][j] && g.holds(ran[i][j]) {
					t.Errorf("%s runs %s for %q, which goes past %s", s.name, ran[i][j], target, g.name)
				}
			}
		}
		t.Logf("%-28s of %d spellings ran %d in sale, %d in static, %d in vip, %d in other; refused or redirected %d", s.name, len(all), counts["sale"], counts["static"], counts["vip"], counts["other"], counts[""])
		if counts["sale"] == 0 || counts["static"] == 0 || counts["other"] == 0 {
			t.Errorf("%s does not run its handlers", s.name)
		}
	}
	for k, g := range gates {
		n := 0
		for _, p := range passed[k] {
			if p {
				n++
			}
		}
		t.Logf("%-28s let %d of %d spellings go to the site", g.name, n, len(all))
		if n == 0 {
			t.Errorf("nothing goes past %s", g.name)
		}
	}
}
