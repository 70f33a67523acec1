package chart

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// definitions has the kinds whose Go types would bring a whole proxy into this module, with the schema of each in testdata/crds. The
// schemas are made of the projects' CustomResourceDefinitions; each names the version.
var definitions = map[string]string{
	"gateway.envoyproxy.io/v1alpha1 SecurityPolicy": "securitypolicy",
	"gateway.nginx.org/v1alpha1 SnippetsFilter":     "snippetsfilter",
	"traefik.io/v1alpha1 Middleware":                "middleware",
}

// decodeDefined decodes an object whose kind has a schema; unknown names are errors.
func decodeDefined(name string, data []byte) (runtime.Object, error) {
	file := filepath.Join("testdata", "crds", name+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	definition, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(file, definition); err != nil {
		return nil, err
	}
	schema, err := compiler.Compile(file)
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if err := schema.Validate(value); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(data)
}
