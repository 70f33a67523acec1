package cloudflare

import (
	"cmp"
	"fmt"
	"net/url"
	pathpkg "path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/anteroom/anteroom/internal/settings"
)

// Queueing methods of Cloudflare.
const (
	methodFIFO        = "fifo"
	methodRandom      = "random"
	methodPassthrough = "passthrough"
	methodReject      = "reject"
	methodLottery     = "lottery" // ours
)

const (
	maxPerMinute = 60_000_000 // a rate of 1,000,000/s
	maxUsers     = 1_000_000_000
	maxSession   = 24 * 60 // minutes
	defaultMax   = 12 * 60 // minutes; the default of session.max
)

// room converts a waiting room.
func (i *importer) room(o *object) {
	if o == nil {
		return
	}
	name := o.text("name")
	host := o.text("host")
	switch {
	case i.err != nil:
		return
	case host == "" && (o.has("event_start_time") || o.has("expression")):
		i.fail(o.at, "is an event or a rule, not a waiting room; put events and rules into the members events and rules of their room")
		return
	case name == "":
		i.fail(o.field("name"), "is missing; this is not a waiting room of Cloudflare's API")
		return
	case host == "":
		i.fail(o.field("host"), "is missing; this is not a waiting room of Cloudflare's API")
		return
	}
	at := o.at
	o.at = settings.Clip(name)
	routes := i.routes(o, host)
	r := room{ID: i.roomID(name)}
	o.skip("id", "created_on", "modified_on", "next_event_prequeue_start_time", "next_event_start_time")
	r.Admission = admission{Rate: perSecond(o.number("new_users_per_minute", 1, maxPerMinute)), MaxActive: o.number("total_active_users", 1, maxUsers)}
	r.Session = i.session(o)
	i.queue(o, &r)
	i.responses(o, &r)
	i.cookies(o)
	i.ignored(o)
	r.Bypass = i.rules(o)
	i.events(o, &r)
	if o.rest(); i.err != nil {
		return
	}
	if r.Admission.MaxActive == 0 {
		i.fail(at+" ("+o.at+")", "has no total_active_users; this is not a whole waiting room")
		return
	}
	i.addRoom(o, r, routes)
}

// printable returns a blank for a character that would break a line or a terminal.
func printable(c rune) rune {
	if unicode.IsPrint(c) {
		return c
	}
	return ' '
}

