package chart

import (
	"maps"
	"slices"
	"testing"

	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// cluster is a cluster with existing objects, which the templates look up.
type cluster struct{ client dynamic.Interface }

// resources are the kinds that the chart looks up.
var resources = map[string]schema.GroupVersionResource{
	"Secret":     core.SchemeGroupVersion.WithResource("secrets"),
	"Deployment": apps.SchemeGroupVersion.WithResource("deployments"),
}

func (c cluster) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return c.client.Resource(resources[kind]), true, nil
}

// upgrade renders values for a cluster that has these objects.
func upgrade(t *testing.T, values map[string]any, have ...runtime.Object) *release {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range have {
		object.(meta.Object).SetNamespace(namespace)
	}
	c, all, err := prepare(t, releaseName, values)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.RenderWithClientProvider(c, all, cluster{fake.NewSimpleDynamicClient(scheme, have...)})
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, files)
}

// TestGeneratedSecretsAreKept checks upgrades: a new key would end every place, a new password every connection to the store.
func TestGeneratedSecretsAreKept(t *testing.T) {
	values := override(t, "trial", "")
	first := of[*core.Secret](upgrade(t, values))[0]
	again := of[*core.Secret](upgrade(t, override(t, "trial", ""), first.DeepCopy()))[0]
	if !maps.EqualFunc(first.Data, again.Data, slices.Equal[[]byte]) {
		t.Errorf("an upgrade changes %v to %v", first.Data, again.Data)
	}
	if first.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("an uninstall takes the key with it, and leaves the volume with its password")
	}
	seen := make(map[string]bool)
	for key, value := range first.Data {
		if len(value) < 32 || seen[string(value)] {
			t.Errorf("%s is %q: short, or another's", key, value)
		}
		seen[string(value)] = true
	}
	// A secret that a later upgrade needs is added; the others stay.
	more := of[*core.Secret](upgrade(t, override(t, "trial", `bulkworker: {enabled: true}`), first.DeepCopy()))[0]
	if len(more.Data) != len(first.Data)+1 || string(more.Data["token-key"]) != string(first.Data["token-key"]) {
		t.Errorf("with the bulk worker %v, before %v", more.Data, first.Data)
	}
}

// TestAutoscalingKeepsTheNumber checks that the upgrade that turns autoscaling on does not scale to one pod.
func TestAutoscalingKeepsTheNumber(t *testing.T) {
	five := int32(5)
	have := &apps.Deployment{
		TypeMeta:   meta.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta.ObjectMeta{Name: releaseName + "-anteroom-gateway"},
		Spec:       apps.DeploymentSpec{Replicas: &five},
	}
	d := of[*apps.Deployment](upgrade(t, override(t, "redis", `gateway: {autoscaling: {enabled: true}}`), have))[0]
	if d.Spec.Replicas == nil || *d.Spec.Replicas != five {
		t.Errorf("replicas %v; want the 5 that run", d.Spec.Replicas)
	}
}
