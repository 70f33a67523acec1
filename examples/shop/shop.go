package main

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed assets pages
var files embed.FS

// shop is the state of the shop. Its handler is safe for concurrent use.
type shop struct {
	shows  []*show
	byID   map[string]*show
	orders orders
	pages  map[string]*template.Template
	style  template.CSS // inlined in the confirmation: its session has ended, so it cannot load assets
	log    *slog.Logger

	stopping chan struct{} // closed by endLive
	once     sync.Once
	sockets  sync.WaitGroup // http.Server does not wait for upgraded connections
}

func newShop(log *slog.Logger) (*shop, error) {
	s := &shop{
		shows: newShows(), byID: map[string]*show{}, orders: orders{byKey: map[string]*order{}},
		pages: map[string]*template.Template{}, log: log, stopping: make(chan struct{}),
	}
	for _, e := range s.shows {
		s.byID[e.ID] = e
	}
	css, err := files.ReadFile("assets/shop.css")
	if err != nil {
		return nil, err
	}
	s.style = template.CSS(css)
	for _, name := range []string{"home", "event", "confirmation", "missing"} {
		t, err := template.ParseFS(files, "pages/layout.html", "pages/"+name+".html")
		if err != nil {
			return nil, err
		}
		s.pages[name] = t
	}
	return s, nil
}

// endLive ends the live seat maps, so that the shutdown does not wait for them.
func (s *shop) endLive() { s.once.Do(func() { close(s.stopping) }) }

func (s *shop) handler(delay time.Duration, capacity int) http.Handler {
	work := http.NewServeMux()
	work.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		s.render(w, r, http.StatusOK, "home", page{Title: "Tickets", Shows: s.shows})
	})
	work.HandleFunc("GET /events/{id}", func(w http.ResponseWriter, r *http.Request) {
		if e, ok := s.event(w, r); ok {
			s.renderShow(w, r, http.StatusOK, e, purchase{}, nil)
		}
	})
	work.HandleFunc("GET /events/{id}/seats", func(w http.ResponseWriter, r *http.Request) {
		if e, ok := s.event(w, r); ok {
			w.Header().Set("Cache-Control", "no-store")
			writeJSON(w, http.StatusOK, change{Sold: e.soldSeats(), Free: e.Left()})
		}
	})
	work.HandleFunc("POST /checkout", s.checkout)
	work.HandleFunc("POST /jobs", s.jobs)
	work.HandleFunc("GET /", s.missing)

	all := http.NewServeMux()
	all.Handle("/", slow(delay, capacity, work))
	assets := http.FileServerFS(files)
	all.Handle("GET /assets/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			s.missing(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=300")
		assets.ServeHTTP(w, r)
	}))
	all.HandleFunc("GET /events/{id}/seats/stream", s.stream)
	all.HandleFunc("GET /events/{id}/seats/ws", s.socket)
	all.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return all
}

func (s *shop) event(w http.ResponseWriter, r *http.Request) (*show, bool) {
	e, ok := s.byID[r.PathValue("id")]
	if !ok {
		s.missing(w, r)
	}
	return e, ok
}

func (s *shop) missing(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusNotFound, "missing", page{Title: "Not found"})
}

// page is the data of the templates.
type page struct {
	Title    string
	Shows    []*show
	Show     *show
	Rows     []row
	Free     int
	Max      int
	Form     purchase
	Problems []string
	Order    *order
	Inline   bool // include the style in the page

	Session string // X-Waiting-Room-Session
	Nonce   string
	Style   template.CSS
}

type row struct {
	Name  string
	Seats []seat
}

type seat struct {
	Name         string
	Number       int
	Sold, Chosen bool
}

func (s *shop) renderShow(w http.ResponseWriter, r *http.Request, code int, e *show, p purchase, problems []string) {
	sold := map[string]bool{}
	for _, n := range e.soldSeats() {
		sold[n] = true
	}
	chosen := map[string]bool{}
	for _, n := range p.Seats {
		chosen[n] = true
	}
	var hall []row
	for i := range rows {
		hall = append(hall, row{Name: string(rune('A' + i))})
		for n := range rowSeats {
			name := hall[i].Name + strconv.Itoa(n+1)
			hall[i].Seats = append(hall[i].Seats, seat{Name: name, Number: n + 1, Sold: sold[name], Chosen: chosen[name] && !sold[name]})
		}
	}
	p.Key = rand.Text()
	s.render(w, r, code, "event", page{Title: e.Title, Show: e, Rows: hall, Free: len(seatNames) - len(sold), Max: maxPerSale, Form: p, Problems: problems})
}

func (s *shop) render(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	p.Session = r.Header.Get("X-Waiting-Room-Session")
	style := "'self'"
	if p.Inline {
		var b [16]byte
		_, _ = rand.Read(b[:])
		p.Nonce, p.Style = base64.RawURLEncoding.EncodeToString(b[:]), s.style
		style = "'nonce-" + p.Nonce + "'"
	}
	var out bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&out, "layout", p); err != nil {
		s.log.Error("render", "page", name, "error", err)
		http.Error(w, "The shop has a fault. Please try again.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src "+style+"; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "private, no-cache")
	}
	w.WriteHeader(code)
	_, _ = out.WriteTo(w)
}
