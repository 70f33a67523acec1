package admission

// keyNames are the keys of a room in the order in which every room script takes
// them. They share one hash tag, so that a room lives in one slot.
var keyNames = []string{
	"state", "live", "line", "parked", "seen", "admitted", "sessions", "ended",
	"grants", "revoked", "flow", "pending", "minutes", "gateways", "snapshot", "audit", "joins",
}

// Indexes into roomKeys of those that Go reads itself.
const (
	keyFlow     = 10
	keyMinutes  = 12
	keySnapshot = 14
	keyAudit    = 15
)

// roomKeys builds the keys of a room: <prefix>:{room:<id>}:<name>.
func roomKeys(prefix, id string) []string {
	keys := make([]string, len(keyNames))
	for i, n := range keyNames {
		keys[i] = prefix + ":{room:" + id + "}:" + n
	}
	return keys
}

// healthKey is where gateways tell how an origin was lately.
func healthKey(prefix, origin string) string { return prefix + ":{origin:" + origin + "}:health" }

// jobsKey is where bulk work that gives way to visitors of an origin tells that it runs.
func jobsKey(prefix, origin string) string { return prefix + ":{origin:" + origin + "}:jobs" }

// budgetKeys builds the keys of an origin's budget, in the order in which origin_lease takes them.
func budgetKeys(prefix, origin string) []string {
	keys := []string{":limit:budget", ":leases", ":heard", ":fair:budget:active", ":fair:budget:idle", ":fair:budget:backlog", ":fair:budget:weights", ":fair:budget:clock"}
	for i, k := range keys {
		keys[i] = prefix + ":{origin:" + origin + "}" + k
	}
	return keys
}

// layoutKey holds the version of the data layout.
func layoutKey(prefix string) string { return prefix + ":layout" }
