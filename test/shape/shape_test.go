// Package shape holds the bounds on the size of types: what has more fields or methods does more than one thing.
package shape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mostFields           = 15
	mostMethods          = 25
	mostInterfaceMethods = 4
)

// data are types that only hold data: configuration, metrics, records as they are sent, stored or printed.
const data = `
	admission.Minute admission/adaptive.State admission/policy.Policy admission/snapshot.Snapshot bench/chaos.report bench/load.CrowdReport
	bench/load.FillReport bench/simulate.Outcome bulk.Metrics bulk.depthsCollector bulk/api.Options bulk/bulktype.Group
	bulk/bulktype.Schedule bulk/client.GroupSpec bulk/schedule.Schedule bulk/store.Depths bulk/store.Group bulk/store.GroupSpec bulk/store.Settings bulk/store.audited eta.Input eta/backtest.Minute
	eta/backtest.Sale gateway.Options gateway.Room gateway/answer.Problem gateway/answer.Status
	gateway/console.adaptiveView gateway/console.liveView gateway/console.roomView gateway/metrics.Metrics gateway/metrics.collector gateway/page.Data gateway/report.Report gateway/page.View internal/config.Bulk internal/config.Config
	internal/config.Processor internal/config.Room internal/settings.Setting token.Waiting token.claimSet
`

func exceptions() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(data) {
		names[name] = true
	}
	return names
}

func TestTypes_DoOneThing(t *testing.T) {
	type size struct{ fields, methods int }
	exceptions := exceptions()
	found, interfaces := map[string]*size{}, map[string]bool{}
	at := func(name string) *size {
		if found[name] == nil {
			found[name] = &size{}
		}
		return found[name]
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "node_modules" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../") + "."
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if name := receiver(d); name != "" {
					at(dir+name).methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					switch kind := spec.Type.(type) {
					case *ast.StructType:
						at(dir + spec.Name.Name).fields += kind.Fields.NumFields()
					case *ast.InterfaceType:
						interfaces[dir+spec.Name.Name] = true
						if n := kind.Methods.NumFields(); n > mostInterfaceMethods && !exceptions[dir+spec.Name.Name] {
							t.Errorf("interface %s%s has %d methods, at most %d may be", dir, spec.Name.Name, n, mostInterfaceMethods)
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range found {
		large := s.fields > mostFields || s.methods > mostMethods
		switch {
		case large && !exceptions[name]:
			t.Errorf("type %s has %d fields and %d methods, at most %d and %d may be", name, s.fields, s.methods, mostFields, mostMethods)
		case !large && exceptions[name]:
			t.Errorf("type %s is within the bounds: remove its exception", name)
		}
		delete(exceptions, name)
	}
	for name := range exceptions {
		if !interfaces[name] {
			t.Errorf("there is no type %s: remove its exception", name)
		}
	}
}

// receiver returns the name of a method's type, "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
