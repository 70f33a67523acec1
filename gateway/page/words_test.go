package page

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/feature/plural"
)

func TestWords_Wait(t *testing.T) {
	all, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		low, high int64
		en, ko    string
	}{
		{0, 0, "less than a minute", "1분 미만"},
		{30, 60, "less than a minute", "1분 미만"},
		{30, 61, "up to 2 minutes", "최대 2분"},
		{60, 61, "about 1 to 2 minutes", "약 1~2분"},
		{120, 120, "about 2 minutes", "약 2분"},
		{119, 240, "about 1 to 4 minutes", "약 1~4분"},
		{300, 540, "about 5 to 9 minutes", "약 5~9분"},
		{540, 661, "about 9 to 15 minutes", "약 9~15분"},
		{610, 880, "about 10 to 15 minutes", "약 10~15분"},
		{899, 901, "about 10 to 20 minutes", "약 10~20분"},
		{3000, 5400, "about 50 to 90 minutes", "약 50~90분"},
		{3000, 5401, "up to 2 hours", "최대 2시간"},
		{3600, 5401, "about 1 to 2 hours", "약 1~2시간"},
		{7000, 9000, "about 1.5 to 2.5 hours", "약 1.5~2.5시간"},
		{86399, 90000, "about 23.5 to 25 hours", "약 23.5~25시간"},
		{86400, 90000, "more than a day", "하루 이상"},
	} {
		if got := all["en"].wait(row.low, row.high); got != row.en {
			t.Errorf("en %d–%d: %q, want %q", row.low, row.high, got, row.en)
		}
		if got := all["ko"].wait(row.low, row.high); got != row.ko {
			t.Errorf("ko %d–%d: %q, want %q", row.low, row.high, got, row.ko)
		}
	}
}

func TestWords_Span(t *testing.T) {
	all, _ := builtin()
	for seconds, want := range map[int64]string{180: "3 minutes", 600: "10 minutes", 3600: "60 minutes", 7200: "2 hours", 9000: "150 minutes", 36000: "10 hours"} {
		if got := all["en"].span(seconds); got != want {
			t.Errorf("%d s: %q, want %q", seconds, got, want)
		}
	}
}

var placeholder = regexp.MustCompile(`{\w+}`)

// Every language has the keys of English, its placeholders, and all plural forms of the language.
func TestLanguages_AreComplete(t *testing.T) {
	all, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	english := all["en"]
	if len(all) < 2 || all["ko"] == nil {
		t.Fatalf("languages: %v", sortedKeys(all))
	}
	for code, w := range all {
		if w.code != code {
			t.Errorf("languages/%s.json: call it %s.json", code, w.code)
		}
		if dir := w.plain["dir"]; dir != "ltr" && dir != "rtl" {
			t.Errorf("%s: dir is %q, want ltr or rtl", code, dir)
		}
		if got, want := sortedKeys(w.texts), sortedKeys(english.texts); !slices.Equal(got, want) {
			t.Errorf("%s has the keys\n%v\nwant\n%v", code, got, want)
		}
		for key, forms := range w.texts {
			for form, text := range forms {
				if strings.TrimSpace(text) == "" || strings.ContainsAny(text, "<>") {
					t.Errorf("%s: %s (%s) is %q", code, key, form, text)
				}
				got, want := placeholder.FindAllString(text, -1), placeholder.FindAllString(english.plain[key], -1)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %s (%s) has the placeholders %v, want %v", code, key, form, got, want)
				}
				if !slices.Contains([]string{"zero", "one", "two", "few", "many", "other"}, form) {
					t.Errorf("%s: %s has the form %q, which is no CLDR category", code, key, form)
				}
			}
			if len(english.texts[key]) == 1 {
				continue
			}
			for n := range 200 {
				form := categories[plural.Cardinal.MatchPlural(w.tag, n, 0, 0, 0, 0)]
				if _, ok := forms[form]; !ok {
					t.Errorf("%s: %s lacks the form %q, as for %d", code, key, form, n)
					break
				}
			}
		}
	}
}

// The page contains exactly the texts that the script uses.
func TestScript_HasItsTexts(t *testing.T) {
	all, _ := builtin()
	source := source("words.js") + source("page.js")
	for key := range all["en"].texts {
		byName := regexp.MustCompile(`text\.` + key + `\b|(say|count)\("` + key + `"|"` + key + `"`).MatchString(source)
		composed := (strings.HasPrefix(key, "h_") || strings.HasPrefix(key, "l_")) && !strings.HasSuffix(key, "_joins") && !strings.HasSuffix(key, "_sold_out") && !strings.HasSuffix(key, "_proof") || reasons[key]
		if used := byName || composed; used == (slices.Contains(serverOnly, key) || slices.ContainsFunc([]string{"p_", "f_", "b_"}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })) && key != "place" && key != "sound" && key != "go" {
			t.Errorf("%s: used by the script: %v, in serverOnly: %v", key, used, !used)
		}
	}
	for _, m := range regexp.MustCompile(`\btext\.(\w+)|say\("(\w+)"|count\("(\w+)"`).FindAllStringSubmatch(source, -1) {
		key := m[1] + m[2] + m[3]
		if _, ok := all["en"].texts[key]; !ok || slices.Contains(serverOnly, key) {
			t.Errorf("the script uses the text %q, which the page does not contain", key)
		}
	}
}

func TestSource_Squeeze(t *testing.T) {
	for in, want := range map[string]string{
		"// a comment\nconst a = \"b  + c\";\n  if (a === 1) {\n    b();\n  }\n": "let a=\"b  + c\"\nif(a===1){b()}\n",
		"let x = a + +b, y = c - -d;\n":                                          "let x=a+ +b,y=c- -d\n",
		"const f = 'it\\'s; {' + `a  ${b}`;\n":                                   "let f='it\\'s; {'+`a  ${b}`\n",
	} {
		if got := squeezeJS(in); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
	_, lines, _ := strings.Cut(script, "\n")
	for line := range strings.Lines(lines) {
		if strings.ContainsAny(line[:1], "([`+-/*") {
			t.Errorf("the script's line %q would continue the line before it, which has lost its semicolon", line)
		}
	}
	if got, want := squeezeCSS("/* x */\na b > c, d { margin: 0 auto; content: \"a; b\"; }\n@media (x: y) { e { f: g; } }\n"), `a b > c,d{margin:0 auto;content:"a; b"}@media (x:y){e{f:g}}`; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestSource_ShortNamesDiffer(t *testing.T) {
	names, source := map[string]string{}, source("words.js")+source("page.js")
	_, list, _ := strings.Cut(long.String(), ")(")
	for name := range strings.SplitSeq(strings.TrimSuffix(list, `)\b`), "|") {
		lines := strings.Split(shorten(" "+name), "\n") // what is the browser's own is assigned in a line before
		short := strings.TrimSpace(lines[len(lines)-1])
		if short == name {
			t.Errorf("%s is not shortened", name)
		}
		if strings.Contains(source, short) {
			t.Errorf("%s, for %s, is in the script", short, name)
		}
		if names[name] != "" {
			t.Errorf("%s is there twice", name)
		}
		names[name] = short
		if regexp.MustCompile(`\b` + name + `:`).MatchString(source) {
			t.Errorf("%s is a key", name)
		}
		if strings.Contains(script, "-"+name) { // in a text it would be one, so it keeps its name behind a minus
			t.Errorf("%s is subtracted, and not shortened there", name)
		}
	}
	if len(names) < 5 {
		t.Fatal("no names were found")
	}
}
