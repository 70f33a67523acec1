package outbox

// keyNames are the keys of the queue. They share one hash tag.
var keyNames = []string{"lease", "state", "due", "bodies", "dead", "counts"}

// keysOf returns <prefix>:{webhooks}:<name> for each name.
func keysOf(prefix string, names ...string) []string {
	keys := make([]string, len(names))
	for i, n := range names {
		keys[i] = prefix + ":{webhooks}:" + n
	}
	return keys
}
