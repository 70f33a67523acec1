package http1

import (
	"sync/atomic"
	"time"
)

// date is the value of Date in a second.
type second struct {
	unix int64
	text []byte
}

var lastDate atomic.Pointer[second]

// dateAt gives the value of Date, which is put into words once a second.
func Date(now time.Time) []byte {
	d := lastDate.Load()
	if unix := now.Unix(); d == nil || d.unix != unix {
		d = &second{unix, now.UTC().AppendFormat(nil, "Mon, 02 Jan 2006 15:04:05 GMT")}
		lastDate.Store(d)
	}
	return d.text
}
