package console

import (
	"cmp"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/internal/ophttp"
)

type (
	handler = ophttp.Handler[*access.Person]
	methods = ophttp.Methods[*access.Person]
)

// scope is the part of a deployment that a route shows or changes, and for which an operator needs the route's role.
type scope string

const (
	wholeDeployment scope = "deployment" // a grant for all rooms
	oneRoom         scope = "room"       // a grant for the room {id} of the path
	ownRooms        scope = "own rooms"  // any grant; the handler leaves out the rooms that it is not for
	nobody          scope = "public"     // no authentication
)

// route is a row of the table of routes. No path is served that is not in the table.
type route struct {
	method, path string // of net/http's patterns; method GET serves HEAD too
	role         access.Role
	scope        scope
	serve        handler
	public       http.Handler // of a public route, in place of serve
	action       string       // name of what a second person can confirm; "": nothing
}

// confirmed returns the row for an action that admin.two_person can name. Its handler calls askSecond.
func (row route) confirmed(action string) route {
	row.action = action
	return row
}

func inOneRoom(method, path string, role access.Role, serve handler) route {
	return route{method: method, path: path, role: role, scope: oneRoom, serve: serve}
}

func inOwnRooms(method, path string, role access.Role, serve handler) route {
	return route{method: method, path: path, role: role, scope: ownRooms, serve: serve}
}

func inDeployment(method, path string, role access.Role, serve handler) route {
	return route{method: method, path: path, role: role, scope: wholeDeployment, serve: serve}
}

func open(path string, serve http.Handler) route {
	return route{method: http.MethodGet, path: path, scope: nobody, public: serve}
}

// routes returns every route of the operators' listener, except health and readiness. docs/access.md lists the same rows.
func (c *Console) routes() []route {
	const rooms, room = "/admin/v1/rooms", "/admin/v1/rooms/{id}"
	l, f, p, a := levers{c}, publisher{c}, people{c}, approvals{c}
	rows := []route{
		open("/metrics", ophttp.Metrics(c.o.Registry, c.log)),
		open("/{$}", c.page),
		open(pagePath, c.page),
		open(pagePath+"preview", previews{c}),
		open("/auth", c.answering(p.showMethods)),

		inOwnRooms("GET", "/admin/v1/me", access.Any, p.showMe),
		inOwnRooms("GET", rooms, access.Viewer, c.listRooms),
		inOneRoom("GET", room, access.Viewer, c.inRoom(c.showRoom)),
		inOneRoom("PATCH", room, access.Operator, c.inRoom(c.patchRoom)),
		inOneRoom("POST", room+"/pause", access.Operator, c.inRoom(c.pause)),
		inOneRoom("POST", room+"/resume", access.Operator, c.inRoom(c.resume)),
		inOneRoom("POST", room+"/drain", access.Operator, c.inRoom(c.drain)),
		inOneRoom("POST", room+"/reset", access.Admin, c.inRoom(c.reset)).confirmed("reset"),
		inOneRoom("POST", room+"/evacuate", access.Admin, c.inRoom(l.evacuate)).confirmed("evacuate"),
		inOneRoom("GET", room+"/ramp", access.Viewer, c.inRoom(l.showRamp)),
		inOneRoom("POST", room+"/ramp", access.Operator, c.inRoom(l.startRamp)),
		inOneRoom("DELETE", room+"/ramp", access.Operator, c.inRoom(l.stopRamp)),
		inOneRoom("POST", room+"/simulate", access.Operator, c.inRoom(l.simulate)),
		inOneRoom("POST", room+"/events", access.Operator, c.inRoom(calendar{c}.create)),
		inOneRoom("PUT", room+"/events/{event}", access.Operator, c.inRoom(calendar{c}.change)),
		inOneRoom("DELETE", room+"/events/{event}", access.Operator, c.inRoom(calendar{c}.remove)),
		inOneRoom("POST", room+"/audit/{entry}/undo", access.Operator, c.inRoom(l.undo)),
		inOneRoom("GET", room+"/preview", access.Viewer, c.inRoom(previews{c}.list)),
		inOneRoom("GET", room+"/history", access.Viewer, c.inRoom(c.history)),
		inOneRoom("GET", room+"/tickets", access.Viewer, c.inRoom(findTickets)),
		inOneRoom("GET", room+"/clients", access.Operator, c.inRoom(tickets{c}.findClients)),
		inOneRoom("GET", room+"/facts", access.Viewer, c.inRoom(f.show)),
		inOneRoom("PUT", room+"/facts", access.Facts, c.inRoom(f.put)),
		inOneRoom("GET", room+"/notices", access.Viewer, c.inRoom(f.listNotices)),
		inOneRoom("GET", room+"/notices/{notice}", access.Viewer, c.inRoom(f.showNotice)),
		inOneRoom("PUT", room+"/notices/{notice}", access.Facts, c.inRoom(f.putNotice)),
		inOneRoom("DELETE", room+"/notices/{notice}", access.Facts, c.inRoom(f.removeNotice)),
		inOneRoom("GET", room+"/tickets/{jti}", access.Viewer, c.inRoom(tickets{c}.showTicket)),
		inOneRoom("DELETE", room+"/tickets/{jti}", access.Operator, c.inRoom(tickets{c}.removeTicket)),
		inOneRoom("POST", room+"/sessions/{sid}/revoke", access.Operator, c.inRoom(tickets{c}.revokeSession)),

		inOwnRooms("GET", "/admin/v1/pending", access.Viewer, a.listApprovals),
		inOwnRooms("DELETE", "/admin/v1/pending/{approval}", access.Viewer, a.withdrawAction),
		inOwnRooms("POST", "/admin/v1/pending/{approval}/confirm", access.Viewer, a.confirmAction),

		inOwnRooms("GET", "/admin/v1/events", access.Viewer, calendar{c}.list),
		inOwnRooms("GET", "/admin/v1/audit", access.Viewer, c.audit),
		inOwnRooms("GET", "/admin/v1/audit/export", access.Viewer, p.exportAudit),
	}
	if c.o.Webhooks != nil {
		rows = append(rows, inDeployment("GET", "/admin/v1/webhooks", access.Viewer, showWebhooks(c.o.Webhooks)))
	}
	if c.o.Redeem != nil {
		rows = append(rows, inOwnRooms("POST", "/admin/v1/permits/redeem", access.Operator, c.redeemPermit))
	}
	if c.o.SignIn != nil {
		rows = append(rows,
			open(signin.LoginPath, c.answering(c.o.SignIn.Login)),
			open(signin.CallbackPath, c.answering(c.o.SignIn.Callback)),
			inOwnRooms("POST", signin.LogoutPath, access.Any, p.logout),
		)
	}
	return append(append(rows, insights{c}.routes()...), profiles()...)
}

