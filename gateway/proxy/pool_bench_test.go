package proxy

import (
	"fmt"
	"testing"
)

// BenchmarkPool measures taking a connection and returning it, by number of servers.
func BenchmarkPool(b *testing.B) {
	for _, n := range []int{1, 2, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := serversOf(b, n)
			b.ReportAllocs()
			for b.Loop() {
				o.enter(nil, 0, nil)
				s, _, _ := o.pick(noon, 0, nil)
				o.done(nil, s, nil, false, sound, "", noon)
			}
		})
	}
}
