package signin

import (
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// CSRFHeader is the header of a changing request that repeats Session.CSRF, which pages of other sites cannot read.
const CSRFHeader = "X-CSRF-Token"

// record is a session as its cookie holds it.
type record struct {
	Subject string              `json:"sub"`
	Name    string              `json:"name"`
	Claims  map[string][]string `json:"claims"` // those that rules matched
	CSRF    string              `json:"csrf"`
	Began   int64               `json:"began"` // Unix time
	Used    int64               `json:"used"`
}

// Session is a session that has not ended.
type Session struct {
	Person           access.Person
	CSRF             string
	Expires, IdleEnd time.Time
	record           record
}

// Session returns the session of a request's cookie; nil without one, and for one that has ended.
func (s *SignIn) Session(r *http.Request) *Session {
	v := s.SessionInUse(r)
	if v == nil || !s.tools.Now().Before(v.IdleEnd) {
		return nil
	}
	return v
}

// SessionInUse returns the session of a request that is being served and so keeps its session in use: as Session, whenever it was used last.
func (s *SignIn) SessionInUse(r *http.Request) *Session {
	o := s.settings.Load()
	var c record
	if !o.sessions.open(r, &c) {
		return nil
	}
	now := s.tools.Now()
	v := &Session{CSRF: c.CSRF, Expires: time.Unix(c.Began, 0).Add(o.Session), IdleEnd: time.Unix(c.Used, 0).Add(o.Idle), record: c}
	v.Person = access.Person{Name: c.Name, Subject: c.Subject, Via: access.ViaOIDC, Grants: o.grants(c.Claims)}
	if !now.Before(v.Expires) || len(v.Person.Grants) == 0 {
		return nil
	}
	return v
}

// Check returns the problem that refuses a request of a session which another site's page may have sent. reads is set for requests that
// change nothing.
func (s *SignIn) Check(r *http.Request, v *Session, reads bool) error {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" && site != "same-origin" && site != "none" {
		return ophttp.NewProblem(http.StatusForbidden, "cross_site", "requests of a signed-in browser from pages of other sites are refused")
	}
	if reads {
		return nil
	}
	if origin := r.Header.Get("Origin"); origin != s.origin {
		return ophttp.NewProblem(http.StatusForbidden, "cross_site", "the header Origin is %q and has to be %s, the origin of admin.oidc.redirect_url", ophttp.Shorten(origin), s.origin)
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(CSRFHeader)), []byte(v.CSRF)) != 1 {
		return ophttp.NewProblem(http.StatusForbidden, "csrf", "send the csrf of GET /admin/v1/me in the header %s", CSRFHeader)
	}
	return nil
}

// Renew extends a session that is in use. At most once a minute it sets the cookie again.
func (s *SignIn) Renew(w http.ResponseWriter, v *Session) {
	o, now := s.settings.Load(), s.tools.Now()
	if now.Sub(time.Unix(v.record.Used, 0)) < min(time.Minute, o.Idle/4) {
		return
	}
	v.record.Used = now.Unix()
	s.set(w, o, v.record)
}

func (s *SignIn) set(w http.ResponseWriter, o *settings, c record) {
	left := time.Unix(c.Began, 0).Add(o.Session).Sub(s.tools.Now())
	// Strict: the console's own page sends it, and no link from elsewhere.
	http.SetCookie(w, o.sessions.seal(c, http.SameSiteStrictMode, max(1, int(left.Seconds()))))
}

// End removes the cookie of a session.
func (s *SignIn) End(w http.ResponseWriter) {
	http.SetCookie(w, s.settings.Load().sessions.end(http.SameSiteStrictMode))
}
