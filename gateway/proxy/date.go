package proxy

import (
	"sync/atomic"
	"time"
)

// date is the value of Date in a second.
type date struct {
	second int64
	text   []byte
}

var lastDate atomic.Pointer[date]

// dateAt gives the value of Date, which is put into words once a second.
func dateAt(now time.Time) []byte {
	d := lastDate.Load()
	if second := now.Unix(); d == nil || d.second != second {
		d = &date{second, now.UTC().AppendFormat(nil, "Mon, 02 Jan 2006 15:04:05 GMT")}
		lastDate.Store(d)
	}
	return d.text
}
