package bulk

import "testing"

func TestCheckText_FindsHalfSurrogates(t *testing.T) {
	for text, bad := range map[string]bool{
		`{"message":"\ud800"}`: true, `"\udc00"`: true, `"\ud83d\ude00"`: false, `"\ud83d\ud83d\ude00"`: true, `"\ud800x"`: true, `"\\ud800"`: false,
		`"\\\ud800"`: true, `"\u0041\n\"\uFFFD"`: false, `{"\uD800":1}`: true, `"\ud83d\u0041"`: true, `null`: false, `"😀"`: false, `"\uDBFF\uDFFF"`: false,
	} {
		if err := CheckText([]byte(text)); (err != nil) != bad {
			t.Errorf("%s: %v", text, err)
		}
	}
}
