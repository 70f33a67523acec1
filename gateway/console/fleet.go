package console

import (
	"net/http"
	"slices"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// gatewayView is what a gateway reports of itself.
type gatewayView struct {
	ID            string            `json:"id"`
	Host          string            `json:"host,omitempty"`
	Version       string            `json:"version"`
	Started       timestamp         `json:"started_at"`
	Seen          timestamp         `json:"seen_at"`
	Self          bool              `json:"self"`
	Configuration configurationView `json:"configuration"`
	Keys          string            `json:"keys"`
	Offset        float64           `json:"clock_offset_seconds"`
	StoreAge      *float64          `json:"store_age_seconds,omitempty"`
	LastError     *lastErrorView    `json:"last_error,omitempty"`
	Conflicts     []string          `json:"draw_conflicts"`
	Differs       []string          `json:"differs"`
}

type configurationView struct {
	Generation int       `json:"generation"`
	Hash       string    `json:"hash"`
	Loaded     timestamp `json:"loaded_at"`
}

type lastErrorView struct {
	At   timestamp `json:"at"`
	Text string    `json:"text"`
}

type fleetView struct {
	At       *timestamp    `json:"at,omitempty"`
	Gateways []gatewayView `json:"gateways"`
}

// viewFleet returns the gateways as an operator sees them: draw conflicts of the rooms that the operator may see, and errors of gateways
// only for who may see all rooms.
func (c insights) viewFleet(who *access.Person) fleetView {
	all, at := c.o.Insight.Fleet.Gateways()
	v := fleetView{At: optional(at), Gateways: make([]gatewayView, 0, len(all))}
	of := func(value func(*admission.Gateway) string) string { return most(all, value) }
	version, hash, keys := of(versionOf), of(hashOf), of(keysOf)
	for i := range all {
		g := &all[i]
		w := gatewayView{
			ID: g.ID, Host: g.Host, Version: g.Version, Started: timestamp(g.Started), Seen: timestamp(g.At), Self: g.ID == c.o.Insight.Fleet.Self(),
			Configuration: configurationView{g.Configuration.Generation, g.Configuration.Hash, timestamp(g.Configuration.Loaded)},
			Keys:          g.Keys, Offset: tidy(float64(g.Offset) / 1e6), Conflicts: []string{}, Differs: []string{},
		}
		if g.StoreAge > 0 {
			w.StoreAge = new(tidy(float64(g.StoreAge) / 1e6))
		}
		if e := g.LastError; e != nil && who.May(access.Viewer, "") { // it may name any room
			w.LastError = &lastErrorView{timestamp(e.At), e.Text}
		}
		for _, room := range g.Conflicts {
			if who.May(access.Viewer, room) {
				w.Conflicts = append(w.Conflicts, room)
			}
		}
		for _, d := range []struct{ name, here, most string }{{"version", g.Version, version}, {"configuration", g.Configuration.Hash, hash}, {"keys", g.Keys, keys}} {
			if d.here != d.most {
				w.Differs = append(w.Differs, d.name)
			}
		}
		v.Gateways = append(v.Gateways, w)
	}
	return v
}

func versionOf(g *admission.Gateway) string { return g.Version }
func hashOf(g *admission.Gateway) string    { return g.Configuration.Hash }
func keysOf(g *admission.Gateway) string    { return g.Keys }

// most returns the value that most gateways have; of several the one of the gateway that started last, so that during a rolling deploy the
// old ones differ.
func most(all []admission.Gateway, value func(*admission.Gateway) string) string {
	count := map[string]int{}
	for i := range all {
		count[value(&all[i])]++
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b admission.Gateway) int { return int(b.Started - a.Started) })
	best := ""
	for i := range sorted {
		if v := value(&sorted[i]); i == 0 || count[v] > count[best] {
			best = v
		}
	}
	return best
}

func (c insights) fleet(w http.ResponseWriter, _ *http.Request, who *access.Person) error {
	return ophttp.OK(w, c.viewFleet(who))
}
