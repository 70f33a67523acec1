package api

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Ceilings are the most that a token may ask for; zero values set no bound.
type Ceilings struct {
	Weight   float64     // of a group
	Priority store.Level // of a group
	Pending  int64       // unfinished jobs of a tenant, checked when jobs are added
	Groups   int64       // groups of a tenant, checked when a group is created
}

// levelsFromHigh orders the levels for Ceilings.Priority.
var levelsFromHigh = []store.Level{store.High, store.Normal, store.Low}

// bound applies the token's ceilings to a new group and returns the faults of fields above them. A field left out
// gets at most the ceiling. What a tenant's token sets has effect within the tenant only.
func (i identity) bound(g *store.GroupSpec, faults []ophttp.Fault) []ophttp.Fault {
	g.Own, g.MaxGroups = !i.admin, i.most.Groups
	if g.Weight == 0 && i.most.Weight > 0 {
		g.Weight = min(1, i.most.Weight)
	}
	if g.Level == "" && i.most.Priority == store.Low {
		g.Level = store.Low
	}
	return append(faults, i.aboveCeiling(g.Weight, g.Level)...)
}

// boundPatch applies them to a change of a group.
func (i identity) boundPatch(p *store.Patch) []ophttp.Fault {
	p.Own = !i.admin
	var weight float64
	var level store.Level
	if p.Weight != nil {
		weight = *p.Weight
	}
	if p.Level != nil {
		level = *p.Level
	}
	return i.aboveCeiling(weight, level)
}

// aboveCeiling returns the faults of values above the ceilings; 0 and "" were not given.
func (i identity) aboveCeiling(weight float64, level store.Level) (faults []ophttp.Fault) {
	if most := i.most.Weight; most > 0 && weight > most {
		faults = append(faults, ophttp.Fault{
			Path: "weight", Value: ophttp.Marshal(weight), Problem: "is above what the token may ask for",
			Allowed: "at most " + strconv.FormatFloat(most, 'f', -1, 64) + i.ceiling("max_weight"),
		})
	}
	if most := i.most.Priority; most != "" && level != "" && slices.Index(levelsFromHigh, level) < slices.Index(levelsFromHigh, most) {
		faults = append(faults, ophttp.Fault{
			Path: "priority", Value: ophttp.Marshal(level), Problem: "is above what the token may ask for",
			Allowed: "at most " + string(most) + i.ceiling("max_priority"),
		})
	}
	return faults
}

func (i identity) ceiling(field string) string {
	return fmt.Sprintf(" (api_tokens[].%s of the token %q)", field, i.name)
}
