package chart

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// pod is a pod of a Deployment, StatefulSet or test of the chart.
type pod struct {
	name   string
	labels map[string]string
	spec   core.PodSpec
	claims []core.PersistentVolumeClaim // of a StatefulSet
}

func pods(r *release) []pod {
	var all []pod
	for _, d := range of[*apps.Deployment](r) {
		all = append(all, pod{d.Name, d.Spec.Template.Labels, d.Spec.Template.Spec, nil})
	}
	for _, s := range of[*apps.StatefulSet](r) {
		all = append(all, pod{s.Name, s.Spec.Template.Labels, s.Spec.Template.Spec, s.Spec.VolumeClaimTemplates})
	}
	for _, p := range of[*core.Pod](r) {
		all = append(all, pod{p.Name, p.Labels, p.Spec, nil})
	}
	return all
}

// forPods runs a check for each pod of each example.
func forPods(t *testing.T, check func(t *testing.T, p pod)) {
	t.Helper()
	forExamples(t, func(t *testing.T, _ example, r *release) {
		all := pods(r)
		if len(all) < 2 {
			t.Fatalf("%d pods; want at least a program and its check", len(all))
		}
		for _, p := range all {
			t.Run(p.name, func(t *testing.T) { check(t, p) })
		}
	})
}

// TestPodsMayDoNothing checks the restricted Pod Security Standard, a read-only root file system, and no account token.
func TestPodsMayDoNothing(t *testing.T) {
	forPods(t, func(t *testing.T, p pod) {
		s := p.spec.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.RunAsGroup == nil || *s.RunAsGroup == 0 {
			t.Errorf("the pod may be root: %+v", s)
		}
		if s == nil || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Error("the pod has no seccomp profile RuntimeDefault")
		}
		if p.spec.AutomountServiceAccountToken == nil || *p.spec.AutomountServiceAccountToken {
			t.Error("a token of the account is mounted")
		}
		if p.spec.EnableServiceLinks == nil || *p.spec.EnableServiceLinks {
			t.Error("variables of Services are put into the environment")
		}
		if p.spec.HostNetwork || p.spec.HostPID || p.spec.HostIPC {
			t.Error("the pod shares a namespace of the node")
		}
		for _, v := range p.spec.Volumes {
			if v.ConfigMap == nil && v.Projected == nil {
				t.Errorf("the volume %s is of a kind that was not expected", v.Name)
			}
		}
		for _, c := range p.spec.Containers {
			s := c.SecurityContext
			if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
				t.Errorf("%s may escalate its privileges", c.Name)
			}
			if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s may write to its root file system", c.Name)
			}
			if s == nil || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s keeps capabilities", c.Name)
			}
			if s != nil && (s.RunAsUser != nil || s.RunAsNonRoot != nil || s.Privileged != nil) {
				t.Errorf("%s overrides the pod's security context", c.Name)
			}
		}
	})
}

// image matches a name with a tag or a digest.
var image = regexp.MustCompile(`^[a-z0-9.-]+(/[a-z0-9._-]+)+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$`)

func TestImages(t *testing.T) {
	forPods(t, func(t *testing.T, p pod) {
		for _, c := range p.spec.Containers {
			if !image.MatchString(c.Image) {
				t.Errorf("%q is no image with a tag or a digest", c.Image)
			}
		}
	})
	digest := "sha256:" + strings.Repeat("0a", 32)
	r := render(t, override(t, "trial", `{image: {digest: "`+digest+`"}, valkey: {image: {digest: "`+digest+`"}}}`))
	for _, p := range pods(r) {
		if c := p.spec.Containers[0]; !image.MatchString(c.Image) || !strings.HasSuffix(c.Image, "@"+digest) {
			t.Errorf("%s: %q; want it by its digest", p.name, c.Image)
		}
	}
}

// TestPodsHaveResources checks requests, a memory limit, and GOMEMLIMIT below that limit.
func TestPodsHaveResources(t *testing.T) {
	forPods(t, func(t *testing.T, p pod) {
		for _, c := range p.spec.Containers {
			memory, limited := c.Resources.Limits[core.ResourceMemory]
			if !limited {
				t.Fatalf("%s has no limit of memory", c.Name)
			}
			for _, name := range []core.ResourceName{core.ResourceCPU, core.ResourceMemory} {
				request, ok := c.Resources.Requests[name]
				if !ok {
					t.Errorf("%s requests no %s", c.Name, name)
				}
				if limit, ok := c.Resources.Limits[name]; ok && request.Cmp(limit) > 0 {
					t.Errorf("%s requests %s of %s, above its limit %s", c.Name, request.String(), name, limit.String())
				}
			}
			if c.Name == "valkey" {
				continue
			}
			limit, err := strconv.ParseInt(environment(c)["GOMEMLIMIT"], 10, 64)
			if err != nil {
				t.Errorf("GOMEMLIMIT: %v", err)
			}
			if share := float64(limit) / float64(memory.Value()); share < 0.85 || share > 0.95 {
				t.Errorf("GOMEMLIMIT is %.2f of the limit %s", share, memory.String())
			}
		}
	})
}

// environment returns the variables that have a literal value.
func environment(c core.Container) map[string]string {
	all := make(map[string]string)
	for _, e := range c.Env {
		all[e.Name] = e.Value
	}
	return all
}

