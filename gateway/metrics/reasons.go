package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/reason"
)

// reasons collects why the rooms admit, or do not.
type reasons struct {
	desc *prometheus.Desc
	each func(func(*admission.Room))
	why  func(*admission.Room) reason.Reason
}

// NewReasons returns the metric of the reasons of the rooms that each yields.
func NewReasons(each func(func(*admission.Room)), why func(*admission.Room) reason.Reason) prometheus.Collector {
	return &reasons{prometheus.NewDesc(namespace+"_room_reason", "1 for the reason why the room admits visitors, or does not.", []string{"room", "reason"}, nil), each, why}
}

func (c *reasons) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

func (c *reasons) Collect(out chan<- prometheus.Metric) {
	c.each(func(room *admission.Room) {
		now := c.why(room).Code
		for _, code := range reason.Codes {
			on := 0.0
			if code == now {
				on = 1
			}
			out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, on, room.ID(), string(code))
		}
	})
}
