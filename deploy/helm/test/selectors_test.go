package chart

import (
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// chosen returns the pods that a selector finds.
func chosen(t *testing.T, r *release, selector *meta.LabelSelector) []pod {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	if s.Empty() {
		t.Error("a selector chooses everything")
	}
	var all []pod
	for _, p := range pods(r) {
		if s.Matches(labels.Set(p.labels)) {
			all = append(all, p)
		}
	}
	return all
}

// one returns the only pod that a selector finds.
func one(t *testing.T, r *release, what string, selector *meta.LabelSelector) pod {
	t.Helper()
	all := chosen(t, r, selector)
	if len(all) != 1 {
		t.Fatalf("%s chooses %d kinds of pods; want one: %v", what, len(all), selector)
	}
	return all[0]
}

func hasPort(p pod, name string, number int32) bool {
	for _, c := range p.spec.Containers {
		for _, port := range c.Ports {
			if name != "" && port.Name == name || port.ContainerPort == number {
				return true
			}
		}
	}
	return false
}

// TestSelectors checks that every selector finds its own pods and no others.
func TestSelectors(t *testing.T) {
	forExamples(t, func(t *testing.T, e example, r *release) {
		for _, d := range of[*apps.Deployment](r) {
			if p := one(t, r, d.Name, d.Spec.Selector); p.name != d.Name {
				t.Errorf("%s chooses the pods of %s", d.Name, p.name)
			}
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				if p := one(t, r, d.Name, c.LabelSelector); p.name != d.Name {
					t.Errorf("%s is spread with the pods of %s", d.Name, p.name)
				}
			}
		}
		for _, s := range of[*apps.StatefulSet](r) {
			if p := one(t, r, s.Name, s.Spec.Selector); p.name != s.Name {
				t.Errorf("%s chooses the pods of %s", s.Name, p.name)
			}
			if !slices.ContainsFunc(of[*core.Service](r), func(v *core.Service) bool { return v.Name == s.Spec.ServiceName }) {
				t.Errorf("%s: there is no Service %s", s.Name, s.Spec.ServiceName)
			}
		}
		for _, s := range of[*core.Service](r) {
			p := one(t, r, "Service "+s.Name, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
			for _, port := range s.Spec.Ports {
				if !hasPort(p, port.TargetPort.StrVal, 0) {
					t.Errorf("Service %s: %s has no port %s", s.Name, p.name, port.TargetPort.String())
				}
			}
			visitors := s.Name == p.name && strings.HasSuffix(s.Name, "-gateway")
			if !visitors && s.Spec.Type != core.ServiceTypeClusterIP {
				t.Errorf("Service %s is of type %s: only visitors come from outside", s.Name, s.Spec.Type)
			}
			if visitors && slices.ContainsFunc(s.Spec.Ports, func(port core.ServicePort) bool { return port.TargetPort.StrVal != "http" }) {
				t.Errorf("Service %s exposes more than the visitors' port", s.Name)
			}
		}
		for _, i := range of[*networking.Ingress](r) {
			for _, rule := range i.Spec.Rules {
				for _, path := range rule.HTTP.Paths {
					checkBackend(t, r, path.Backend.Service)
				}
			}
		}
		for _, m := range of[*monitoring.ServiceMonitor](r) {
			checkMonitor(t, r, m)
		}
	})
}

func checkBackend(t *testing.T, r *release, backend *networking.IngressServiceBackend) {
	t.Helper()
	for _, s := range of[*core.Service](r) {
		for _, port := range s.Spec.Ports {
			if s.Name == backend.Name && port.Name == backend.Port.Name && port.TargetPort.StrVal == "http" {
				return
			}
		}
	}
	t.Errorf("the Ingress leads to %s port %s, which does not exist", backend.Name, backend.Port.Name)
}

// checkMonitor checks that each pod is scraped once: one Service has the port.
func checkMonitor(t *testing.T, r *release, m *monitoring.ServiceMonitor) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range of[*core.Service](r) {
		if !selector.Matches(labels.Set(s.Labels)) {
			continue
		}
		for _, port := range s.Spec.Ports {
			if port.Name == m.Spec.Endpoints[0].Port {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("ServiceMonitor %s finds %d ports; want one", m.Name, found)
	}
}

// TestScaling checks autoscalers and disruption budgets against their Deployment.
func TestScaling(t *testing.T) {
	forExamples(t, func(t *testing.T, e example, r *release) {
		least := make(map[string]int32)
		for _, d := range of[*apps.Deployment](r) {
			if d.Spec.Replicas != nil {
				least[d.Name] = *d.Spec.Replicas
			}
		}
		for _, h := range of[*autoscaling.HorizontalPodAutoscaler](r) {
			if _, fixed := least[h.Spec.ScaleTargetRef.Name]; fixed {
				t.Errorf("%s has an autoscaler and replicas, which each upgrade would reset", h.Name)
			}
			if h.Spec.ScaleTargetRef.Kind != "Deployment" || h.Spec.ScaleTargetRef.APIVersion != "apps/v1" {
				t.Errorf("%s scales %v", h.Name, h.Spec.ScaleTargetRef)
			}
			if !slices.ContainsFunc(of[*apps.Deployment](r), func(d *apps.Deployment) bool { return d.Name == h.Spec.ScaleTargetRef.Name }) {
				t.Errorf("%s scales %s, which does not exist", h.Name, h.Spec.ScaleTargetRef.Name)
			}
			if *h.Spec.MinReplicas > h.Spec.MaxReplicas {
				t.Errorf("%s scales from %d to %d", h.Name, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
			}
			least[h.Spec.ScaleTargetRef.Name] = *h.Spec.MinReplicas
			want := 1
			if e.name == "cluster" || e.name == "everything" { // both set requestsPerSecond
				want = 2
			}
			if strings.HasSuffix(h.Name, "-gateway") && len(h.Spec.Metrics) != want {
				t.Errorf("%s has %d metrics; want %d", h.Name, len(h.Spec.Metrics), want)
			}
		}
		budgets := make(map[string]bool)
		for _, b := range of[*policy.PodDisruptionBudget](r) {
			p := one(t, r, b.Name, b.Spec.Selector)
			budgets[p.name] = true
			if b.Spec.MaxUnavailable == nil || b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable.String() == "0" {
				t.Errorf("%s would keep nodes from being drained: %+v", b.Name, b.Spec)
			}
		}
		for name, replicas := range least {
			if budgets[name] != (replicas > 1) {
				t.Errorf("%s has at least %d pods; a disruption budget: %t", name, replicas, budgets[name])
			}
		}
	})
}

// TestNetworkPolicies checks that each pod that serves has a policy, that it opens only the pod's ports to named peers, and that
// name servers and store stay reachable.
func TestNetworkPolicies(t *testing.T) {
	forExamples(t, func(t *testing.T, e example, r *release) {
		all := of[*networking.NetworkPolicy](r)
		wanted, _ := e.values["networkPolicy"].(map[string]any)
		if on := wanted["enabled"] == true; on != (len(all) > 0) {
			t.Fatalf("networkPolicy.enabled is %t, and there are %d", on, len(all))
		}
		covered := make(map[string]bool)
		for _, n := range all {
			p := one(t, r, n.Name, &n.Spec.PodSelector)
			covered[p.name] = true
			if len(n.Spec.PolicyTypes) != 2 {
				t.Errorf("%s restricts %v only", n.Name, n.Spec.PolicyTypes)
			}
			for _, rule := range n.Spec.Ingress {
				if len(rule.From) == 0 || len(rule.Ports) == 0 {
					t.Errorf("%s admits everybody: %+v", n.Name, rule)
				}
				for _, port := range rule.Ports {
					if !hasPort(p, "", port.Port.IntVal) {
						t.Errorf("%s opens port %s, which %s does not have", n.Name, port.Port, p.name)
					}
				}
			}
			if strings.HasSuffix(n.Name, "-valkey") {
				if len(n.Spec.Egress) > 0 {
					t.Errorf("%s allows egress from the store", n.Name)
				}
				for _, user := range pods(r) {
					admitted := chosen(t, r, n.Spec.Ingress[0].From[0].PodSelector)
					if !slices.ContainsFunc(admitted, func(p pod) bool { return p.name == user.name }) {
						t.Errorf("%s cannot reach the store", user.name)
					}
				}
				continue
			}
			if !opens(n, 53) || !opens(n, 6379) {
				t.Errorf("%s closes name servers or the store: %+v", n.Name, n.Spec.Egress)
			}
		}
		for _, p := range pods(r) {
			if len(all) > 0 && !covered[p.name] && !strings.HasSuffix(p.name, "-check") {
				t.Errorf("%s has no policy", p.name)
			}
		}
	})
}

func opens(n *networking.NetworkPolicy, port int32) bool {
	for _, rule := range n.Spec.Egress {
		for _, p := range rule.Ports {
			if p.Port.IntVal == port && len(rule.To) > 0 {
				return true
			}
		}
	}
	return false
}

// TestBulkworkersKeepOffGateways checks that bulk workers prefer nodes without gateways.
func TestBulkworkersKeepOffGateways(t *testing.T) {
	forExamples(t, func(t *testing.T, _ example, r *release) {
		deployments := make(map[string]*apps.Deployment)
		for _, d := range of[*apps.Deployment](r) {
			deployments[d.Spec.Template.Spec.Containers[0].Name] = d
		}
		worker, gateway := deployments["bulkworker"], deployments["gateway"]
		if worker == nil {
			return
		}
		affinity := worker.Spec.Template.Spec.Affinity
		if (affinity != nil) != (gateway != nil) {
			t.Fatalf("affinity %v, gateway %v", affinity, gateway)
		}
		if gateway == nil {
			return
		}
		term := affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
		if p := one(t, r, "anti-affinity", term.LabelSelector); p.name != gateway.Name {
			t.Errorf("bulk workers keep off %s", p.name)
		}
	})
}