// TestProbes checks that each container that serves has a liveness and a readiness probe on one of its ports.
func TestProbes(t *testing.T) {
	paths := map[string]string{"liveness": "/healthz", "readiness": "/readyz"}
	forPods(t, func(t *testing.T, p pod) {
		for _, c := range p.spec.Containers {
			if c.Name == "check-config" {
				continue // runs to its end
			}
			ports := make(map[string]bool)
			for _, port := range c.Ports {
				ports[port.Name] = true
			}
			for kind, probe := range map[string]*core.Probe{"liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
				switch {
				case probe == nil:
					t.Errorf("%s has no %s probe", c.Name, kind)
				case probe.HTTPGet != nil:
					if !ports[probe.HTTPGet.Port.StrVal] {
						t.Errorf("%s: the %s probe uses port %s, which the container does not have", c.Name, kind, probe.HTTPGet.Port.String())
					}
					if probe.HTTPGet.Path != paths[kind] {
						t.Errorf("%s: the %s probe requests %s; want %s", c.Name, kind, probe.HTTPGet.Path, paths[kind])
					}
				case probe.TCPSocket != nil:
					if !ports[probe.TCPSocket.Port.StrVal] {
						t.Errorf("%s: the %s probe uses port %s, which the container does not have", c.Name, kind, probe.TCPSocket.Port.String())
					}
				case probe.Exec == nil || c.Name != "valkey":
					t.Errorf("%s: the %s probe does nothing, or needs a shell", c.Name, kind)
				}
			}
		}
	})
}

// TestLeaving checks that a pod is not killed before preStop and shutdown are over, and that rolling updates never run fewer pods than wanted.
func TestLeaving(t *testing.T) {
	forExamples(t, func(t *testing.T, e example, r *release) {
		for _, d := range of[*apps.Deployment](r) {
			c := d.Spec.Template.Spec.Containers[0]
			sleep := int64(0)
			if c.Lifecycle != nil {
				if c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
					t.Fatalf("%s: preStop is not a sleep, and the image has no command to run", d.Name)
				}
				sleep = c.Lifecycle.PreStop.Sleep.Seconds
			}
			own := ownEnd(t, r, c.Name)
			grace := d.Spec.Template.Spec.TerminationGracePeriodSeconds
			if grace == nil || *grace < sleep+own+5 {
				t.Errorf("%s: terminationGracePeriodSeconds is %v; preStop takes %d and the program up to %d", d.Name, grace, sleep, own)
			}
			rolling := d.Spec.Strategy.RollingUpdate
			if d.Spec.Strategy.Type != apps.RollingUpdateDeploymentStrategyType || rolling == nil || rolling.MaxUnavailable == nil || *rolling.MaxUnavailable != intstr.FromInt32(0) {
				t.Errorf("%s: a rolling update may leave fewer pods than wanted", d.Name)
			}
			if rolling != nil && rolling.MaxSurge != nil && rolling.MaxSurge.IntVal == 0 && rolling.MaxSurge.StrVal == "" {
				t.Errorf("%s: a rolling update could never begin", d.Name)
			}
		}
		if e.name == "everything" { // which sets preStopSleepSeconds: 0 for the gateway
			for _, d := range of[*apps.Deployment](r) {
				if c := d.Spec.Template.Spec.Containers[0]; c.Name == "gateway" && c.Lifecycle != nil {
					t.Error("preStopSleepSeconds 0 has a preStop")
				}
			}
		}
	})
}

// TestNames checks names and labels against the API server's rules, also for long release names.
func TestNames(t *testing.T) {
	for _, name := range []string{"a", releaseName, "anteroom", "anteroom-eu", strings.Repeat("long-", 10) + "end"} {
		for _, e := range examples(t) {
			files, err := renderAs(t, name, e.values)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[string]bool)
			for _, object := range decode(t, files).objects {
				o := object.(meta.Object)
				kind := object.GetObjectKind().GroupVersionKind().Kind
				if seen[kind+" "+o.GetName()] {
					t.Errorf("%s, release %s: there are two of %s %s", e.name, name, kind, o.GetName())
				}
				seen[kind+" "+o.GetName()] = true
				for _, problem := range validation.IsDNS1035Label(o.GetName()) {
					t.Errorf("%s, release %s: %s %q: %s", e.name, name, kind, o.GetName(), problem)
				}
				if limit := 63 - len("-0123456789"); kind == "StatefulSet" && len(o.GetName()) > limit {
					t.Errorf("%s, release %s: the label that the controller makes of %q has over 63 characters", e.name, name, o.GetName())
				}
				checkLabels(t, o.GetLabels())
			}
			for _, p := range pods(decode(t, files)) {
				checkLabels(t, p.labels)
			}
		}
	}
}

func checkLabels(t *testing.T, labels map[string]string) {
	t.Helper()
	if len(labels) == 0 {
		t.Error("an object has no labels")
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, problem := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(labels[key])...) {
			t.Errorf("label %s=%s: %s", key, labels[key], problem)
		}
	}
}

// TestTrialStoreFits checks the bundled Valkey: maxmemory below the memory limit, and a volume of three times as much.
func TestTrialStoreFits(t *testing.T) {
	forExamples(t, func(t *testing.T, _ example, r *release) {
		for _, s := range of[*apps.StatefulSet](r) {
			if *s.Spec.Replicas != 1 {
				t.Errorf("%d replicas of the bundled Valkey; want 1", *s.Spec.Replicas)
			}
			limit := s.Spec.Template.Spec.Containers[0].Resources.Limits[core.ResourceMemory]
			size := s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[core.ResourceStorage]
			most := valkeyMemory(t, r)
			if most.Cmp(limit) >= 0 || size.Value() < 3*most.Value() {
				t.Errorf("maxmemory %s, memory %s, volume %s: want less than the memory, and a volume of three times as much", most.String(), limit.String(), size.String())
			}
		}
	})
}

func valkeyMemory(t *testing.T, r *release) resource.Quantity {
	t.Helper()
	for line := range strings.Lines(configMap(t, r, "valkey.conf")) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory "); ok {
			return resource.MustParse(text)
		}
	}
	t.Fatal("valkey.conf has no maxmemory")
	return resource.Quantity{}
}