// roomID returns an unused id for a room with a name.
func (i *importer) roomID(name string) string {
	id := strings.Map(func(c rune) rune {
		if c = unicode.ToLower(c); c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, name)
	id = strings.TrimLeft(id[:min(len(id), 56)], "-")
	id = cmp.Or(id, "room")
	base := id
	for n := 2; i.ids[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	i.ids[id] = true
	return id
}

func (i *importer) session(o *object) session {
	s := session{TTL: minutes(o.number("session_duration", 1, maxSession)), Renew: !o.flag("disable_session_renewal")}
	s.TTL = cmp.Or(s.TTL, 5) // Cloudflare's default
	if s.TTL > defaultMax {
		s.Max = s.TTL
	}
	return s
}

// queue converts the fields that decide who is admitted.
func (i *importer) queue(o *object, r *room) {
	if o.flag("suspended") {
		r.Enabled = new(false)
	}
	method := o.text("queueing_method")
	switch method {
	case "":
		method = methodFIFO
	case methodFIFO, methodPassthrough, methodReject:
	case methodRandom:
		o.note("queueing_method", method, "there is no continuous random order; imported as fifo. For a sale with an opening use method: lottery (docs/lottery.md)")
		method = methodFIFO
	default:
		o.note("queueing_method", method, "is not a method that the import knows; imported as fifo")
		method = methodFIFO
	}
	if o.flag("queue_all") {
		o.note("queue_all", "true", fmt.Sprintf("imported as a rate of 0, which admits nobody. To admit visitors set admission.rate to %s, and queue.method to %s. Events with a rate admit visitors all the same", r.Admission.Rate, method))
		r.Admission.Rate, method = 0, methodFIFO
	}
	r.Queue.Method = method
}

// responses converts the fields of pages and JSON.
func (i *importer) responses(o *object, r *room) {
	r.Page.Status = o.number("queueing_status_code", 200, 599)
	switch r.Page.Status {
	case 0:
		r.Page.Status = 200
	case 200, 202, 429:
	default:
		o.note("queueing_status_code", strconv.FormatInt(r.Page.Status, 10), "is not a status of Cloudflare's; imported as 200")
		r.Page.Status = 200
	}
	if o.flag("json_response_enabled") {
		r.Compat, r.CompatStatus = "cloudflare", int(r.Page.Status)
	}
	if language := o.text("default_template_language"); language != "" {
		switch tag, _, _ := strings.Cut(language, "-"); strings.ToLower(tag) {
		case "en":
		case "ko":
			r.Page.Languages = []string{"ko", "en"}
		default:
			o.note("default_template_language", language, "the built-in page is in English and Korean; translate it in a page of your own (page.template_file, docs/page.md)")
		}
	}
	if html := o.text("custom_page_html"); html != "" {
		o.note("custom_page_html", html, "a page is an html/template file here, not Mustache; rewrite it with the fields in docs/page.md and set page.template_file")
	}
}

func (i *importer) cookies(o *object) {
	raw := o.take("cookie_attributes")
	if raw == nil {
		return
	}
	c := element{o.field("cookie_attributes"), raw}.object(i)
	if c == nil {
		return
	}
	switch site := c.text("samesite"); site {
	case "", "auto", "lax", "strict", "none":
		i.setSameSite(c, site)
	default:
		c.note("samesite", site, "is not known; set cookies.same_site to lax, strict or none")
	}
	if c.text("secure") == "never" {
		c.note("secure", "never", "the gateway sets Secure on every TLS connection, and on no other; there is no setting")
	}
	c.rest()
}

// setSameSite sets cookies.same_site, which all rooms share.
func (i *importer) setSameSite(c *object, site string) {
	if site == "" || site == "auto" {
		site = "lax" // also the default of the gateway
	}
	switch {
	case i.sameSite == "":
		i.sameSite = c.at
		if site != "lax" {
			i.config.Cookies = &cookies{SameSite: site}
		}
	case site != i.currentSameSite():
		c.note("samesite", site, "cookies.same_site is one setting for all rooms, and "+i.currentSameSite()+" is imported from "+i.sameSite+"; run this room in a gateway of its own, or choose one value")
	}
}

func (i *importer) currentSameSite() string {
	if i.config.Cookies == nil {
		return "lax"
	}
	return i.config.Cookies.SameSite
}

// ignored notes fields that have no equivalent.
func (i *importer) ignored(o *object) {
	if text := o.text("description"); text != "" {
		o.note("description", text, "rooms have no description; keep it as a comment in the file")
	}
	if suffix := o.text("cookie_suffix"); suffix != "" {
		o.note("cookie_suffix", suffix, "the cookies are named wr_<room>_ticket and wr_<room>_pass, from the id of the room; change programs that read the cookie of Cloudflare")
	}
	for _, c := range o.texts("enabled_origin_commands") {
		if c != "revoke" {
			o.note("enabled_origin_commands", c, "only the command revoke exists; it is always enabled")
		}
	}
	mode, action := o.text("turnstile_mode"), o.text("turnstile_action")
	if mode != "" && mode != "off" {
		o.note("turnstile_mode", mode, "set guard.captcha.provider: turnstile with the site key and the secret of the widget; or guard.proof_of_work: auto, which needs no third party (docs/abuse.md)")
		if action == "infinite_queue" {
			o.note("turnstile_action", action, "there is no endless queue; a client without a solution gets no place")
		}
	}
}

// route is a host with a path.
type route struct{ host, path string }

// routes converts the hosts and paths of a room, and notes those that cannot be converted.
func (i *importer) routes(o *object, host string) []route {
	var all []route
	add := func(o *object, host, path string) {
		h, ok := importHost(host)
		if !ok {
			o.note("host", host, "is not a host name that a room can have; this route is left out")
			return
		}
		p, ok := importPath(path)
		if !ok {
			o.note("path", path, "cannot be a prefix in paths; this route is left out. Use a regular expression (docs/http.md)")
			return
		}
		all = append(all, route{h, p})
	}
	add(o, host, o.text("path"))
	for n, e := range o.list("additional_routes") {
		e.at = settings.Element(o.field("additional_routes"), n)
		r := e.object(i)
		if r == nil {
			return nil
		}
		host := r.text("host")
		if host == "" && i.err == nil {
			i.fail(r.field("host"), "is missing")
			return nil
		}
		add(r, host, r.text("path"))
		r.rest()
	}
	return all
}

var hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

func importHost(host string) (string, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	return host, len(host) <= 253 && hostPattern.MatchString(host)
}

func importPath(path string) (string, bool) {
	if path == "" {
		return "/", true
	}
	path, err := url.PathUnescape(path)
	if err != nil || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#*%\\;") || strings.ContainsFunc(path, unicode.IsControl) || strings.ToValidUTF8(path, "") != path {
		return "", false
	}
	if clean := pathpkg.Clean(path); path != "/" && clean != strings.TrimRight(path, "/") {
		return "", false
	}
	own := strings.ToLower(path)
	return path, own != "/.waiting-room" && !strings.HasPrefix(own, "/.waiting-room/")
}

// addRoom adds a room for each set of paths that hosts have in common: a room covers each of its paths on each of its hosts, which may be more
// than the routes.
func (i *importer) addRoom(o *object, r room, routes []route) {
	var hosts []string
	paths := map[string][]string{}
	for _, t := range routes {
		key := t.host + " " + strings.ToLower(strings.TrimRight(t.path, "/"))
		switch other, taken := i.owners[key]; {
		case taken && other != r.ID:
			o.note("path", t.host+t.path, "belongs to the room "+other+" too, because paths are compared ignoring case; this route is left out")
			continue
		case taken:
			continue
		}
		i.owners[key] = r.ID
		if len(paths[t.host]) == 0 {
			hosts = append(hosts, t.host)
		}
		paths[t.host] = append(paths[t.host], t.path)
	}
	if len(hosts) == 0 {
		o.note("host", "none", "no route of this room is left; the room is left out")
		return
	}
	first := r.ID
	for len(hosts) > 0 {
		part := r
		part.Paths = paths[hosts[0]]
		hosts = slices.DeleteFunc(hosts, func(host string) bool {
			same := slices.Equal(paths[host], part.Paths)
			if same {
				part.Hosts = append(part.Hosts, host)
			}
			return same
		})
		i.config.Rooms = append(i.config.Rooms, part)
		if len(hosts) > 0 {
			r.ID = i.roomID(first)
			o.note("additional_routes", strings.Join(hosts, " "), "have other paths than "+strings.Join(part.Hosts, " ")+", and a room covers each of its paths on each of its hosts; the room "+r.ID+
				" has its own queue and its own limits. Limit them together with origins[].budget")
		}
	}
}
