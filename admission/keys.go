package admission

// keyNames are the keys of a room in the order in which every room script takes them. They share one hash tag, so that a room is
// on one node of a cluster.
var keyNames = []string{
	"state", "live", "line", "parked", "seen", "admitted", "sessions", "ended",
	"grants", "revoked", "flow", "pending", "minutes", "gateways", "snapshot", "audit", "joins",
}

// Indexes into roomKeys of those that Go reads itself.
const (
	keyState    = 0
	keyLive     = 1
	keySessions = 6
	keyRevoked  = 9
	keyFlow     = 10
	keyMinutes  = 12
	keySnapshot = 14
	keyAudit    = 15
)

// roomKeys returns the keys of a room: <prefix>:{room:<id>}:<name>.
func roomKeys(prefix, id string) []string {
	keys := make([]string, len(keyNames))
	for i, n := range keyNames {
		keys[i] = prefix + ":{room:" + id + "}:" + n
	}
	return keys
}

// permitKeys returns the keys of a permit of a room in the order in which permit_redeem takes them.
func permitKeys(prefix, room string, jti ID) []string {
	tag := prefix + ":{room:" + room + "}:"
	return []string{tag + keyNames[keyState], tag + "permit:" + jti.String()}
}

// seriesNames are the keys of a room's recorded figures: seconds, minutes and ten minutes (package series).
var seriesNames = []string{"series:seconds", "series:minutes", "series:tens"}

// seriesKeys returns the keys of the recorded figures of a room in the order in which series_record takes them, and of series.Lengths.
func seriesKeys(prefix, room string) []string {
	keys := make([]string, len(seriesNames))
	for i, n := range seriesNames {
		keys[i] = prefix + ":{room:" + room + "}:" + n
	}
	return keys
}

// fleetKey holds the reports of the gateways.
func fleetKey(prefix string) string { return prefix + ":{fleet}:gateways" }

// healthKey is the key of the health reports on an origin.
func healthKey(prefix, origin string) string { return prefix + ":{origin:" + origin + "}:health" }

// jobsKey is the key that shows bulk work which gives way to the visitors of an origin.
func jobsKey(prefix, origin string) string { return prefix + ":{origin:" + origin + "}:jobs" }

// budgetKeys returns the keys of an origin's budget in the order in which origin_lease takes them.
func budgetKeys(prefix, origin string) []string {
	keys := []string{":limit:budget", ":leases", ":heard", ":fair:budget:active", ":fair:budget:idle", ":fair:budget:backlog", ":fair:budget:weights", ":fair:budget:clock"}
	for i, k := range keys {
		keys[i] = prefix + ":{origin:" + origin + "}" + k
	}
	return keys
}

// layoutKey holds the version of the data layout.
func layoutKey(prefix string) string { return prefix + ":layout" }
