package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/xds"
)

// fetchedText returns the output of fetch for an answer: stdout, stderr with the error, and the
// exit code.
func fetchedText(t *testing.T, format string, a *fetch.Answer) (stdout, stderr string, code int) {
	t.Helper()
	var out, lines bytes.Buffer
	types, err := dirload.ReadProtoSets(nil)
	if err != nil {
		t.Fatal(err)
	}
	x := fetchFlags{Output: cli.Output{Format: format}, ShowFlags: xdsclient.ShowFlags{Types: types}}
	s := &xdsclient.Server{Text: "xds://there"}
	err = x.print(&out, &lines, s, a)
	if err == nil {
		err = s.Verdict(a, &lines)
	}
	if err != nil {
		lines.WriteString(err.Error())
		code = cli.Failed
	}
	if o, is := errors.AsType[cli.Failure](err); is {
		code = o.Code
	}
	return out.String(), lines.String(), code
}

func cds(name string) *xds.Resource {
	return xds.NewResource(xds.Cluster, name, append([]byte{0x0a, byte(len(name))}, name...))
}

// Malformed resources are reported in addition to the others.
func TestFetchReportsMalformedResources(t *testing.T) {
	a := &fetch.Answer{
		Resources: []fetch.Found{{Resource: cds("a"), Type: xds.Cluster, Name: "a"}},
		Malformed: []fetch.Malformed{{Type: xds.Cluster, Name: "b", Err: errors.New(`resource "b" is cut`)}, {Type: xds.Cluster, Err: errors.New("it has another type")}},
	}
	out, errs, code := fetchedText(t, "json", a)
	if code != cli.Failed || !strings.Contains(errs, `CDS: resource "b" is cut`) || !strings.Contains(errs, "2 resources of the answer cannot be used") {
		t.Errorf("%d %s", code, errs)
	}
	if !strings.Contains(out, `"malformed": [`) || !strings.Contains(out, `"name": "b"`) {
		t.Error(out)
	}
	if out, _, code = fetchedText(t, "yaml", a); code != cli.Failed || !strings.Contains(out, "name: a") {
		t.Errorf("%d %s", code, out)
	}
}

// The resources that arrived before the timeout are printed.
func TestFetchPrintsIncompleteAnswer(t *testing.T) {
	out, errs, code := fetchedText(t, "yaml", &fetch.Answer{Resources: []fetch.Found{{Resource: cds("a"), Type: xds.Cluster, Name: "a"}}, Unfinished: true})
	if code != cli.TimedOut || !strings.Contains(errs, "new resources kept arriving") || !strings.Contains(out, "name: a") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// Control characters in a name are escaped as the format requires, and do not damage the rest of the output.
func TestFetchEscapesControlCharacters(t *testing.T) {
	a := &fetch.Answer{}
	names := []string{"a", "b\x7f", "c\u009b", "d\u202e", "e\U000e0041", "f"}
	for _, n := range names {
		a.Resources = append(a.Resources, fetch.Found{Resource: cds(n), Type: xds.Cluster, Name: n})
	}
	for _, format := range []string{"yaml", "json", "jsonl"} {
		out, errs, code := fetchedText(t, format, a)
		if code != 0 || errs != "" {
			t.Errorf("%s: %d %s", format, code, errs)
		}
		for _, n := range names[1:4] {
			if format != "yaml" && strings.Contains(out, n[1:]) || strings.ContainsAny(out, "\x7f\u009b") {
				t.Errorf("%s: raw in %q", format, out)
			}
		}
		var all fetched
		switch format {
		case "yaml":
			if n := strings.Count(out, "---\n"); n != 5 || !strings.Contains(out, `"b\x7F"`) {
				t.Errorf("%d ends of documents in %s", n, out)
			}
		case "json":
			if err := json.Unmarshal([]byte(out), &all); err != nil || all.Items[4].Name != names[4] {
				t.Errorf("%v, %+v", err, all.Items)
			}
		}
	}
}

// The resources of other types are printed if the server lacks one type.
func TestFetchPrintsOtherTypesIfOneIsMissing(t *testing.T) {
	gone := fetch.End{Type: xds.Listener, Err: errors.New("http://127.0.0.1:1: 404 Not Found: there is no such path")}
	r := cds("pay")
	stdout, stderr, code := fetchedText(t, "name", &fetch.Answer{Resources: []fetch.Found{{Resource: r, Type: r.Type, Name: r.Name}}, Ends: []fetch.End{gone}})
	if stdout != "CDS/pay\n" || code != cli.NotFound || !strings.Contains(stderr, "sends other types, but not LDS: http://127.0.0.1:1: 404 Not Found") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}
