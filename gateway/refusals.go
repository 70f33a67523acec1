package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/anteroom/anteroom/admission"
)

// refusals are the reasons of joins_refused_total.
var refusals = []string{
	"closed", "draining", "full", "account", "store", admission.ReasonAddress, admission.ReasonNetwork,
	"proof_missing", "proof_invalid", "captcha_missing", "captcha_failed", "captcha_unavailable",
}

func refusalReason(why admission.Refusal, s *admission.Standing) string {
	switch why {
	case admission.TooMany:
		if s.Reason == admission.ReasonNetwork {
			return admission.ReasonNetwork
		}
		return admission.ReasonAddress
	case admission.Closed:
		return "closed"
	case admission.Draining:
		return "draining"
	case admission.Full:
		return "full"
	case admission.Spent:
		return "account"
	}
	return "store"
}

func (v *visit) countRefusedJoin(reason string) { v.room.metrics.refused[reason].Inc() }

// counted returns the value of a counter.
func counted(c prometheus.Counter) int64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0
	}
	return int64(m.GetCounter().GetValue())
}
