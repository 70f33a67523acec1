package answer

import (
	"testing"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/forecast"
)

func BenchmarkStatus(b *testing.B) {
	for _, row := range []struct {
		name string
		room *forecast.Room
	}{{"plain", nil}, {"compat", inRoom(admission.Policy{Method: admission.FIFO}, forecast.Events{})}} {
		b.Run(row.name, func(b *testing.B) {
			s := Status{
				Room: "sale", State: StateWaiting, Position: 1234, Waiting: 50210, ETA: forecast.Wait{Known: true, Seconds: 123, Low: 110, High: 150},
				Refresh: 12, JoinedAt: 1767323045000000, Compat: row.room, Now: 1767323045000000,
			}
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				buf = s.Append(buf[:0])
			}
		})
	}
}
