package config

import "testing"

func TestValidate_Check(t *testing.T) {
	const room = "rooms: [{id: sale}]\n"
	for _, row := range []struct {
		text string
		want []string
	}{
		{"check: {listen: '127.0.0.1:8081', trusted: [10.0.0.0/8]}\n" + room, nil}, // the proxy has the origins
		{"check: {listen: '127.0.0.1:8081'}\n" + room, []string{"check.trusted: is empty, so every check would be refused"}},
		{"check: {listen: '127.0.0.1:8081', trusted: [0.0.0.0/0]}\n" + room, []string{"check.trusted[0]: 0.0.0.0/0 contains every address"}},
		{"check: {listen: nowhere, trusted: [10.0.0.0/8]}\n" + room, []string{`check.listen: "nowhere" is not a listen address`}},
		{"check: {trusted: [10.0.0.0/8]}\norigins: [{id: shop, servers: ['http://h']}]\n" + room, []string{"check.trusted: has no effect without"}},
		{"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: apache}\n" + room, []string{"check.dialect:"}},
		{"check: {listen: ':1', trusted: [10.0.0.0/8], deny: 503}\n" + room, []string{"check.deny: 503 does not reach visitors through nginx; use 401 or 403"}},
		{"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: envoy, deny: 503}\n" + room, []string{"check.deny: 503 does not reach visitors through envoy; use 302, 303, 307 or 400 to 499"}},
		{"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: traefik, deny: 304}\n" + room, []string{"check.deny: 304 does not reach visitors through traefik"}},
		{"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: traefik, deny: 503}\n" + room, nil},
		{room, []string{"origins: there is no site to protect"}},
	} {
		_, problems := loadText(t, row.text)
		wantProblems(t, problems, row.want...)
	}
}

func TestWarnings_OfChecks(t *testing.T) {
	for text, want := range map[string]string{
		"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: caddy}\nrooms: [{id: sale}]":                                                     "rooms[0].session.renew: caddy carries no cookie",
		"check: {listen: ':1', trusted: [10.0.0.0/8], dialect: caddy}\nrooms: [{id: sale, session: {renew: server}}]":                           "",
		"check: {listen: ':1', trusted: [10.0.0.0/8]}\nrooms: [{id: sale, admission: {strategy: adaptive, min_rate: 1, max_rate: 9, rate: 5}}]": "rooms[0].admission.strategy: the gateway forwards no request",
	} {
		cfg, problems := loadText(t, text+"\n")
		wantProblems(t, problems)
		var lines []string
		for _, w := range cfg.Warnings() {
			lines = append(lines, w.String())
		}
		if want == "" {
			wantProblems(t, lines)
		} else {
			wantProblems(t, lines, want)
		}
	}
}
