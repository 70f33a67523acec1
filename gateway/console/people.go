package console

import (
	"context"
	"net/http"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/console/signin"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// admit authenticates a request: by its token, or by the cookie of a session where it brings no token. The table of routes authorizes it.
func (c *Console) admit(r *http.Request) (*access.Person, error) {
	if session := c.session(r); session != nil {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		return &session.Person, c.o.SignIn.Check(r, session, reads)
	}
	return c.guard.Admit(r, readsOnly(r))
}

// admitAgain authenticates a request that is still being served. The session of a browser counts as in use.
func (c *Console) admitAgain(r *http.Request, who *access.Person) (*access.Person, error) {
	if who.Via != access.ViaOIDC {
		return c.guard.Admit(r, readsOnly(r))
	}
	session := c.o.SignIn.SessionInUse(r)
	if session == nil {
		return nil, ophttp.NewProblem(http.StatusUnauthorized, "unauthorized", "the session has ended; sign in again")
	}
	return &session.Person, nil
}

// session returns the session of a request without a token, nil if it has none.
func (c *Console) session(r *http.Request) *signin.Session {
	if c.o.SignIn == nil || r.Header.Get("Authorization") != "" {
		return nil
	}
	return c.o.SignIn.Session(r)
}

// inSession serves a request of a session, which it renews. The request ends at the latest with the session.
func (c *Console) inSession(serve handler) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Person) error {
		if who.Via != access.ViaOIDC {
			return serve(w, r, who)
		}
		session := c.session(r)
		if session == nil {
			return ophttp.NewProblem(http.StatusUnauthorized, "unauthorized", "the session has ended; sign in again")
		}
		c.o.SignIn.Renew(w, session)
		ctx, cancel := context.WithTimeout(r.Context(), session.Expires.Sub(c.o.Now()))
		defer cancel()
		return serve(w, r.WithContext(ctx), who)
	}
}

// people serves what is about the person who sends a request.
type people struct{ *Console }

// methodsView is the public answer to which ways of authentication there are.
type methodsView struct {
	Token bool      `json:"token"`
	OIDC  *oidcView `json:"oidc,omitempty"`
}

type oidcView struct {
	Login string `json:"login"`
	Ready bool   `json:"ready"`
}

func (c people) showMethods(w http.ResponseWriter, _ *http.Request) error {
	v := methodsView{Token: c.guard.HasTokens()}
	if c.o.SignIn != nil {
		v.OIDC = &oidcView{Login: signin.LoginPath, Ready: c.o.SignIn.Ready()}
	}
	return ophttp.OK(w, v)
}

// personView is the operator who sent the request.
type personView struct {
	Name      string         `json:"name"`
	Via       access.Via     `json:"via"`
	Grants    []access.Grant `json:"grants"`
	TwoPerson []string       `json:"two_person"`
	CSRF      string         `json:"csrf,omitempty"`
	Expires   *timestamp     `json:"expires_at,omitempty"`
	IdleUntil *timestamp     `json:"idle_until,omitempty"`
}

func (c people) showMe(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	v := personView{Name: who.Name, Via: who.Via, Grants: who.Grants, TwoPerson: append([]string{}, c.o.TwoPerson...)}
	if session := c.session(r); session != nil {
		v.CSRF = session.CSRF
		v.Expires, v.IdleUntil = optional(session.Expires.UnixMicro()), optional(session.IdleEnd.UnixMicro())
	}
	return ophttp.OK(w, v)
}

func (c people) logout(w http.ResponseWriter, r *http.Request, _ *access.Person) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	c.o.SignIn.End(w)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// publicHandler serves a public path. Its error is sent as a problem.
type publicHandler func(w http.ResponseWriter, r *http.Request) error

func (c *Console) answering(serve publicHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			c.mux.Fail(w, r, err)
		}
	})
}
