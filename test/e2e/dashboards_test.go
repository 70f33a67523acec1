package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/internal/freeport"
)

// panelQueries returns the queries of the panels of deploy/grafana by dashboard and title, for all rooms.
func panelQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	queries := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range board.Panels {
			if len(p.Targets) == 0 {
				t.Errorf("%s: %q has no query", file, p.Title)
			}
			for _, q := range p.Targets {
				queries[fmt.Sprintf("%s, %s, %s", board.Title, p.Title, q.RefID)] = strings.ReplaceAll(q.Expr, "$room", ".*")
			}
		}
	}
	return queries
}

// Every query of the dashboards, and every recording rule, returns data from a real Prometheus that scrapes a gateway and a bulk worker.
func TestDashboards_QueriesReturnData(t *testing.T) {
	t.Parallel()
	queries := panelQueries(t)
	var rules []string
	for _, program := range []string{"gateway", "bulkworker"} {
		file, err := filepath.Abs("../../deploy/helm/anteroom/files/recording-" + program + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, file)
		for _, r := range regexp.MustCompile(`record: "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			queries["recording rule "+r[1]] = r[1]
		}
	}

	f := newFarm(t, "")
	w := f.worker()
	secret := filepath.Join(tempDir(t), "webhook.secret")
	write(t, secret, "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n")
	site := newOrigin(t, nil)
	g := start(t, setup{
		rooms: []string{room("origin: shop, paths: [/], admission: {rate: 20, burst: 1}, queue: {claim_window: 1s}"), "{id: away, origin: away, paths: [/away], queue: {method: passthrough}}"},
		more: fmt.Sprintf("origins: [{id: shop, servers: [%q]}, {id: away, servers: [\"http://%s\"]}]\n", site.URL, freeport.Address(t)) +
			fmt.Sprintf("webhooks: [{name: crm, url: \"http://%s\", secret_file: %q, allow_private: true}]\n", freeport.Address(t), secret),
	})
	prometheus := prometheusOf(t, []string{g.admin, strings.TrimPrefix(w.url, "http://")}, rules...)

	// answers reports whether a query has a value that is a number.
	answers := func(query string) bool {
		resp, err := http.Get("http://" + prometheus + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var reply struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if json.NewDecoder(resp.Body).Decode(&reply) != nil {
			return false
		}
		for _, r := range reply.Data.Result {
			if r.Value[1] != "NaN" {
				return true
			}
		}
		return false
	}
	c := newClient(t, g).lax()
	var tokens []string
	n := 0
	eventually(patience, func() bool {
		n++
		w.submit("acme", fmt.Sprint("g", n), 5)
		c.get(g, "/away")
		for range 3 {
			if s := c.join(g); s.Token != "" {
				tokens = append(tokens, s.Token)
			}
		}
		for _, token := range tokens[max(0, len(tokens)-20):] {
			if pass := c.poll(g, token).Pass; pass != "" {
				c.get(g, "/", headers{"X-Waiting-Room-Pass": pass})
			}
		}
		for name, query := range queries {
			if answers(query) {
				delete(queries, name)
			}
		}
		return len(queries) == 0
	})
	for name, query := range queries {
		t.Errorf("%s returns no data: %s", name, query)
	}

}
