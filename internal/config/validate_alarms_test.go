package config

import (
	"strings"
	"testing"
)

func TestAlarms_NameEveryProblem(t *testing.T) {
	const head = "origins: [{id: shop, servers: [http://127.0.0.1:9000]}]\nrooms: [{id: sale, alarms: ["
	for alarm, want := range map[string]string{
		`{name: errors, when: origin_errors, above: 0.05, for: 10s, do: pause, resume_after: 5m}`: "",
		`{name: slow, when: origin_p95, above: 0.8, do: rate, rate: 20}`:                          "",
		`{name: crowd, when: waiting, above: 50000, do: notify}`:                                  "",
		`{name: "A b", when: waiting, do: notify}`:                                                "rooms[0].alarms[0].name",
		`{when: waiting, do: notify}`:                                                             "rooms[0].alarms[0].name",
		`{name: a, do: notify}`:                                                                   "rooms[0].alarms[0].when",
		`{name: a, when: load, do: notify}`:                                                       "rooms[0].alarms[0].when",
		`{name: a, when: waiting}`:                                                                "rooms[0].alarms[0].do",
		`{name: a, when: origin_errors, above: 5, do: pause}`:                                     "rooms[0].alarms[0].above",
		`{name: a, when: waiting, do: rate}`:                                                      "rooms[0].alarms[0].rate",
		`{name: a, when: waiting, do: pause, rate: 5}`:                                            "rooms[0].alarms[0].rate",
		`{name: a, when: waiting, do: notify, resume_after: 5m}`:                                  "rooms[0].alarms[0].resume_after",
		`{name: a, when: waiting, do: pause, for: 100ms}`:                                         "rooms[0].alarms[0].for",
		`{name: a, when: waiting, do: pause}, {name: a, when: inside, do: pause}`:                 "rooms[0].alarms[1].name",
	} {
		_, problems := loadText(t, head+alarm+"]}]")
		switch all := strings.Join(problems, "\n"); {
		case want == "" && all != "":
			t.Errorf("%s: %s", alarm, all)
		case want != "" && !strings.Contains(all, want+":"):
			t.Errorf("%s: %q, want a problem of %s", alarm, all, want)
		}
	}
}