// serve builds the router from the table.
func (c *Console) serve(table []route) {
	c.mux.Probes(c.o.Health, c.o.Ready)
	paths := map[string]methods{}
	c.actions = map[string]route{}
	for _, row := range table {
		if row.scope == nobody {
			c.mux.Public(row.path, row.public)
			continue
		}
		if row.action != "" {
			c.actions[row.action] = row
		}
		if paths[row.path] == nil {
			paths[row.path] = methods{}
		}
		paths[row.path][row.method] = c.inSession(traced(c.o.Tracer, row, row.authorized()))
	}
	for path, served := range paths {
		c.mux.Guarded(path, served)
	}
	c.mux.Guarded("/admin/", nil)
}

// authorized returns the handler of a row, which refuses operators without its role.
func (row route) authorized() handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Person) error {
		if err := row.authorize(r.PathValue("id"), who); err != nil {
			return err
		}
		return row.serve(w, r, who)
	}
}

// authorize returns the problem that refuses an operator. It does not reveal whether a room exists that the operator has no role in.
func (row route) authorize(id string, who *access.Person) error {
	switch {
	case !who.Has(row.role) && row.role != access.Viewer && !who.Has(access.Operator) && who.Has(access.Viewer):
		return ophttp.NewProblem(http.StatusForbidden, "read_only", "%q has the role viewer; this request needs the role %s", who.Name, row.role)
	case !who.Has(row.role):
		return ophttp.NewProblem(http.StatusForbidden, "role_required", "this request needs the role %s, which %q does not have", row.role, who.Name)
	case row.scope == oneRoom && !who.May(row.role, id):
		return ophttp.NewProblem(http.StatusForbidden, "room_not_allowed", "%q does not have the role %s in the room %q", who.Name, row.role, ophttp.Shorten(id))
	case row.scope == wholeDeployment && !who.May(row.role, ""):
		return ophttp.NewProblem(http.StatusForbidden, "room_not_allowed", "this request is about the whole deployment and %q has the role %s in some rooms only", who.Name, row.role)
	}
	return nil
}

// longestProfile is the most seconds of a profile or trace in one request.
const longestProfile = 60

// profiles returns the routes of net/http/pprof, whose durations are bounded.
func profiles() []route {
	bounded := func(h http.HandlerFunc) handler {
		return func(w http.ResponseWriter, r *http.Request, _ *access.Person) error {
			seconds, err := strconv.ParseFloat(cmp.Or(r.FormValue("seconds"), "0"), 64)
			if err != nil || !(seconds <= longestProfile) {
				return ophttp.NewProblem(http.StatusUnprocessableEntity, "invalid", "seconds is at most %d; repeat the request to profile for longer", longestProfile)
			}
			h(w, r)
			return nil
		}
	}
	// pprof's symbol lookup is a POST that changes nothing.
	symbol := func(w http.ResponseWriter, r *http.Request, _ *access.Person) error { pprof.Symbol(w, r); return nil }
	return []route{
		inDeployment("GET", "/debug/pprof/", access.Viewer, bounded(pprof.Index)),
		inDeployment("GET", "/debug/pprof/cmdline", access.Viewer, bounded(pprof.Cmdline)),
		inDeployment("GET", "/debug/pprof/profile", access.Viewer, bounded(pprof.Profile)),
		inDeployment("GET", "/debug/pprof/trace", access.Viewer, bounded(pprof.Trace)),
		inDeployment("GET", "/debug/pprof/symbol", access.Viewer, symbol),
		inDeployment("POST", "/debug/pprof/symbol", access.Viewer, symbol),
	}
}

// String returns the row as docs/access.md shows it.
func (row route) String() string {
	if row.scope == nobody {
		return "| `" + row.method + " " + strings.TrimSuffix(row.path, "{$}") + "` | – | public |"
	}
	return "| `" + row.method + " " + row.path + "` | " + string(row.role) + " | " + string(row.scope) + " |"
}
