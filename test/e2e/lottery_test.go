package e2e

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

const drawSecret = "a-secret-that-draws-for-tests-0123456789"

// drawn is the response to GET draw.
type drawn struct {
	Room       string    `json:"room"`
	Method     string    `json:"method"`
	OpensAt    time.Time `json:"opens_at"`
	PrequeueAt time.Time `json:"prequeue_at"`
	Commitment string    `json:"commitment"`
	Gathered   int64     `json:"gathered"`
	Span       int64     `json:"span"`
	Drawn      int64     `json:"drawn"`
	Seed       string    `json:"seed"`
	Recipe     string    `json:"recipe"`
}

func draw(t testing.TB, c *client, g *gateway) (d drawn) {
	t.Helper()
	if err := json.Unmarshal([]byte(c.get(g, "/.waiting-room/sale/draw").want(http.StatusOK).body), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// seedOf is a second implementation of the recipe in docs/lottery.md.
func seedOf(room string, opens time.Time) []byte {
	h := hmac.New(sha256.New, []byte(drawSecret))
	_ = binary.Write(h, binary.BigEndian, int64(len(room)))
	h.Write([]byte(room))
	_ = binary.Write(h, binary.BigEndian, opens.UnixMicro())
	return h.Sum(nil)
}

func orderOf(seed []byte, jti string, d *drawn) int64 {
	id, _ := base64.RawURLEncoding.DecodeString(jti)
	h := hmac.New(sha256.New, seed)
	h.Write(id)
	x := new(big.Int).SetBytes(h.Sum(nil)[:8])
	return d.Drawn - d.Span + x.Mul(x, big.NewInt(d.Span)).Rsh(x, 64).Int64()
}

// A hundred and twenty visitors join the pre-queue at two gateways. The store is emptied before the opening and after it. All visitors are
// admitted in the drawn order, which anyone can recompute, and later visitors come after them.
func TestLottery_DrawCanBeRecomputed(t *testing.T) {
	t.Parallel()
	wait := 12 * time.Second
	for !lotteryIn(t, wait) {
		if wait *= 2; wait > 2*time.Minute {
			t.Fatal("this machine is too slow to gather before the opening")
		}
	}
}

// lotteryIn opens a lottery after a delay; it returns false if not all visitors had joined the pre-queue by then.
func lotteryIn(t *testing.T, wait time.Duration) bool {
	t.Helper()
	const gather, late = 120, 10
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	secret := filepath.Join(tempDir(t), "draw.secret")
	write(t, secret, drawSecret+"\n")
	opens := time.Now().Add(wait).UTC().Truncate(time.Microsecond)
	s := setup{origin: site.URL, more: "log: {access: false}", rooms: []string{room(admission(40, 5), fmt.Sprintf(
		"queue: {method: lottery, absence: 3m, opens_at: %q, prequeue_at: %q, draw_secret_file: %q}",
		opens.Format(time.RFC3339Nano), opens.Add(-10*time.Minute).Format(time.RFC3339Nano), secret))}}.withRedis(store.URL())
	a, b := start(t, s), start(t, s)
	c := newClient(t, a, b)

	before := draw(t, c, a)
	if time.Now().After(opens) {
		return false
	}
	seed := seedOf("sale", opens)
	sum := sha256.Sum256(seed)
	if before.Commitment != hex.EncodeToString(sum[:]) || before.Seed != "" || before.Drawn != 0 || !before.OpensAt.Equal(opens) || before.Recipe == "" {
		t.Fatalf("before the opening: %+v", before)
	}
	m := newMultitude(t, gather, a, b)
	take := func(v *guest, s status) error {
		if s.Token != "" {
			_, w := decode(t, s.Token)
			if v.jti != "" && w.Jti != v.jti || v.ord != 0 && w.Ord != v.ord {
				return fmt.Errorf("ticket %s of order %d became %s of order %d", v.jti, v.ord, w.Jti, w.Ord)
			}
			v.token, v.jti, v.ord = s.Token, w.Jti, w.Ord
			v.epoch, _ = w.Ep.(string)
		}
		if s.Pass != "" && v.sid == "" {
			_, p := decode(t, s.Pass)
			v.sid = p.Sid
			v.at, _ = time.Parse(time.RFC3339Nano, s.AdmittedAt)
		}
		return nil
	}
	join := func(i int, v *guest) error {
		s, err := m.ask(i, http.MethodPost, "tickets", "")
		if err != nil {
			return err
		}
		return take(v, s)
	}
	poll := func(i int, v *guest) error {
		if v.sid != "" {
			return nil
		}
		s, err := m.ask(i, http.MethodGet, "status", v.token)
		if err != nil {
			return err
		}
		return take(v, s)
	}
	m.each(0, func(i int, v *guest) error {
		s, err := m.ask(i, http.MethodPost, "tickets", "")
		if err == nil && time.Now().After(opens) {
			return nil
		}
		if err == nil && (s.State != "prequeue" || s.Position != nil || !strings.HasPrefix(s.OpensAt, opens.Format("2006-01-02T15:04:05"))) {
			err = fmt.Errorf("joined as %s, opens_at %q", s, s.OpensAt)
		}
		if err != nil {
			return err
		}
		return take(v, s)
	})
	if time.Now().After(opens) {
		return false
	}
	m.each(0, poll)
	page := newBrowser(t, a).get(a, "/", asBrowser)
	if time.Now().After(opens) {
		return false
	}
	if page.waits("prequeue"); !strings.Contains(page.body, opens.Format("2006-01-02 15:04 UTC")) {
		t.Error("the page does not say when it opens")
	}
	until(t, "all are counted", func() bool { return draw(t, c, b).Gathered == gather+1 })

	empty := func() {
		if err := store.Client().FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	m.each(0, poll)
	if time.Now().After(opens) {
		return false
	}
	var d drawn
	until(t, "it is drawn", func() bool { d = draw(t, c, a); return d.Drawn > 0 })
	if d.Gathered != gather+1 {
		t.Errorf("%d gathered, want %d", d.Gathered, gather+1)
	}
	m.each(0, poll)
	empty()
	emptied, err := store.Client().Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	m.all = append(m.all, make([]guest, late)...)
	m.each(gather, join)
	for in := 0; in < len(m.all); {
		m.each(0, poll)
		in = 0
		for _, v := range m.all {
			if v.sid != "" {
				in++
			}
		}
	}
	if again := draw(t, c, b); again.Drawn != d.Drawn {
		t.Errorf("after the store was emptied it is drawn at %d, before %d", again.Drawn, d.Drawn)
	}
	tickets := make([]map[string]any, 0, gather)
	for i, v := range m.all[:gather] {
		if want := orderOf(seed, v.jti, &d); v.ord != want {
			t.Errorf("visitor %d: order %d, drawn %d", i, v.ord, want)
		}
		tickets = append(tickets, map[string]any{"id": v.jti, "order": v.ord})
	}
	byOrder := slices.Clone(m.all)
	slices.SortFunc(byOrder, func(a, b guest) int { return cmp.Compare(a.ord, b.ord) })
	// A visitor who was admitted just before the store was emptied, and had not polled since, waits again, because only the store had the
	// admission. So the order is compared before and after the loss separately.
	var last [2]guest
	for _, v := range byOrder {
		part := 0
		if v.at.After(emptied) {
			part = 1
		}
		if v.at.Before(last[part].at) {
			t.Fatalf("order %d was admitted at %s, %d at %s", v.ord, v.at, last[part].ord, last[part].at)
		}
		last[part] = v
	}
	for _, v := range m.all[gather:] {
		if v.ord < d.Drawn {
			t.Errorf("a late arrival has the order %d, drawn at %d", v.ord, d.Drawn)
		}
	}

	// The seed is published one absence later; the test inserts it.
	d.Seed = hex.EncodeToString(seed)
	file := filepath.Join(tempDir(t), "draw.json")
	write(t, file, toJSON(d)+"\n"+toJSON(tickets)+"\n"+toJSON(m.all[gather].token))
	if code, _, stderr := command(t, nil, "verify-draw"); code != 2 {
		t.Errorf("verify-draw of nothing: %d %s", code, stderr) // 1 means that the draw is wrong
	}
	code, out, stderr := command(t, nil, "verify-draw", file)
	if code != 0 || strings.Count(out, "  as drawn\n") != gather || !strings.Contains(out, "\nnothing is wrong, and 1 of ") {
		t.Errorf("verify-draw: %d %s\n%s", code, stderr, tail(out))
	}
	tickets[7]["order"] = tickets[7]["order"].(int64) - 1
	write(t, file, toJSON(d)+toJSON(tickets))
	if code, out, _ := command(t, nil, "verify-draw", file); code != 1 || strings.Count(out, "WRONG") != 1 {
		t.Errorf("verify-draw of a claim that was not drawn: %d\n%s", code, tail(out))
	}
	return true
}
