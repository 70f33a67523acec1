package redisstore

import "strconv"

// Reply is the reply of a script: a list of int64, string, nil and further lists. A script that returns one value makes a list
// of one.
type Reply []any

// List returns a value as a Reply; nil if the value is not a list.
func List(v any) Reply { r, _ := v.([]any); return r }

// At returns value i, nil if there is none.
func (r Reply) At(i int) any {
	if i < 0 || i >= len(r) {
		return nil
	}
	return r[i]
}

// Int returns value i as Int does.
func (r Reply) Int(i int) int64 { return Int(r.At(i)) }

// String returns value i as String does.
func (r Reply) String(i int) string { return String(r.At(i)) }

// Int returns the integer of a value that a script wrote as an integer or as digits; 0 for any other value.
func Int(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64) // 0 if v is not an integer, as documented
		return n
	}
	return 0
}

// String returns a string, or the digits of an integer; "" for any other value.
func String(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}
