package bulk

import (
	"fmt"
	"strconv"
	"unicode/utf16"
)

// CheckText returns an error if JSON has an escape of half a surrogate pair, as "\ud800". Such text has no UTF-8, and encoding/json
// replaces the half by U+FFFD: a handler that decodes a payload would send another text than was submitted.
func CheckText(valid []byte) error {
	const length = len(`\ud800`)
	unit := func(i int) rune { // the UTF-16 code unit of an escape at i, 0 if there is none
		if i+length > len(valid) || valid[i] != '\\' || valid[i+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(valid[i+2:i+length]), 16, 16) // of valid JSON: four hexadecimal digits
		return rune(n)
	}
	for i := 0; i < len(valid); i++ {
		if valid[i] != '\\' {
			continue
		}
		switch c := unit(i); {
		case !utf16.IsSurrogate(c):
			i++ // also over an escaped backslash
		case utf16.DecodeRune(c, unit(i+length)) != '\uFFFD':
			i += 2*length - 1
		default:
			return fmt.Errorf("%s at byte %d is half a surrogate pair, which is not text; write both halves, or the character itself", valid[i:i+length], i)
		}
	}
	return nil
}
