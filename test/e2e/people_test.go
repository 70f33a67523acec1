package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// rates is the response to GET /v1/limits.
type rates struct {
	Global         float64
	Live, Adaptive bool
}

// A gateway and two bulk workers use one store. Jobs slow down to the lowest rate while visitors wait, and speed up when none wait. A rate
// that an operator sets stays in force, and the found rate survives a restart.
func TestBulkPeopleFirst_SlowsForVisitors(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	redis := redistest.Server(t)
	g := start(t, setup{origin: site.URL, rooms: []string{room("admission: {rate: 0}")}}.withRedis(redis.URL()))
	farm := newFarmOn(t, redis, `{url: "`+redis.URL()+`"}`,
		"rate: {global: 40}\nadaptive: {enabled: true, min_rate: 2, max_rate: 100, target_p95: 20s}\npeople_first: {origin: shop}")
	a, b := farm.worker(), farm.worker()
	limits := func(w *bulkWorker) rates {
		return into[rates](w.ask(http.MethodGet, "/v1/limits", "").want(http.StatusOK))
	}
	a.submit("acme", "news", 9000)
	until(t, "the rate is found, from where it begins", func() bool { l := limits(b); return l.Adaptive && l.Global >= 40 && farm.to.count() > 20 })

	c := newClient(t, g)
	waiting, joined := c.join(g), time.Now()
	until(t, "jobs are at their slowest while somebody waits", func() bool { c.poll(g, waiting.Token); return limits(a).Global == 2 })
	t.Log("after", time.Since(joined))
	until(t, "of two workers one finds the rate, and says for whom", func() bool {
		metrics := a.ask(http.MethodGet, "/metrics", "").body + b.ask(http.MethodGet, "/metrics", "").body
		return strings.Contains(metrics, "\nbulk_action_people_waiting 1\n") && strings.Count(metrics, "\nbulk_action_rate_leader 1\n") == 1
	})

	// An operator's rate holds over the one that is found, until it is taken back.
	b.ask(http.MethodPatch, "/v1/limits", `{"global":7}`).want(http.StatusOK)
	if l := limits(a); l.Global != 7 || !l.Live || l.Adaptive {
		t.Errorf("set live: %+v", l)
	}
	b.ask(http.MethodPatch, "/v1/limits", `{"global":null}`).want(http.StatusOK)
	if l := limits(a); l.Global > 7 || l.Live || !l.Adaptive {
		t.Errorf("taken back: %+v", l)
	}

	// Neither a crash nor a restart begins anew.
	a.kill()
	b.stop()
	a = farm.worker()
	if l := limits(a); l.Global > 7 || !l.Adaptive {
		t.Errorf("after a restart: %+v", l)
	}
	c.ask(g, http.MethodDelete, "/.waiting-room/sale/tickets", "", headers{"X-Waiting-Room-Token": waiting.Token}).want(http.StatusNoContent)
	until(t, "jobs speed up when nobody waits", func() bool { return limits(a).Global > 2.5 })
	a.ask(http.MethodPost, "/v1/groups/news/cancel", "").want(http.StatusOK)
}
