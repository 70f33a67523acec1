package http1

import (
	"sync/atomic"
	"time"
)

// second is the value of Date in one second.
type second struct {
	unix int64
	text []byte
}

var lastDate atomic.Pointer[second]

// Date returns the value of the Date field, which is formatted once a second.
func Date(now time.Time) []byte {
	d := lastDate.Load()
	if unix := now.Unix(); d == nil || d.unix != unix {
		d = &second{unix, now.UTC().AppendFormat(nil, "Mon, 02 Jan 2006 15:04:05 GMT")}
		lastDate.Store(d)
	}
	return d.text
}
