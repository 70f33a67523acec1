package settings

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/anteroom/anteroom/internal/redisurl"
)

// Mask replaces a secret in a printed configuration. Checks must refuse it, so that a printed configuration never runs with a
// public secret.
const Mask = "***"

// YAML returns a configuration as a file that Load reads, with secrets and the passwords of URLs masked.
func YAML(config any) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(sectionNode(reflect.ValueOf(config).Elem())); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	return out.Bytes(), nil
}

func sectionNode(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	kind := v.FieldByName("Kind")
	for _, s := range settingsOf(v.Type(), "") {
		value := v.Field(s.index)
		if s.Only != "" && kind.String() != s.Only {
			continue
		}
		if s.Optional {
			if value.IsNil() {
				continue
			}
			value = value.Elem()
		}
		node.Content = append(node.Content, textNode(s.Name), valueNode(value, s))
	}
	return node
}

func valueNode(v reflect.Value, s Setting) *yaml.Node {
	switch s.Kind {
	case kindSection:
		return sectionNode(v)
	case kindSections:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			node.Content = append(node.Content, sectionNode(v.Index(i)))
		}
		return flowIfEmpty(node)
	case kindNamed:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range mapKeys(v) {
			node.Content = append(node.Content, textNode(key), sectionNode(v.MapIndex(reflect.ValueOf(key))))
		}
		return flowIfEmpty(node)
	case kindTexts:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range mapKeys(v) {
			node.Content = append(node.Content, textNode(key), textNode(masked(v.MapIndex(reflect.ValueOf(key)).String(), s.Secret)))
		}
		return flowIfEmpty(node)
	case "text":
		if text := v.String(); s.Enum != nil && (text == "true" || text == "false") {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: text}
		}
		return textNode(masked(v.String(), s.Secret))
	}
	if strings.HasPrefix(s.Kind, listOf) {
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for i := range v.Len() {
			node.Content = append(node.Content, textNode(masked(fmt.Sprint(v.Index(i).Interface()), s.Secret)))
		}
		return node
	}
	// The encoder leaves the tag out where the text resolves to it.
	text, tag := format(v, s), "!!int"
	switch {
	case s.Kind == "boolean":
		tag = "!!bool"
	case s.Kind == "duration", s.Kind == "size" && !AllDigits(text):
		return textNode(text)
	case strings.Contains(text, "."):
		tag = "!!float"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// textNode quotes what would not be read as text otherwise.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(text)
	return node
}

func flowIfEmpty(node *yaml.Node) *yaml.Node {
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	return node
}

func masked(text, secret string) string {
	switch {
	case text == "" || secret == "":
		return text
	case secret == "url":
		return redisurl.Mask(text)
	}
	return Mask
}
