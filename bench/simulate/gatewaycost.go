package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/site"
	"github.com/anteroom/anteroom/bench/store"
)

// tools are the programs that are run.
type tools struct{ gateway, loadgen string }

// booth is a gateway before a redis-server and an origin of its own.
type booth struct {
	tools
	dir     string
	redis   *store.Server
	site    *site.Site
	gateway *child.Child
	addr    string
	admin   string
}

// open starts a gateway with a room of a line, that lets rate in a second, and one that lets everybody in.
func (t tools) open(ctx context.Context, dir string, rate float64, absence time.Duration) (b *booth, err error) {
	b = &booth{tools: t, dir: dir}
	if b.redis, err = store.Start(ctx, dir); err != nil {
		return nil, err
	}
	if b.site, err = site.Start(); err != nil {
		b.redis.Stop()
		return nil, err
	}
	b.addr, err = child.FreePort()
	for err == nil && (b.admin == "" || b.admin == b.addr) {
		b.admin, err = child.FreePort()
	}
	if err == nil {
		conf := filepath.Join(dir, "gateway.yaml")
		err = os.WriteFile(conf, fmt.Appendf(nil, `listen: "%s"
admin: {listen: "%s"}
log: {level: warn, access: false}
store: {url: "%s"}
tokens: {keys: [{id: k1, alg: HS256, secret: "%s", active: true}]}
origins: [{id: site, servers: ["http://%s"]}]
rooms:
  - {id: line, paths: ["/"], origin: site, admission: {rate: %v}, queue: {absence: %s}}
  - {id: open, paths: ["/open"], origin: site, admission: {rate: 100000}, session: {ttl: 1h}}
`, b.addr, b.admin, b.redis.URL, fmt.Sprintf("%x%x", randomID(), randomID()), b.site.Addr, rate, absence), 0o600)
		if err == nil {
			b.gateway, err = child.Start("gateway", t.gateway, "serve", "--config", conf)
		}
		if err == nil {
			err = b.gateway.Ready(ctx, b.addr)
		}
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *booth) close() {
	if b.gateway != nil {
		b.gateway.Stop()
	}
	b.site.Close()
	b.redis.Stop()
}

// load runs loadgen and reads its report.
func (b *booth) load(ctx context.Context, report any, args ...string) error {
	cmd := exec.CommandContext(ctx, b.loadgen, append(args, "--json", "--url", "http://"+b.addr)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output() // a promise that was broken is its business
	if jsonErr := json.Unmarshal(out, report); jsonErr != nil {
		return fmt.Errorf("loadgen %s: %w", strings.Join(args, " "), errors.Join(err, jsonErr))
	}
	return nil
}

// spent is the gateway's processor time for what f does, less what it needs in that time when nothing is asked.
func (b *booth) spent(idle float64, f func() error) (µs float64, err error) {
	before, err := child.CPU(b.gateway.PID())
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	after, err := child.CPU(b.gateway.PID())
	return max(0, float64((after-before).Microseconds())-idle*time.Since(began).Seconds()), err
}

// idle is what it needs a second, in µs.
func (b *booth) idle(ctx context.Context, d time.Duration) (float64, error) {
	µs, err := b.spent(0, func() error { return pause(ctx, d) })
	return µs / d.Seconds(), err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type filledReport struct {
	Waiting     int64                 `json:"waiting"`
	LetIn       int64                 `json:"let_in"`
	FillSeconds float64               `json:"fill_seconds"`
	Polls       struct{ Count int64 } `json:"polls"`
}

type pollReport struct {
	Achieved float64 `json:"achieved_per_second"`
	Seconds  float64 `json:"seconds"`
	Errors   int64   `json:"errors"`
}

// line is how long the line is in which a gateway's costs are measured.
const line = 50_000

// measureGateway fills a line and finds what the gateway spends on each kind of request.
func measureGateway(ctx context.Context, t tools, dir string) (g Gateway, err error) {
	b, err := t.open(ctx, dir, 1, 2*time.Hour)
	if err != nil {
		return g, err
	}
	defer b.close()
	if g.Idle, err = b.idle(ctx, 2*time.Second); err != nil {
		return g, err
	}
	tokens := filepath.Join(dir, "tokens")
	var filled filledReport
	if err := b.load(ctx, &filled, "fill", "--room", "line", "--tickets", fmt.Sprint(line), "--sample", "0", "--tokens-out", tokens, "--connections", "256"); err != nil {
		return g, err
	}
	if filled.FillSeconds == 0 {
		return g, errors.New("the line could not be filled within ten minutes")
	}
	busy, err := b.idle(ctx, 3*time.Second) // with a line to look at
	if err != nil {
		return g, err
	}
	far, err := farTokens(tokens, dir)
	if err != nil {
		return g, err
	}
	polls := func(file string, rate int, d time.Duration) (float64, float64, error) {
		var r pollReport
		µs, err := b.spent(busy, func() error {
			return b.load(ctx, &r, "polls", "--room", "line", "--tokens-in", file, "--rate", fmt.Sprint(rate), "--duration", d.String(), "--connections", "128")
		})
		if err == nil && r.Achieved == 0 {
			err = errors.New("no poll was answered")
		}
		return µs / max(1, r.Achieved*r.Seconds), r.Achieved, err
	}
	for _, rate := range []int{300, 1000, 5000, 20_000} {
		cost, achieved, err := polls(far, rate, 3*time.Second)
		if err != nil {
			return g, err
		}
		g.Polls = append(g.Polls, PollCost{achieved, cost})
	}
	each := func(args ...string) (float64, error) {
		var r pollReport
		µs, err := b.spent(busy, func() error {
			return b.load(ctx, &r, append([]string{"mix", "--polls", "0", "--joins", "0", "--proxied", "0", "--rate", "5000", "--duration", "3s", "--connections", "128"}, args...)...)
		})
		if err == nil && r.Achieved == 0 {
			err = errors.New("nothing was answered")
		}
		return µs / max(1, r.Achieved*r.Seconds), err
	}
	if g.Join, err = each("--room", "line", "--joins", "1"); err != nil {
		return g, err
	}
	if g.Pass, err = each("--room", "open", "--path", "/open", "--proxied", "1"); err != nil {
		return g, err
	}
	// A join reads a body of two bytes and draws a number; what it costs more than a poll is its token.
	g.Sign = max(0, g.Join-g.poll(5000))
	g.Claim = 2 * g.Sign // a pass, in the body, a header and a cookie
	// With its caches filled and its heap as large as load makes it; less what the line takes, which is counted apart.
	base, err := child.Memory(b.gateway.PID())
	if err != nil {
		return g, err
	}
	g.Base = float64(base) - line*ticketBytes
	if err := b.connections(ctx, far, &g); err != nil {
		return g, err
	}
	g.Ticket = ticketBytes
	say("gateway µs: idle %.0f/s, polls %s, join %.1f, with a pass %.1f; %.1f MB and %.1f KB a connection",
		g.Idle, pollText(g.Polls), g.Join, g.Pass, g.Base/1e6, g.Connection/1e3)
	return g, nil
}

// ticketBytes is what a gateway remembers of a waiting ticket, its maps' slack included (admission's memory).
const ticketBytes = 48

func pollText(all []PollCost) string {
	var s []string
	for _, p := range all {
		s = append(s, fmt.Sprintf("%.1f at %.0f/s", p.CPU, p.Rate))
	}
	return strings.Join(s, ", ")
}

// farTokens writes the tokens well beyond the front to a file of their own. fill deals tickets to its two threads in
// turns, so that a file holds two lines one after the other.
func farTokens(file, dir string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	half := len(lines) / 2
	if half < 4000 {
		return "", fmt.Errorf("%s: %d tokens", file, len(lines))
	}
	far := filepath.Join(dir, "far")
	rest := append(append([]string{}, lines[3000:half]...), lines[half+3000:]...)
	return far, os.WriteFile(far, []byte(strings.Join(rest, "\n")+"\n"), 0o600)
}

// connections opens many that poll once and stay, finds what each takes, and how long polls and joins are.
func (b *booth) connections(ctx context.Context, tokens string, g *Gateway) error {
	raw, err := os.ReadFile(tokens)
	if err != nil {
		return err
	}
	lines := strings.Fields(string(raw))
	ask := func(conn net.Conn, request string) (int, string, error) {
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return 0, "", err
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			return 0, "", err
		}
		buf := make([]byte, 16<<10)
		n, err := conn.Read(buf)
		if err == nil && !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 20") {
			err = fmt.Errorf("answered %.60q", buf[:n])
		}
		return n, string(buf[:n]), err
	}
	const common = " HTTP/1.1\r\nHost: shop.example.com\r\nAccept: application/json\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
	poll := func(token string) string {
		return "GET /.waiting-room/line/status" + common + "Cookie: wr_line_ticket=" + token + "\r\n\r\n"
	}
	join := "POST /.waiting-room/line/tickets" + common + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	// The heap's slack is the same before and after only if it has been collected at its size: so many come and go first.
	const n = 3000
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	before, err := child.Memory(b.gateway.PID())
	if err != nil {
		return err
	}
	for i := range n {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", b.addr)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		request := poll(lines[i%len(lines)])
		size, _, err := ask(c, request)
		if err != nil {
			return err
		}
		g.PollIn, g.PollOut = float64(len(request)), float64(size)
	}
	after, err := child.Memory(b.gateway.PID())
	if err != nil {
		return err
	}
	g.Connection = max(0, float64(after-before)) / n
	size, answer, err := ask(conns[0], join)
	if err != nil {
		return err
	}
	g.JoinIn, g.JoinOut = float64(len(join)), float64(size)
	_, rest, _ := strings.Cut(answer, `"token":"`)
	token, _, _ := strings.Cut(rest, `"`)
	if size, _, err = ask(conns[1], poll(token)); err != nil {
		return err
	}
	g.TokenOut = max(0, float64(size)-g.PollOut)
	return nil
}
