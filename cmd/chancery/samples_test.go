package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// samples are the pages whose Go blocks must compile, each as the body of a function, with the declarations
// that they need.
var samples = map[string]string{
	"client.md": `
		import "context"; import "log"; import "google.golang.org/grpc/credentials"
		var ctx context.Context; var creds credentials.TransportCredentials
		func use(string, *clusterv3.Cluster) {}; func drop(string) {}`,
	"client-bootstrap.md": `
		import "context"; import "log"; import "google.golang.org/grpc"; import "github.com/prometheus/client_golang/prometheus"
		import "github.com/chancery-xds/chancery/client"; import "github.com/chancery-xds/chancery/client/bootstrap"
		var ctx context.Context; var data []byte; var c *client.Client; var boot *bootstrap.GRPCConfig
		var registry prometheus.Registerer; var grpcServer grpc.ServiceRegistrar
		func use(*tree.Tree) {}`,
	"endpoints.md": `
		import "context"; import "log"; import "time"; import "google.golang.org/grpc"; import "google.golang.org/grpc/credentials/insecure"
		import "google.golang.org/protobuf/types/known/durationpb"; import endpointsv1 "github.com/chancery-xds/chancery/proto/chancery/endpoints/v1"
		var ctx context.Context`,
}

var (
	blockOfGo  = regexp.MustCompile("(?s)\n```go\n(.*?)\n```")
	importsOf  = regexp.MustCompile(`(?s)import \((.*?)\n\)\n?`)
	oneImport  = regexp.MustCompile(`import ((?:\w+ )?"[^"]+")(?:; )?`)
	importLine = regexp.MustCompile(`^(?:(\w+) )?"([^"]+)"$`)
)

// The Go code of the pages compiles.
func TestSamplesOfDocs(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace, packages := map[string]string{}, []string{"build", "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for page, prelude := range samples {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "sample.go")
		if err := os.WriteFile(file, sample(t, page, string(text), prelude), 0o600); err != nil {
			t.Fatal(err)
		}
		name := "sample_" + strings.TrimSuffix(page, ".md")
		replace[filepath.Join(here, name, "sample.go")] = file
		packages = append(packages, "./"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(packages[2], overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", packages...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// sample returns a file with a function for each block of a page.
func sample(t *testing.T, page, text, prelude string) []byte {
	t.Helper()
	var body bytes.Buffer
	var imports []string
	block := func(code string) string {
		for _, m := range oneImport.FindAllStringSubmatch(code, -1) {
			imports = append(imports, m[1])
		}
		for _, m := range importsOf.FindAllStringSubmatch(code, -1) {
			for line := range strings.Lines(m[1]) {
				if line = strings.TrimSpace(line); line != "" {
					imports = append(imports, line)
				}
			}
		}
		return importsOf.ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	}
	fmt.Fprintln(&body, oneImport.ReplaceAllString(block(prelude), ""))
	blocks := blockOfGo.FindAllStringSubmatchIndex(text, -1)
	if len(blocks) == 0 {
		t.Errorf("%s has no Go", page)
	}
	for _, at := range blocks {
		line := 1 + strings.Count(text[:at[2]], "\n")
		code := block(text[at[2]:at[3]])
		fmt.Fprintf(&body, "func _() error {\n//line docs/%s:%d\n%s\n", page, line, code)
		for _, name := range declared(t, code) {
			fmt.Fprintf(&body, "_ = %s\n", name)
		}
		fmt.Fprintf(&body, "return nil\n}\n")
	}
	head := bytes.NewBufferString("package sample\n")
	slices.Sort(imports)
	for _, line := range slices.Compact(imports) {
		m := importLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s: %q is no import", page, line)
		}
		name := m[1]
		if name == "" {
			name = m[2][strings.LastIndexByte(m[2], '/')+1:]
		}
		if name == "_" || strings.Contains(body.String(), name+".") {
			fmt.Fprintf(head, "import %s\n", line)
		}
	}
	return append(head.Bytes(), body.Bytes()...)
}

// declared returns the variables of a function's body that a sample need not use.
func declared(t *testing.T, code string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+code+"\n}", parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("%v in\n%s", err, code)
	}
	for _, s := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if a, is := s.(*ast.AssignStmt); is && a.Tok == token.DEFINE {
			for _, e := range a.Lhs {
				names = append(names, e.(*ast.Ident).Name)
			}
		}
	}
	return names
}
