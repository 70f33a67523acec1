package chart

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// TestReferences checks that the chart, or a command in the values file, makes every Secret, ConfigMap, key and account that a
// pod names. Every mount has a volume and every volume a mount.
func TestReferences(t *testing.T) {
	forExamples(t, func(t *testing.T, e example, r *release) {
		made := make(map[string]bool)
		for _, m := range of[*core.ConfigMap](r) {
			for key := range m.Data {
				made["ConfigMap "+m.Name+" "+key] = true
			}
			made["ConfigMap "+m.Name] = true
		}
		for _, s := range of[*core.Secret](r) {
			for key := range s.Data {
				made["Secret "+s.Name+" "+key] = true
			}
		}
		for _, a := range of[*core.ServiceAccount](r) {
			made["ServiceAccount "+a.Name] = true
		}
		for _, secret := range told(e.text) {
			made["Secret "+secret] = true
		}
		used := make(map[string]bool)
		for _, p := range pods(r) {
			for _, reference := range references(t, p) {
				used[reference] = true
				if !made[reference] {
					t.Errorf("%s needs %s, which neither the chart nor a command makes", p.name, reference)
				}
			}
			checkMounts(t, p)
		}
		for _, i := range of[*networking.Ingress](r) {
			for _, tls := range i.Spec.TLS {
				used["Secret "+tls.SecretName+" tls.crt"], used["Secret "+tls.SecretName+" tls.key"] = true, true
			}
		}
		for _, s := range of[*core.Secret](r) {
			for key := range s.Data {
				if !used["Secret "+s.Name+" "+key] {
					t.Errorf("Secret %s has %s, which no pod reads", s.Name, key)
				}
			}
		}
		for _, secret := range told(e.text) {
			if !used["Secret "+secret] {
				t.Errorf("a command in the values file makes Secret %s, which no pod reads", secret)
			}
		}
	})
}

var (
	createSecret = regexp.MustCompile(`create secret (generic|tls|docker-registry)\s+(\S+)(.*)`)
	secretPart   = regexp.MustCompile(`--from-(?:literal|file)=([A-Za-z0-9._-]+)`)
)

// told returns the Secrets that the commands in a values file create, as NAME KEY.
func told(text string) []string {
	var all []string
	for _, command := range createSecret.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n#", ""), -1) {
		switch kind, name := command[1], command[2]; kind {
		case "tls":
			all = append(all, name+" tls.crt", name+" tls.key")
		case "docker-registry":
			all = append(all, name)
		default:
			for _, part := range secretPart.FindAllStringSubmatch(command[3], -1) {
				all = append(all, name+" "+part[1])
			}
		}
	}
	return all
}

func references(t *testing.T, p pod) []string {
	t.Helper()
	var all []string
	for _, s := range p.spec.ImagePullSecrets {
		all = append(all, "Secret "+s.Name)
	}
	if p.spec.ServiceAccountName != "" {
		all = append(all, "ServiceAccount "+p.spec.ServiceAccountName)
	}
	for _, v := range p.spec.Volumes {
		if v.ConfigMap != nil {
			all = append(all, "ConfigMap "+v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		seen := make(map[string]bool)
		for _, source := range v.Projected.Sources {
			for _, item := range source.Secret.Items {
				all = append(all, "Secret "+source.Secret.Name+" "+item.Key)
				if seen[item.Path] {
					t.Errorf("%s: two secrets are mounted at %s", p.name, item.Path)
				}
				seen[item.Path] = true
				if path.Clean(item.Path) != item.Path || path.IsAbs(item.Path) || strings.HasPrefix(item.Path, "..") {
					t.Errorf("%s: %q is no path of a mounted file", p.name, item.Path)
				}
			}
		}
		// The group fsGroup may read secrets; others may not.
		if mode := v.Projected.DefaultMode; mode == nil || *mode != 0o440 {
			t.Errorf("%s: secrets are mounted with mode %o", p.name, *mode)
		}
	}
	for _, c := range p.spec.Containers {
		names := make(map[string]bool)
		for _, e := range c.Env {
			if names[e.Name] {
				t.Errorf("%s has the variable %s twice", p.name, e.Name)
			}
			if e.ValueFrom != nil {
				all = append(all, fmt.Sprintf("Secret %s %s", e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key))
			}
			for _, used := range variable.FindAllStringSubmatch(e.Value, -1) {
				if !names[used[1]] {
					t.Errorf("%s: %s uses $(%s), which is not defined before it", p.name, e.Name, used[1])
				}
			}
			names[e.Name] = true
		}
	}
	return all
}

// variable matches $(NAME), which the kubelet expands in the variables after NAME.
var variable = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func checkMounts(t *testing.T, p pod) {
	t.Helper()
	var volumes, mounted []string
	for _, v := range p.spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, c := range p.claims {
		volumes = append(volumes, c.Name)
	}
	for _, c := range p.spec.Containers {
		for _, m := range c.VolumeMounts {
			mounted = append(mounted, m.Name)
			if m.SubPath != "" {
				t.Errorf("%s: %s is mounted by subPath, which the kubelet does not update", p.name, m.MountPath)
			}
			if !m.ReadOnly && m.Name != "data" {
				t.Errorf("%s: %s can be written to", p.name, m.MountPath)
			}
		}
	}
	slices.Sort(volumes)
	slices.Sort(mounted)
	if !slices.Equal(volumes, mounted) {
		t.Errorf("%s: volumes %v, mounted %v", p.name, volumes, mounted)
	}
}

// configMap returns the file of that name from any ConfigMap.
func configMap(t *testing.T, r *release, file string) string {
	t.Helper()
	for _, m := range of[*core.ConfigMap](r) {
		if text, ok := m.Data[file]; ok {
			return text
		}
	}
	t.Fatalf("no ConfigMap has %s", file)
	return ""
}
