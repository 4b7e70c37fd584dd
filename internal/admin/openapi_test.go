package admin

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

var update = flag.Bool("update", false, "write the OpenAPI document")

const openAPIFile = "api/openapi.yaml"

// The OpenAPI document is generated from the routes, their parameters and the types of their answers, and is complete.
func TestOpenAPI(t *testing.T) {
	d := document{comments: comments(t), types: map[string]reflect.Type{}}
	want := d.write(t)
	if *update {
		if err := os.WriteFile(openAPIFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(want, api.OpenAPI) {
		t.Errorf("%s is out of date: run go test ./internal/admin -run TestOpenAPI -update", openAPIFile)
	}
	var read struct {
		OpenAPI    string                               `yaml:"openapi"`
		Paths      map[string]map[string]map[string]any `yaml:"paths"`
		Components struct {
			Schemas map[string]map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(want, &read); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, of := range read.Paths {
		n += len(of)
	}
	if all := len(d.routes()); n != all || all < 20 || read.OpenAPI != "3.1.0" {
		t.Errorf("%d routes in the document, %d in all", n, all)
	}
	// Each reference has a schema, and each exported type is in an answer.
	for _, m := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllStringSubmatch(string(want), -1) {
		if read.Components.Schemas[m[1]] == nil {
			t.Errorf("schema %s is missing", m[1])
		}
	}
	for name := range d.comments.types {
		if read.Components.Schemas[name] == nil {
			t.Errorf("no answer contains the type %s of api.go", name)
		}
	}
}

// A document generates openapi.yaml.
type document struct {
	comments apiComments
	types    map[string]reflect.Type // of answers, by name
	out      bytes.Buffer
}

func (d *document) routes() []route {
	s := newServer(newFleet())
	s.Dump = http.NotFoundHandler()
	return s.routes()
}

func (d *document) line(indent int, format string, args ...any) {
	fmt.Fprintf(&d.out, strings.Repeat("  ", indent)+format+"\n", args...)
}

func (d *document) write(t *testing.T) []byte {
	t.Helper()
	d.line(0, "# Generated from the code: go test ./internal/admin -run TestOpenAPI -update")
	d.line(0, "openapi: 3.1.0")
	d.line(0, "info:")
	d.line(1, "title: The admin API of Chancery")
	d.line(1, "version: %s", api.Version)
	d.line(1, "description: Connected clients, the resources of each, and problems. See docs/admin-api.md.")
	d.line(0, "security: [{}, {token: []}]")
	d.line(0, "paths:")
	last := ""
	for _, rt := range d.routes() {
		path := strings.ReplaceAll(rt.path, "...}", "}")
		if path != last {
			d.line(1, "%s:", path)
		}
		last = path
		d.line(2, "%s:", strings.ToLower(rt.method))
		d.line(3, "summary: %s", strconv.Quote(rt.about))
		d.parameters(rt)
		if rt.in != nil {
			d.line(3, "requestBody:")
			in := "application/json"
			switch rt.in.(type) {
			case api.EndpointLine, api.RevisionLine:
				in = linesOfJSON
			}
			d.line(4, "content: {%s: {schema: %s}}", in, d.schema(reflect.TypeOf(rt.in)))
		}
		d.line(3, "responses:")
		content, schema := "application/json", "{}"
		switch out := rt.out.(type) {
		case string:
			content = out
		case api.Event:
			content, schema = "text/event-stream", d.schema(reflect.TypeOf(out))
		case api.EndpointLines, api.RevisionLine, api.WaitLine:
			content, schema = linesOfJSON, d.schema(reflect.TypeOf(out))
		default:
			schema = d.schema(reflect.TypeOf(out))
		}
		d.line(4, `"200": {description: the answer, content: {%s: {schema: %s}}}`, content, schema)
		d.line(4, `default: {description: the error, content: {application/json: {schema: %s}}}`, d.schema(reflect.TypeFor[api.Error]()))
	}
	d.line(0, "components:")
	d.line(1, "securitySchemes:")
	d.line(2, "token: {type: http, scheme: bearer, description: the token of --admin-token-file}")
	d.line(1, "schemas:")
	for written := map[string]bool{}; len(written) < len(d.types); {
		for _, name := range slices.Sorted(maps.Keys(d.types)) {
			if !written[name] {
				written[name] = true
				d.object(t, name, d.types[name])
			}
		}
	}
	return d.out.Bytes()
}

func (d *document) parameters(rt route) {
	var all []string
	for part := range strings.SplitSeq(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
			all = append(all, fmt.Sprintf("{name: %s, in: path, required: true, description: percent-encoded as one segment, schema: {type: string}}", name))
		}
	}
	for _, p := range paramsOf[rt.method+" "+rt.path] {
		schema := "{type: " + p.kind + "}"
		if p.kind == "array" {
			values := kinds
			if p.name == "state" {
				values = nil
				for _, s := range states {
					values = append(values, string(s))
				}
			}
			schema = "{type: array, items: {type: string, enum: [" + strings.Join(values, ", ") + "]}}"
		}
		all = append(all, fmt.Sprintf("{name: %s, in: query, description: %s, schema: %s}", p.name, strconv.Quote(p.about), schema))
	}
	if rt.path == "/api/v1/events" {
		all = append(all, `{name: Last-Event-ID, in: header, description: ID of the last event already seen, schema: {type: integer}}`)
	}
	if len(all) == 0 {
		return
	}
	d.line(3, "parameters:")
	for _, p := range all {
		d.line(4, "- %s", p)
	}
}

// schema returns the schema of a type on one line, with a reference for a struct.
func (d *document) schema(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "{type: string, format: date-time}"
	case t.PkgPath() == "encoding/json":
		return "{}"
	case t == reflect.TypeFor[api.State]() || t.Kind() == reflect.Struct:
		d.types[t.Name()] = t
		return `{$ref: "#/components/schemas/` + t.Name() + `"}`
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "{type: string, format: byte}"
		}
		return "{type: array, items: " + d.schema(t.Elem()) + "}"
	case reflect.Map:
		return "{type: object, additionalProperties: " + d.schema(t.Elem()) + "}"
	case reflect.String:
		return "{type: string}"
	case reflect.Bool:
		return "{type: boolean}"
	case reflect.Int, reflect.Uint64:
		return "{type: integer}"
	case reflect.Float64:
		return "{type: number}"
	}
	panic("unexpected type of an answer: " + t.String())
}

func (d *document) object(t *testing.T, name string, typ reflect.Type) {
	t.Helper()
	d.line(2, "%s:", name)
	if about := d.comments.types[name]; about != "" {
		d.line(3, "description: %s", strconv.Quote(about))
	}
	if typ.Kind() == reflect.String {
		d.line(3, "type: string")
		d.line(3, "enum: [%s]", strings.Join(d.comments.states, ", "))
		return
	}
	d.line(3, "type: object")
	var required, properties []string
	var fields func(typ reflect.Type)
	fields = func(typ reflect.Type) {
		for f := range typ.Fields() {
			if f.Anonymous {
				fields(f.Type)
				continue
			}
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" {
				t.Errorf("%s.%s has no name in JSON", name, f.Name)
			}
			if options == "" && !strings.HasSuffix(name, "Request") && name != "LogLevel" {
				required = append(required, key)
			}
			p := fmt.Sprintf("%s: %s", key, d.schema(f.Type))
			if about := d.comments.fields[typ.Name()+"."+f.Name]; about != "" && strings.HasPrefix(p, key+": {type") {
				p = strings.TrimSuffix(p, "}") + ", description: " + strconv.Quote(about) + "}"
			}
			properties = append(properties, p)
		}
	}
	fields(typ)
	if len(required) > 0 {
		d.line(3, "required: [%s]", strings.Join(required, ", "))
	}
	d.line(3, "properties:")
	for _, p := range properties {
		d.line(4, "%s", p)
	}
}

// apiComments has the doc comments of package api.
type apiComments struct {
	types, fields map[string]string
	states        []string
}

func comments(t *testing.T) apiComments {
	t.Helper()
	c := apiComments{types: map[string]string{}, fields: map[string]string{}}
	var decls []ast.Decl
	for _, file := range []string{"api.go", "fleet.go", "revisions.go", "rollouts.go", "session.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), "api/"+file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, f.Decls...)
	}
	text := func(groups ...*ast.CommentGroup) string {
		for _, g := range groups {
			if s := strings.TrimSpace(string(new(comment.Printer).Text(new(comment.Parser).Parse(g.Text())))); s != "" {
				return strings.Join(strings.Fields(s), " ")
			}
		}
		return ""
	}
	for _, decl := range decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "State" {
					s, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
					c.states = append(c.states, s)
				}
			case *ast.TypeSpec:
				c.types[spec.Name.Name] = text(spec.Doc, g.Doc)
				if st, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, name := range field.Names {
							c.fields[spec.Name.Name+"."+name.Name] = text(field.Doc, field.Comment)
						}
					}
				}
			}
		}
	}
	return c
}
