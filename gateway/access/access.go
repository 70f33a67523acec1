package access

import "slices"

// Role is a set of requests that an operator may send.
type Role string

// Roles of operators. Admin includes Operator, and Operator includes Viewer and Facts.
const (
	Viewer   Role = "viewer"   // reads
	Operator Role = "operator" // changes rooms, tickets and sessions
	Admin    Role = "admin"    // destroys: reset, evacuate
	Facts    Role = "facts"    // writes facts and notices for visitors, and reads nothing
)

// Any is the role of a request that every authenticated operator may send. No operator has it.
const Any Role = "any"

// Roles lists the roles that an operator may have.
func Roles() []Role { return []Role{Viewer, Operator, Admin, Facts} }

// Known reports whether an operator may have the role.
func (r Role) Known() bool { return slices.Contains(Roles(), r) }

// Includes reports whether the role is enough for a request that needs the other role.
func (r Role) Includes(needed Role) bool {
	switch needed {
	case Any:
		return r.Known()
	case Viewer:
		return r == Viewer || r == Operator || r == Admin
	case Operator:
		return r == Operator || r == Admin
	case Facts:
		return r == Facts || r == Operator || r == Admin
	case Admin:
		return r == Admin
	}
	return false
}

// Grant is a role in some rooms.
type Grant struct {
	Role  Role     `json:"role"`
	Rooms []string `json:"rooms,omitempty"` // empty: in all rooms, and for requests that are not about one room
}

// holds reports whether the grant is for a room; "" is the whole deployment.
func (g Grant) holds(room string) bool {
	return len(g.Rooms) == 0 || room != "" && slices.Contains(g.Rooms, room)
}

// Via is the way in which an operator was authenticated.
type Via string

// Ways of authentication.
const (
	ViaLocal Via = "local" // no authentication is configured, and the request is of this machine
	ViaToken Via = "token"
	ViaOIDC  Via = "oidc"
)

// Person is an authenticated operator: a person, or a program with a token.
type Person struct {
	Name    string // in the audit log
	Subject string // unique among all persons of the same Via
	Via     Via
	Grants  []Grant
}

// Has reports whether the person has the role, in whatever rooms.
func (p *Person) Has(needed Role) bool {
	return slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Role.Includes(needed) })
}

// May reports whether the person has the role in a room. The room "" is the whole deployment, which only grants without rooms are for.
func (p *Person) May(needed Role, room string) bool {
	return slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Role.Includes(needed) && g.holds(room) })
}
