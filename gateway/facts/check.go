package facts

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
)

// Bounds of a document.
const (
	MaxItems     = 64
	MaxNotices   = 8
	MaxBody      = 8 << 10  // bytes of a request
	MaxText      = 16 << 10 // bytes of a document
	MaxLanguages = 16       // of a label or a notice
	MaxLabel     = 120      // characters
	MaxSentence  = 500      // characters of a notice
	MaxAmount    = Amount(1_000_000_000_000)
	maxLink      = 500
)

var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// CheckID returns what is wrong with the id of an item or a notice, or "".
func CheckID(id string) string {
	if !identifier.MatchString(id) {
		return "is not 1 to 64 letters, digits, dots, dashes and underscores"
	}
	return ""
}

// CheckTexts returns what is wrong with texts by language, and at which language, or "".
func CheckTexts(texts map[string]string, most int) (lang, problem string) {
	switch {
	case len(texts) == 0:
		return "", "has no text"
	case len(texts) > MaxLanguages:
		return "", fmt.Sprintf("has more than %d languages", MaxLanguages)
	}
	for lang, text := range texts {
		switch tag, err := language.Parse(lang); {
		case err != nil || tag == language.Und:
			return lang, "is not under a language tag such as en or pt-BR"
		case strings.TrimSpace(text) == "":
			return lang, "is empty"
		case utf8.RuneCountInString(text) > most:
			return lang, fmt.Sprintf("is longer than %d characters", most)
		case strings.ContainsFunc(text, hidden):
			return lang, "has control characters"
		}
	}
	return "", ""
}

// hidden reports whether a character could hide or reverse the text around it.
func hidden(c rune) bool {
	return unicode.IsControl(c) || c >= 0x202A && c <= 0x202E || c >= 0x2066 && c <= 0x2069 || c == 0x2028 || c == 0x2029
}

// CheckCurrency returns what is wrong with a currency, or "".
func CheckCurrency(code string) string {
	if unit, err := currency.ParseISO(code); err != nil || unit.String() != code {
		return "is not the code of a currency"
	}
	return ""
}

// CheckLink returns what is wrong with a link, or "": it leads to another site by https, or to a path of the visitor's own.
func CheckLink(link string) string {
	u, err := url.Parse(link)
	switch {
	case len(link) > maxLink:
		return fmt.Sprintf("is longer than %d bytes", maxLink)
	case err != nil || strings.ContainsFunc(link, func(c rune) bool { return c <= ' ' || c == '\\' || unicode.IsControl(c) || hidden(c) }):
		return "is not a URL"
	case u.Scheme == "https" && u.Host != "" && u.User == nil:
		return ""
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(link, "/") && !strings.HasPrefix(link, "//"):
		return ""
	}
	return "leads neither to https:// nor to a path of the site"
}
