package settings

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseRate_AcceptsThreeDecimals(t *testing.T) {
	for _, row := range []struct {
		text string
		want Rate
		bad  string
	}{
		{text: "10", want: 10_000},
		{text: "0", want: 0},
		{text: "2.5", want: 2_500},
		{text: "0.125", want: 125},
		{text: "1.5000", want: 1_500},
		{text: "007", want: 7_000},
		{text: "1000000000", want: maxThousandths},
		{text: "1000000000.001", bad: "too large"},
		{text: "99999999999999999999", bad: "too large"},
		{text: "0.0005", bad: "three decimal places"},
		{text: "1.2345", bad: "three decimal places"},
		{text: "", bad: "use a decimal"},
		{text: "x", bad: "use a decimal"},
		{text: "-1", bad: "is negative; use 0 or more"},
		{text: "+1", bad: "use a decimal"},
		{text: "1e3", bad: "use a decimal"},
		{text: ".5", bad: "use a decimal"},
		{text: "5.", bad: "use a decimal"},
		{text: "1.2.3", bad: "use a decimal"},
		{text: "1,5", bad: "use a decimal"},
		{text: " 1", bad: "use a decimal"},
		{text: "NaN", bad: "use a decimal"},
	} {
		got, err := ParseRate(row.text)
		check(t, row.text, got, row.want, err, row.bad)
	}
}

func TestParseSize_AcceptsUnits(t *testing.T) {
	for _, row := range []struct {
		text string
		want Size
		bad  string
	}{
		{text: "0", want: 0},
		{text: "4096", want: 4096},
		{text: "12B", want: 12},
		{text: "16KiB", want: 16 << 10},
		{text: "8MiB", want: 8 << 20},
		{text: "2GiB", want: 2 << 30},
		{text: "3TiB", want: 3 << 40},
		{text: "8191PiB", want: 8191 << 50},
		{text: "8192PiB", bad: "too large"},
		{text: "9223372036854775808", bad: "too large"},
		{text: "16KB", bad: "use a whole number"},
		{text: "16 KiB", bad: "use a whole number"},
		{text: "1.5MiB", bad: "use a whole number"},
		{text: "-1", bad: "use a whole number"},
		{text: "KiB", bad: "use a whole number"},
		{text: "", bad: "use a whole number"},
	} {
		got, err := ParseSize(row.text)
		check(t, row.text, got, row.want, err, row.bad)
	}
}

func check[T comparable](t *testing.T, text string, got, want T, err error, bad string) {
	t.Helper()
	switch {
	case bad == "" && (err != nil || got != want):
		t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
	case bad != "" && (err == nil || !strings.Contains(err.Error(), bad)):
		t.Errorf("%q: got %v, %v; want an error with %q", text, got, err, bad)
	}
}

func TestFormatDuration_OmitsZeroUnits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "1m15s": 75 * time.Second,
		"10m": 10 * time.Minute, "12h": 12 * time.Hour, "1h30m": 90 * time.Minute, "1h0m5s": time.Hour + 5*time.Second,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

func TestQuantities_AreReadAsTheyAreWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := Rate(rapid.Int64Range(0, maxThousandths).Draw(t, "rate"))
		if got, err := ParseRate(rate.String()); err != nil || got != rate {
			t.Fatalf("rate %d written as %s: got %d, %v", rate, rate, got, err)
		}
		size := Size(rapid.Int64Range(0, 1<<62).Draw(t, "size"))
		if got, err := ParseSize(size.String()); err != nil || got != size {
			t.Fatalf("size %d written as %s: got %d, %v", size, size, got, err)
		}
		d := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "duration"))
		if got, err := ParseDuration(FormatDuration(d)); err != nil || got != d {
			t.Fatalf("duration %d written as %s: got %d, %v", d, FormatDuration(d), got, err)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"10", "2.5", "0.0005", "1e3", "-1", "999999999999999999999", "0.", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			return
		}
		if again, err := ParseRate(rate.String()); err != nil || again != rate || rate < 0 || rate > maxThousandths {
			t.Fatalf("%q gives %d, written as %s, which gives %d, %v", text, rate, rate, again, err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"0", "16KiB", "8192PiB", "1.5MiB", "-1", "B", "99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			return
		}
		if again, err := ParseSize(size.String()); err != nil || again != size || size < 0 {
			t.Fatalf("%q gives %d, written as %s, which gives %d, %v", text, size, size, again, err)
		}
	})
}
