package chart

import (
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the table of README.md and the alerts anew")

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// current compares a file with the wanted text, or writes the text with -update.
func current(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, name) != want {
		t.Errorf("%s is out of date; run: tools/chart.sh -update", name)
	}
}

// TestReadmeHasTheValues compares the table of README.md with the values, defaults and comments of values.yaml.
func TestReadmeHasTheValues(t *testing.T) {
	const first, last = "<!-- values -->\n", "<!-- /values -->"
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(chartDir, "values.yaml"))), &document); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	valueRows(t, &table, "", document.Content[0])
	name := filepath.Join(chartDir, "README.md")
	text := read(t, name)
	before, rest, ok := strings.Cut(text, first)
	_, after, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		t.Fatalf("%s has no markers for the values: %s … %s", name, first, last)
	}
	current(t, name, before+first+table.String()+last+after)
}

func valueRows(t *testing.T, table *strings.Builder, prefix string, mapping *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		section := value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0
		paragraphs := strings.Split(key.HeadComment, "\n\n") // the file's own comment precedes the first value's
		comment := strings.TrimPrefix(strings.ReplaceAll(paragraphs[len(paragraphs)-1], "\n# ", " "), "# ")
		if comment == "" && !section {
			t.Errorf("values.yaml: %s has no comment", path)
		}
		if comment != "" {
			fmt.Fprintf(table, "| `%s` | %s | %s |\n", path, defaultCell(t, value, section), strings.ReplaceAll(comment, "|", `\|`))
		}
		if section {
			valueRows(t, table, path+".", value)
		}
	}
}

func defaultCell(t *testing.T, value *yaml.Node, section bool) string {
	t.Helper()
	if section {
		return ""
	}
	if value.Kind == yaml.ScalarNode && value.Value != "" {
		return "`" + value.Value + "`"
	}
	var v any
	if err := value.Decode(&v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return "`" + string(text) + "`"
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(groups:.*?)```")

// TestAlertsAreThoseOfTheDocumentation checks that the alerts of docs/metrics.md are the chart's, and use documented metrics only.
func TestAlertsAreThoseOfTheDocumentation(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "metrics.md"))
	blocks := yamlBlock.FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/metrics.md has %d groups of alerts; want the gateway's and the bulk worker's", len(blocks))
	}
	for i, program := range []string{"gateway", "bulkworker"} {
		current(t, filepath.Join(chartDir, "files", "alerts-"+program+".yaml"), blocks[i][1])
	}
	known := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) ").FindAllStringSubmatch(page, -1) {
		known[row[1]] = true
		if row[2] == "histogram" {
			known[row[1]+"_bucket"], known[row[1]+"_count"], known[row[1]+"_sum"] = true, true, true
		}
	}
	metric := regexp.MustCompile(`\b(anteroom|bulk_action)_[a-z_]+`)
	found := 0
	for _, e := range examples(t) {
		for _, rule := range of[*monitoring.PrometheusRule](render(t, e.values)) {
			for _, alert := range rule.Spec.Groups[0].Rules {
				for _, name := range metric.FindAllString(alert.Expr.String(), -1) {
					if found++; !known[name] {
						t.Errorf("alert %s uses %s, which is not in docs/metrics.md", alert.Alert, name)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no alert asks for a metric")
	}
}

// TestContainerfile checks that the image has the programs at the paths and the user of the chart, and that its build copies
// every directory that the programs need.
func TestContainerfile(t *testing.T) {
	file := read(t, filepath.Join(root, "deploy", "Containerfile"))
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindStringSubmatch(file)
	copied := regexp.MustCompile(`(?m)^COPY --from=build (.*) (/\S+)/$`).FindStringSubmatch(file)
	if user == nil || copied == nil {
		t.Fatalf("deploy/Containerfile has no USER as numbers, or no COPY --from=build … DIR/:\n%s", file)
	}
	var inImage []string
	for _, program := range strings.Fields(copied[1]) {
		inImage = append(inImage, copied[2]+"/"+filepath.Base(program))
	}
	forExamples(t, func(t *testing.T, _ example, r *release) {
		for _, p := range programs(r) {
			if s := p.spec.SecurityContext; fmt.Sprint(*s.RunAsUser) != user[1] || fmt.Sprint(*s.RunAsGroup) != user[2] || *s.FSGroup != *s.RunAsGroup {
				t.Errorf("%s runs as %d:%d with the group %d; the image is made for %s:%s", p.name, *s.RunAsUser, *s.RunAsGroup, *s.FSGroup, user[1], user[2])
			}
			if command := p.spec.Containers[0].Command; len(command) != 1 || !slices.Contains(inImage, command[0]) {
				t.Errorf("%s runs %v; the image has %v", p.name, command, inImage)
			}
			for _, port := range p.spec.Containers[0].Ports {
				if !regexp.MustCompile(fmt.Sprintf(`(?m)^EXPOSE .*\b%d\b`, port.ContainerPort)).MatchString(file) {
					t.Errorf("the image does not expose %d", port.ContainerPort)
				}
			}
		}
	})

	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}{{end}}", "./cmd/gateway", "./cmd/bulkworker")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.FieldsSeq(string(out)) {
		below, err := filepath.Rel(here, dir)
		if err != nil {
			t.Fatal(err)
		}
		top, _, _ := strings.Cut(filepath.ToSlash(below), "/")
		if !strings.Contains(file, "\nCOPY "+top+" "+top+"\n") {
			t.Errorf("deploy/Containerfile does not copy %s, which the programs need", top)
		}
	}
	toolchain := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, filepath.Join(root, "go.mod")))
	if !strings.Contains(file, "golang:"+toolchain[1]+" ") {
		t.Errorf("deploy/Containerfile builds with another Go than %s", toolchain[1])
	}
}

// TestStatic checks that the programs need no interpreter and no library, as distroless/static has none.
func TestStatic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux; here the programs are not built as ELF")
	}
	for _, name := range []string{"gateway", "bulkworker"} {
		file, err := elf.Open(filepath.Join(built(t), name))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range file.Progs {
			if part.Type == elf.PT_INTERP || part.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static: it has %s", name, part.Type)
			}
		}
		_ = file.Close()
	}
}
