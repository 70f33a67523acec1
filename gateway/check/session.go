package check

import "slices"

// sessionNames are the names that origins read as X-Waiting-Room-Session, that name first: some programs confuse dashes, underscores and
// dots.
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

// SessionNames returns the fields of a passing request that its origin could read as the session: all aliases of X-Waiting-Room-Session,
// and that field itself unless the answer replaces it. A proxy need not describe all fields in a check, so the list is always complete.
// The caller must not change it.
func SessionNames(replaced bool) []string {
	if replaced {
		return slices.Clip(sessionNames[1:])
	}
	return slices.Clip(sessionNames)
}
