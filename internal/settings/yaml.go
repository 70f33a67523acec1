package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// number is a number as it was written, so that it is not rounded to a float.
type number string

// malformed is a scalar that YAML understands but the loader does not; whether
// its value may be shown depends on the setting that it is meant for.
type malformed struct{ Value, Want string }

// plain is a value without a type of its own: from the environment or a flag.
type plain string

const (
	maxFile  = 4 << 20
	maxNodes = 200_000 // aliases counted as often as they are used
	maxDepth = 64
)

var decimalPattern = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// strictYAML is a koanf.Parser that reads one YAML document into maps, lists,
// string, bool and number, and collects what YAML itself would let pass:
// duplicate keys, a second document, numbers that are not plain decimals.
type strictYAML struct {
	problems *Problems
	nodes    int
	tooDeep  bool
}

func (p *strictYAML) Unmarshal(data []byte) (map[string]any, error) {
	if len(data) > maxFile {
		p.problems.Add("", fmt.Sprintf("the file has %d bytes; use at most %d", len(data), maxFile))
		return nil, nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		p.problems.Add("", "not YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		p.problems.Add("", "the file has more than one YAML document; write everything into one, without a --- in between")
	}
	if len(document.Content) != 1 {
		return nil, nil
	}
	switch root := p.convert(document.Content[0], "", 0).(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return root, nil
	default:
		p.problems.Add("", "the file is not a list of settings; use lines such as listen: \":8080\"")
		return nil, nil
	}
}

// Marshal makes strictYAML a koanf.Parser.
func (p *strictYAML) Marshal(tree map[string]any) ([]byte, error) { return yaml.Marshal(tree) }

// convert returns nil if there is no value.
func (p *strictYAML) convert(node *yaml.Node, path string, depth int) any {
	if p.nodes++; p.nodes > maxNodes || depth > maxDepth {
		if !p.tooDeep {
			p.problems.Add("", "the file is nested or aliased too deeply; write it out flatly")
		}
		p.tooDeep = true
		return nil
	}
	switch node.Kind {
	case yaml.AliasNode:
		return p.convert(node.Alias, path, depth+1)
	case yaml.MappingNode:
		tree := make(map[string]any, len(node.Content)/2)
		p.mapping(node, path, depth, tree)
		return tree
	case yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for i, item := range node.Content {
			list = append(list, p.convert(item, Element(path, i), depth+1))
		}
		return list
	case yaml.ScalarNode:
		return scalarOf(node)
	}
	return nil
}

func (p *strictYAML) mapping(node *yaml.Node, path string, depth int, tree map[string]any) {
	var merges []*yaml.Node
	seen := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			p.problems.Add(path, fmt.Sprintf("line %d: a key is not a plain word", key.Line))
			continue
		}
		at := Join(path, key.Value)
		if line, ok := seen[key.Value]; ok {
			p.problems.Add(at, fmt.Sprintf("given twice, in lines %d and %d; keep one", line, key.Line))
			continue
		}
		seen[key.Value] = key.Line
		tree[key.Value] = p.convert(value, at, depth+1)
	}
	// Keys of the map override merged keys, and the first merge overrides later
	// ones.
	for _, value := range merges {
		p.merge(value, path, depth, tree)
	}
}

func (p *strictYAML) merge(value *yaml.Node, path string, depth int, tree map[string]any) {
	merged := p.convert(value, path, depth+1)
	list, ok := merged.([]any)
	if !ok {
		list = []any{merged}
	}
	for _, item := range list {
		section, ok := item.(map[string]any)
		if !ok {
			p.problems.Add(path, "<< merges something that is not a section")
			return
		}
		for key, v := range section {
			if _, ok := tree[key]; !ok {
				tree[key] = v
			}
		}
	}
}

func scalarOf(node *yaml.Node) any {
	switch tag := node.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		if node.Value != "true" && node.Value != "false" {
			return malformed{node.Value, "use true or false"}
		}
		return node.Value == "true"
	case "!!int", "!!float":
		if !decimalPattern.MatchString(node.Value) || leadingZero(node.Value) {
			return malformed{node.Value, "use a plain decimal number such as 10 or 2.5"}
		}
		return number(node.Value)
	case "!!str", "!!timestamp":
		return node.Value
	default:
		return malformed{node.Value, "the YAML tag " + tag + " has no meaning here; leave it out"}
	}
}

// leadingZero reports whether a number is like 010, which YAML 1.1 reads as eight, unlike 0 and 0.5.
func leadingZero(text string) bool {
	text = strings.TrimPrefix(text, "-")
	return len(text) > 1 && text[0] == '0' && text[1] != '.'
}
