package chart

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	root     = "../../.."
	chartDir = "../anteroom"
	// namespace and releaseName are used in every rendering.
	namespace   = "sales"
	releaseName = "acme"
	// kubernetes is the oldest supported version.
	kubernetes = "1.30.0"
)

// example is a values file of examples/, or of testdata.
type example struct {
	name   string
	values map[string]any
	text   string
}

// examples returns the files of examples/ and testdata/everything.yaml, which turns everything on.
func examples(t *testing.T) []example {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var all []example
	for _, file := range append(files, filepath.Join("testdata", "everything.yaml")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, example{strings.TrimSuffix(filepath.Base(file), ".yaml"), parseValues(t, string(text)), string(text)})
	}
	return all
}

// parseValues parses values as helm does.
func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatalf("values: %v\n%s", err, text)
	}
	return values
}

func loadChart(t *testing.T) *helm.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// release is a rendered chart.
type release struct {
	files   map[string]string
	notes   string
	objects []runtime.Object
	texts   map[runtime.Object]string
}

// tryRender renders values. Its error is the text that a user sees.
func tryRender(t *testing.T, values map[string]any) (map[string]string, error) {
	t.Helper()
	return renderAs(t, releaseName, values)
}

func renderAs(t *testing.T, name string, values map[string]any) (map[string]string, error) {
	t.Helper()
	c, all, err := prepare(t, name, values)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// prepare checks values against the schema and completes them.
func prepare(t *testing.T, name string, values map[string]any) (*helm.Chart, chartutil.Values, error) {
	t.Helper()
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v" + kubernetes, Major: "1", Minor: "30"}
	options := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	c := loadChart(t)
	all, err := chartutil.ToRenderValues(c, values, options, capabilities)
	return c, all, err
}

func render(t *testing.T, values map[string]any) *release {
	t.Helper()
	files, err := tryRender(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, files)
}

// decode decodes every object of rendered files.
func decode(t *testing.T, files map[string]string) *release {
	t.Helper()
	r := &release{files: files, texts: make(map[runtime.Object]string)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == "NOTES.txt" {
			r.notes = files[name]
			continue
		}
		for text := range strings.SplitSeq(files[name], "\n---\n") {
			object, err := decodeObject(text)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			if object != nil {
				r.objects = append(r.objects, object)
				r.texts[object] = text
			}
		}
	}
	return r
}

// kinds has the kinds of objects that the chart may create.
var kinds = map[string]func() runtime.Object{
	"v1 ConfigMap":                            func() runtime.Object { return &core.ConfigMap{} },
	"v1 Pod":                                  func() runtime.Object { return &core.Pod{} },
	"v1 Secret":                               func() runtime.Object { return &core.Secret{} },
	"v1 Service":                              func() runtime.Object { return &core.Service{} },
	"v1 ServiceAccount":                       func() runtime.Object { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() runtime.Object { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                     func() runtime.Object { return &apps.StatefulSet{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() runtime.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 Ingress":            func() runtime.Object { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() runtime.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() runtime.Object { return &policy.PodDisruptionBudget{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() runtime.Object { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() runtime.Object { return &monitoring.PrometheusRule{} },
	"gateway.networking.k8s.io/v1 HTTPRoute":  func() runtime.Object { return &gatewayapi.HTTPRoute{} },
}

// decodeObject decodes an object strictly: unknown fields, fields in other case and repeated fields are errors. It returns nil
// for a document of comments.
func decodeObject(text string) (runtime.Object, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if name, ok := definitions[head.APIVersion+" "+head.Kind]; ok {
		return decodeDefined(name, data)
	}
	make, ok := kinds[head.APIVersion+" "+head.Kind]
	if !ok {
		return nil, fmt.Errorf("there is no %s %s among the kinds of this chart", head.APIVersion, head.Kind)
	}
	object := make()
	problems, err := kjson.UnmarshalStrict(data, object)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %v", head.Kind, problems)
	}
	return object, nil
}

// of returns the objects of a type.
func of[T runtime.Object](r *release) []T {
	var all []T
	for _, object := range r.objects {
		if o, ok := object.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// forExamples runs a check for each example.
func forExamples(t *testing.T, check func(t *testing.T, e example, r *release)) {
	t.Helper()
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			r := render(t, e.values)
			rendered.Store(e.name, len(r.objects))
			check(t, e, r)
		})
	}
}

// rendered counts the objects of each example, for the last line of the output.
var rendered sync.Map
