package answer

import (
	"time"
	"unicode/utf8"
)

// TimeLayout is the layout of times in responses and logs.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// AppendTime appends microseconds since 1970 as a JSON string, in RFC 3339 and UTC.
func AppendTime(dst []byte, µs int64) []byte {
	t := time.UnixMicro(µs).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return append(t.AppendFormat(append(dst, '"'), TimeLayout), '"')
	}
	hour, minute, second := t.Clock()
	dst = append(dst, `"0000-00-00T00:00:00.000000Z"`...)
	text := dst[len(dst)-len(TimeLayout)-1:]
	put := func(at, digits, n int) {
		for i := at + digits - 1; i >= at; i-- {
			text[i] = byte('0' + n%10)
			n /= 10
		}
	}
	put(0, 4, year)
	put(5, 2, int(month))
	put(8, 2, day)
	put(11, 2, hour)
	put(14, 2, minute)
	put(17, 2, second)
	put(20, 6, t.Nanosecond()/1000)
	return dst
}

// FormatTime returns microseconds since 1970 in RFC 3339 and UTC.
func FormatTime(µs int64) string { return time.UnixMicro(µs).UTC().Format(TimeLayout) }

// AppendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < ' ' || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return append(dst, '"')
}
