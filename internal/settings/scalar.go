package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// scalar is a kind of single value.
type scalar struct {
	goType reflect.Type
	want   string                    // the advice of an error
	parse  func(string) (any, error) // nil for text; errWanted if want is the whole message
	format func(v reflect.Value) string
	// Forms that YAML may use: a number, text.
	number, text bool
}

var errWanted = errors.New("not of this kind")

var scalars = map[string]scalar{
	"text":    {goType: reflect.TypeFor[string](), want: "use text"},
	"boolean": {goType: reflect.TypeFor[bool](), want: "use true or false", parse: parseBoolean},
	"integer": {goType: reflect.TypeFor[int](), want: "use a whole number such as 100", number: true, parse: parseInteger},
	"number": {goType: reflect.TypeFor[float64](), want: "use a decimal number such as 0.5", number: true, parse: parseNumber,
		format: func(v reflect.Value) string { return strconv.FormatFloat(v.Float(), 'f', -1, 64) }},
	"rate": {goType: reflect.TypeFor[Rate](), want: "use a number without quotes, such as 10 or 2.5", number: true,
		parse: func(text string) (any, error) { return ParseRate(text) }},
	"size": {goType: reflect.TypeFor[Size](), want: "use a number of bytes such as 4096, or 16KiB", number: true, text: true,
		parse: func(text string) (any, error) { return ParseSize(text) }},
	"duration": {goType: reflect.TypeFor[time.Duration](), want: "use a duration with its unit, such as 30s or 10m", text: true,
		parse:  func(text string) (any, error) { return ParseDuration(text) },
		format: func(v reflect.Value) string { return FormatDuration(time.Duration(v.Int())) }},
	"CIDR": {goType: reflect.TypeFor[netip.Prefix](), want: "use an address range such as 10.0.0.0/8 or fd00::/8", text: true, parse: parsePrefix},
}

func parseBoolean(text string) (any, error) {
	if text != "true" && text != "false" {
		return nil, errWanted
	}
	return text == "true", nil
}

func parseInteger(text string) (any, error) {
	if !AllDigits(strings.TrimPrefix(text, "-")) {
		return nil, errWanted
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, tooLarge(err)
}

func parseNumber(text string) (any, error) {
	if !decimalPattern.MatchString(text) {
		return nil, errWanted
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, tooLarge(err)
}

func tooLarge(err error) error {
	if err != nil {
		return fmt.Errorf("is too large; %w", errWanted)
	}
	return nil
}

func parsePrefix(text string) (any, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return nil, fmt.Errorf("has no length; use %s/%d for this address alone", text, address.BitLen())
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return nil, errWanted
	case prefix.Addr().Is4In6():
		return nil, errors.New("is IPv4 written as IPv6 and would match no client; use the IPv4 form, such as 10.0.0.0/8")
	case prefix != prefix.Masked():
		return nil, fmt.Errorf("has bits beyond its length; use %s", prefix.Masked())
	}
	return prefix, nil
}

// parseScalar writes the value of a text and returns what is wrong with the text, if anything.
func parseScalar(v reflect.Value, text, kind string) string {
	k := scalars[kind]
	parsed, err := k.parse(text)
	if err != nil {
		return strings.ReplaceAll(err.Error(), errWanted.Error(), k.want)
	}
	v.Set(reflect.ValueOf(parsed).Convert(v.Type()))
	return ""
}

// format returns a value as the file would have it.
func format(v reflect.Value, s Setting) string {
	if f := scalars[s.Kind].format; f != nil {
		return f(v)
	}
	return fmt.Sprint(v.Interface())
}

// show quotes a value for a message, or hides it if it is a secret.
func show(raw any, s Setting) string {
	text := ""
	switch value := raw.(type) {
	case string:
		text = value
	case plain:
		text = string(value)
	case malformed:
		text = value.Value
	case number:
		if s.Secret == "" {
			return Clip(string(value)) + ": "
		}
	case bool:
		if s.Secret == "" {
			return strconv.FormatBool(value) + ": "
		}
	default:
		return ""
	}
	if s.Secret != "" {
		return ""
	}
	return strconv.Quote(Clip(text)) + ": "
}

// Clip returns a text short enough for a message.
func Clip(text string) string {
	if runes := []rune(text); len(runes) > 80 {
		return string(runes[:80]) + "…"
	}
	return text
}
