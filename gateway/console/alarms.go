package console

import (
	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/alarm"
)

// alarmView is an alarm as this gateway knows it.
type alarmView struct {
	Name        string      `json:"name"`
	When        alarm.When  `json:"when"`
	Above       float64     `json:"above"`
	For         duration    `json:"for"`
	Do          alarm.Do    `json:"do"`
	Rate        *thousandth `json:"rate,omitempty"`
	ResumeAfter *duration   `json:"resume_after,omitempty"`
	State       string      `json:"state"`
	Value       *float64    `json:"value,omitempty"`
	Since       *timestamp  `json:"since,omitempty"`
	Fired       *timestamp  `json:"fired_at,omitempty"`
}

func viewAlarms(queue *admission.Room) (views []alarmView) {
	for _, a := range queue.Alarms() {
		v := alarmView{
			Name: a.Spec.Name, When: a.Spec.When, Above: a.Spec.Above, For: duration(a.Spec.For), Do: a.Spec.Do,
			State: alarm.State(&a.Watch, &a.Record), Since: optional(a.Watch.Since), Fired: optional(a.Record.Fired),
		}
		if a.Spec.Do == alarm.Rate {
			v.Rate = new(thousandth(a.Spec.Rate))
		}
		if a.Spec.ResumeAfter > 0 {
			v.ResumeAfter = new(duration(a.Spec.ResumeAfter))
		}
		if a.Watch.Known && finite(a.Watch.Value) {
			v.Value = new(tidy(a.Watch.Value))
		}
		views = append(views, v)
	}
	return views
}
