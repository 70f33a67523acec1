package eta_test

import (
	"fmt"

	"github.com/anteroom/anteroom/eta"
)

// A room that admits 10 visitors a second has admitted as many in each second of the last minute.
func ExampleWindow() {
	now := int64(1000)
	in := eta.Input{Now: now * 1e6, Since: (now - 60) * 1e6, Rate: 10, Waiting: 5000}
	for second := now - 60; second < now; second++ {
		in.Buckets = append(in.Buckets, eta.Bucket{Second: second, Admitted: 10, Busy: 1})
	}
	forecast := eta.Window{}.Forecast(nil, in)
	for _, ahead := range []int64{99, 2999} {
		e := forecast.At(ahead)
		fmt.Printf("%d ahead: about %.0f s, from %.0f to %.0f\n", ahead, e.Seconds, e.Low, e.High)
	}
	// Output:
	// 99 ahead: about 10 s, from 9 to 11
	// 2999 ahead: about 300 s, from 281 to 321
}
