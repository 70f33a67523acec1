package config

import (
	"regexp"

	"github.com/anteroom/anteroom/internal/settings"
)

// alarmName is the form of rooms[].alarms[].name, which is in the audit log and in a field of the store.
var alarmName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// alarms checks the alarms of a room.
func (c roomChecker) alarms(at string) {
	names := map[string]bool{}
	for i := range c.room.Alarms {
		a, at := &c.room.Alarms[i], settings.Element(at, i)
		switch {
		case !alarmName.MatchString(a.Name):
			c.Add(at+".name", "%q is not a name; use 1 to 40 lower-case letters, digits and dashes", settings.Clip(a.Name))
		case names[a.Name]:
			c.Add(at+".name", "%q is the name of another alarm of this room; give each alarm its own", a.Name)
		}
		names[a.Name] = true
		switch {
		case a.When == "":
			c.Add(at+".when", "is missing; use origin_errors, origin_p95, waiting or inside")
		case a.When == "origin_errors" && a.Above >= 1:
			c.Add(at+".above", "%g is never exceeded: origin_errors is a share from 0 to 1; 5 %% is 0.05", a.Above)
		}
		switch {
		case a.Do == "":
			c.Add(at+".do", "is missing; use pause, rate or notify")
		case a.Do == "rate" && a.Rate == nil:
			c.Add(at+".rate", "is missing with do: rate; give the rate that the alarm sets")
		case a.Do != "rate" && a.Rate != nil:
			c.Add(at+".rate", "has no effect with do: %s; remove it, or use do: rate", a.Do)
		}
		if a.Do == "notify" && a.ResumeAfter > 0 {
			c.Add(at+".resume_after", "has no effect with do: notify; remove it")
		}
	}
}
