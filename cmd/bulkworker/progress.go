package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/anteroom/anteroom/bulk/client"
)

const (
	// lineEvery is the time between two lines where no bar can be drawn.
	lineEvery = 5 * time.Second
	barWidth  = 20
	clearLine = "\r\033[2K"
)

// screen shows progress: a bar on a terminal, plain lines elsewhere.
type screen struct {
	w    io.Writer
	tty  *os.File  // nil: w is not a terminal
	bar  string    // the drawn one; "": none
	last time.Time // of the last plain line
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.tty = f
	}
	return s
}

// show draws a bar for done of total (-1: unknown) followed by figures. Without a terminal it writes head and figures
// as a line, immediately with now and otherwise every lineEvery.
func (s *screen) show(head string, done, total int64, figures string, now bool) {
	if s.tty == nil {
		if now {
			s.last = time.Time{}
		}
		s.every(head + ", " + figures)
		return
	}
	bar := ""
	if total > 0 {
		room := min(barWidth, max(0, s.width()-len("100% || ")-1-len(figures))) // figures have priority
		full := int(int64(room) * done / total)
		bar = fmt.Sprintf("%3d%% |%s%s| ", 100*done/total, strings.Repeat("█", full), strings.Repeat(" ", room-full))
	}
	s.line(bar + figures)
}

// every writes a line unless it has written one within lineEvery.
func (s *screen) every(text string) {
	if time.Since(s.last) >= lineEvery {
		s.last = time.Now()
		s.note("%s", text)
	}
}

// line replaces the bar by another text, as much of it as fits: a wrapped line could not be overwritten.
func (s *screen) line(text string) {
	drawn := []rune(text)
	s.bar = string(drawn[:min(len(drawn), s.width()-1)])
	s.draw(s.bar)
}

func (s *screen) width() int {
	width, _, err := term.GetSize(int(s.tty.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// draw replaces the line of the bar. Errors of the terminal are ignored.
func (s *screen) draw(text string) { _, _ = io.WriteString(s.w, clearLine+text) }

// note writes a line above the bar.
func (s *screen) note(format string, args ...any) {
	if s.bar != "" {
		s.draw("")
	}
	_, _ = fmt.Fprintf(s.w, format+"\n", args...)
	if s.bar != "" {
		s.draw(s.bar)
	}
}

// end removes the bar. It may be called again.
func (s *screen) end() {
	if s.bar != "" {
		s.draw("")
		s.bar = ""
	}
}

// uploading shows the progress of an upload, in bytes of its file.
type uploading struct {
	screen *screen
	bar    *progressbar.ProgressBar
	size   int64                       // of the file; -1: unknown
	at     func(client.Uploaded) int64 // how much of the file is sent
}

func newUploading(s *screen, size int64, at func(client.Uploaded) int64) *uploading {
	// The screen draws what the bar would: it knows how wide the terminal is and what else is written.
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(io.Discard), progressbar.OptionShowBytes(true), progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(barWidth), progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: " ", BarStart: "|", BarEnd: "|"}),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionThrottle(0), progressbar.OptionSetSpinnerChangeInterval(0))
	bar.StartWithoutRender() // otherwise time is counted from the end of the first chunk
	return &uploading{s, bar, size, at}
}

func (u *uploading) chunk(sent client.Uploaded) {
	at := u.at(sent)
	if u.size >= 0 && at > u.size { // the file has grown since
		u.size = at
		u.bar.ChangeMax64(at)
	}
	_ = u.bar.Set64(at) // nothing is written
	lines := fmt.Sprintf("%d lines", sent.Lines)
	if sent.Rejected > 0 {
		lines += fmt.Sprintf(", %d rejected", sent.Rejected)
	}
	now, left := u.bar.State(), ""
	if u.size >= 0 && now.SecondsLeft > 0 {
		left = ", " + seconds(now.SecondsLeft) + " left"
	}
	if u.screen.tty != nil {
		u.screen.line(strings.TrimSpace(u.bar.String()) + " " + lines + left)
		return
	}
	text := fmt.Sprintf("sent %s", sizeOf(float64(at)))
	if u.size >= 0 {
		text = fmt.Sprintf("sent %d%%, %s of %s", int(100*now.CurrentPercent), sizeOf(float64(at)), sizeOf(float64(u.size)))
	}
	u.screen.every(text + fmt.Sprintf(", %s, %s/s%s", lines, sizeOf(now.KBsPerSecond*1024), left))
}

// sizeOf returns a number of bytes as people read it.
func sizeOf(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for ; n >= 1000 && i+1 < len(units); i++ {
		n /= 1000
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

func (u *uploading) end(sent client.Uploaded) {
	u.screen.end()
	u.screen.note("%d jobs are in, %d were there already, %d lines were rejected", sent.Accepted, sent.Duplicates, sent.Rejected)
}

// following shows a group's progress.
type following struct {
	screen *screen
	status string
}

func (f *following) group(g *client.Group) {
	status := statusOf(g)
	if g.Status.Ended() {
		f.screen.end()
		f.screen.note("%s %s: %d succeeded, %d failed, %d dead, %d cancelled", g.ID, status, g.Succeeded, g.Failed, g.Dead, g.Cancelled)
		return
	}
	figures := fmt.Sprintf("%d/%d, %s", g.Done(), g.Total, figuresOf(g))
	f.screen.show(g.ID+" "+status, g.Done(), g.Total, figures, status != f.status)
	f.status = status
}

// figuresOf returns the text beside a bar, the most important figures first, since the end may be cut off.
func figuresOf(g *client.Group) string {
	parts := []string{fmt.Sprintf("%.4g/s", g.Rate)}
	if g.ETA != nil {
		parts = append(parts, etaOf(g.ETA)+" left")
	}
	parts = append(parts, fmt.Sprintf("failed %d", g.Failed), fmt.Sprintf("dead %d", g.Dead), "congestion "+orNone(g.Congestion))
	return strings.Join(parts, ", ")
}

func statusOf(g *client.Group) string {
	if g.Stopped {
		return string(g.Status) + " (paused by stop_at)"
	}
	if g.Paused {
		return string(g.Status) + " (paused)"
	}
	switch g.GatedBy {
	case "start_at":
		return string(g.Status) + " (scheduled)"
	case "after":
		return string(g.Status) + " (waits for " + strings.Join(g.WaitsFor, ", ") + ")"
	case "quiet_hours":
		return string(g.Status) + " (quiet hours)"
	}
	return string(g.Status)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return strings.ToLower(s)
}

// etaOf returns a range where the ends of it differ.
func etaOf(e *client.ETA) string {
	low, high := seconds(e.Low), seconds(e.High)
	switch {
	case e.High <= 0 || low == high:
		return seconds(e.Seconds)
	case low == "0s":
		return "up to " + high
	}
	return low + "-" + high
}

// seconds returns a duration as people read it: two units at most.
func seconds(s float64) string {
	if math.IsNaN(s) || s > 1e9 {
		return "ages"
	}
	d := time.Duration(math.Ceil(max(0, s))) * time.Second
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
