package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/xds"
)

// fetchedText returns what fetch prints of an answer: to stdout, to stderr with its error, and its
// exit code.
func fetchedText(t *testing.T, format string, a *fetch.Answer) (stdout, stderr string, code int) {
	t.Helper()
	var out, lines bytes.Buffer
	types, err := readSets(nil)
	if err != nil {
		t.Fatal(err)
	}
	x := fetching{output: output{format: format}, showing: showing{types: types}}
	s := &xdsServer{text: "xds://there"}
	err = x.print(&out, &lines, s, a)
	if err == nil {
		err = s.verdict(a, &lines)
	}
	if err != nil {
		lines.WriteString(err.Error())
		code = failed
	}
	if o, is := errors.AsType[failure](err); is {
		code = o.code
	}
	return out.String(), lines.String(), code
}

func cds(name string) *xds.Resource {
	return xds.NewResource(xds.Cluster, name, append([]byte{0x0a, byte(len(name))}, name...))
}

// What cannot be read is told, beside what can.
func TestFetchMalformed(t *testing.T) {
	a := &fetch.Answer{
		Resources: []fetch.Found{{Resource: cds("a"), Type: xds.Cluster, Name: "a"}},
		Malformed: []fetch.Malformed{{Type: xds.Cluster, Name: "b", Err: errors.New(`resource "b" is cut`)}, {Type: xds.Cluster, Err: errors.New("it has another type")}},
	}
	out, errs, code := fetchedText(t, "json", a)
	if code != failed || !strings.Contains(errs, `CDS: resource "b" is cut`) || !strings.Contains(errs, "2 resources of the answer cannot be used") {
		t.Errorf("%d %s", code, errs)
	}
	if !strings.Contains(out, `"malformed": [`) || !strings.Contains(out, `"name": "b"`) {
		t.Error(out)
	}
	if out, _, code = fetchedText(t, "yaml", a); code != failed || !strings.Contains(out, "name: a") {
		t.Errorf("%d %s", code, out)
	}
}

// What came before the time was over is printed.
func TestFetchUnfinished(t *testing.T) {
	out, errs, code := fetchedText(t, "yaml", &fetch.Answer{Resources: []fetch.Found{{Resource: cds("a"), Type: xds.Cluster, Name: "a"}}, Unfinished: true})
	if code != timedOut || !strings.Contains(errs, "something new kept coming") || !strings.Contains(out, "name: a") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// A name with what no terminal should see is escaped, as the format has it, and ruins nothing else.
func TestFetchControlCharacters(t *testing.T) {
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

// A type that the server does not have hides nothing of the others.
func TestFetchLacksType(t *testing.T) {
	gone := fetch.End{Type: xds.Listener, Err: errors.New("http://127.0.0.1:1: 404 Not Found: there is no such path")}
	r := cds("pay")
	stdout, stderr, code := fetchedText(t, "name", &fetch.Answer{Resources: []fetch.Found{{Resource: r, Type: r.Type, Name: r.Name}}, Ends: []fetch.End{gone}})
	if stdout != "CDS/pay\n" || code != notFound || !strings.Contains(stderr, "gives others, and no LDS: http://127.0.0.1:1: 404 Not Found") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
}

// What a server says that lets the client have nothing, what is advised, and the exit code.
func TestFetchHints(t *testing.T) {
	var says atomic.Uint32
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Code(says.Load()), "says the server")
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l) // until Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	const denied = "the server lets this client have nothing: is --node right, and does it want --tls-cert, --tls-key?\n"
	for _, x := range []struct {
		says       codes.Code
		flag, hint string
		code       int
	}{
		{codes.PermissionDenied, "--node=edge-1", denied, noServer},
		{codes.PermissionDenied, "--node-json={\"id\": \"edge-1\"}", denied, noServer},
		{codes.PermissionDenied, "--delta", "the node that asks is named after this machine, for want of --node: which nodes does the server let in, and does it want --tls-cert, --tls-key?\n", noServer},
		{codes.Unauthenticated, "--node=edge-1", denied, noServer},
		{codes.ResourceExhausted, "--delta", "the server, or this client, has a limit that was exceeded\n", noServer},
		{codes.Unimplemented, "--delta", "the server may have no delta: try without --delta\n", failed},
		{codes.Unimplemented, "--per-type", "the server may have no stream of this type: try without --per-type\n", failed},
		{codes.Unimplemented, "--ads", "the server may have no ADS, or delta alone: try --per-type, or --delta; or is it the port of an admin API?\n", failed},
		{codes.Internal, "--delta", "", failed},
	} {
		var out, errs bytes.Buffer
		says.Store(uint32(x.says))
		code := run([]string{"fetch", ofXDS + l.Addr().String(), "cds", x.flag}, &out, &errs)
		if hint := "hint: " + x.hint; code != x.code || out.Len() > 0 || strings.Contains(errs.String(), "hint: ") != (x.hint != "") || x.hint != "" && !strings.HasSuffix(errs.String(), hint) {
			t.Errorf("%s %s: %d %s%s", x.says, x.flag, code, out.String(), errs.String())
		}
	}
}

// What to do about a name that a server is silent about depends on how it was asked.
func TestFetchSilent(t *testing.T) {
	a := &fetch.Answer{Resources: []fetch.Found{{Type: xds.Cluster, Name: "a"}}, Missing: []fetch.Missing{{Type: xds.Cluster, Name: "b", Asked: true}}}
	for want, x := range map[string]xdsFlags{
		"in SotW a server says nothing of what it does not have; in delta it does: --delta": {},
		"in SotW a server says nothing of what it does not have":                            {rest: true},
		"this server does not say what it lacks":                                            {delta: true},
	} {
		said, is := errors.AsType[failure]((&xdsServer{xdsFlags: x}).verdict(a, io.Discard))
		if !is || said.code != notFound || said.hint != want {
			t.Errorf("%+v, want %s", said, want)
		}
	}
}
