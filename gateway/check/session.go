package check

import "slices"

// sessionNames are the names that an origin may read as X-Waiting-Room-Session, that name first: some programs treat dashes, underscores and
// dots alike.
var sessionNames = func() []string {
	names := []string{"x"}
	for _, word := range []string{"waiting", "room", "session"} {
		var longer []string
		for _, dash := range []string{"-", "_", "."} {
			for _, name := range names {
				longer = append(longer, name+dash+word)
			}
		}
		names = longer
	}
	return names
}()

// SessionNames returns the fields to remove from a request that passes, because its origin could read them as the session: all aliases of
// X-Waiting-Room-Session, and that field itself unless the response to the check replaces it. The list does not depend on the check, which
// need not have all fields of the request. The caller must not change it.
func SessionNames(replaced bool) []string {
	if replaced {
		return slices.Clip(sessionNames[1:])
	}
	return slices.Clip(sessionNames)
}
