package transcripts

import (
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// A faulty session is a good one with one fault.
type faulty struct {
	*protocol.Session
	respond  func(*xds.Response)
	double   bool
	deadline func(time.Time) time.Time
}

func (f *faulty) Responses() iter.Seq[*xds.Response] {
	return func(yield func(*xds.Response) bool) {
		for r := range f.Session.Responses() {
			c := *r
			c.Changes = &xds.Changes{Upserts: r.Upserts, Removed: r.Removed, Beats: r.Beats, Absent: r.Absent, Missing: r.Missing}
			if f.respond != nil {
				f.respond(&c)
			}
			if !yield(&c) || f.double && !yield(&c) {
				return
			}
		}
	}
}

func (f *faulty) Deadline() time.Time {
	if f.deadline != nil {
		return f.deadline(f.Session.Deadline())
	}
	return f.Session.Deadline()
}

func opens(fault faulty) protocoltest.Open {
	return func(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
		f := fault
		f.Session = protocol.NewSession(v, only, view, opts)
		return &f
	}
}

const story = `set CDS a=1 b=1
stream sotw only=CDS
> CDS
< CDS nonce=1 v=v1 a@1 b@1
set CDS a=2
wait 5s
< CDS nonce=2 v=v2 a@2 b@1
`

func TestReplay(t *testing.T) {
	for _, hints := range []Hints{Exact, None, Idle} {
		got, err := Replay(story, opens(faulty{}), hints)
		if err != nil || got != story {
			t.Errorf("%s: %v\n%s", hints, err, difference(story, got))
		}
	}
}

// TestReplayChecksEveryResponse checks the rules that need no expected line.
func TestReplayChecksEveryResponse(t *testing.T) {
	foreign := xds.NewResource(xds.Cluster, "foreign", nil)
	for _, test := range []struct {
		name  string
		fault faulty
		want  string
	}{
		{"SOTW-2 nonce repeated", faulty{respond: func(r *xds.Response) { r.Nonce = "1" }}, "error: the nonce is empty or was used before"},
		{"SOTW-2 no nonce", faulty{respond: func(r *xds.Response) { r.Nonce = "" }}, "error: the nonce is empty or was used before"},
		{"SOTW-1 no version", faulty{respond: func(r *xds.Response) { r.Version = "" }}, "error: no version_info"},
		{"SOTW-14 name twice", faulty{respond: func(r *xds.Response) { r.Upserts = append(r.Upserts[:2:2], r.Upserts[0]) }}, "error: a occurs twice"},
		{"DELTA-1 name in both lists", faulty{respond: func(r *xds.Response) { r.Removed = []string{"b"} }}, "error: b occurs twice"},
		{"removed in sotw", faulty{respond: func(r *xds.Response) { r.Removed = []string{"c"} }}, "error: removed names in a sotw response"},
		{"absent in sotw", faulty{respond: func(r *xds.Response) { r.Absent = []string{"c"} }}, "error: removed names in a sotw response"},
		{"absent but in the view", faulty{respond: func(r *xds.Response) { r.Absent = []string{"a"} }}, "error: a exists"},
		{"missing but in the view", faulty{respond: func(r *xds.Response) { r.Missing = []string{"a"} }}, "error: a is not missing"},
		{"TTL-4 heartbeat of a full-state type in SotW", faulty{respond: func(r *xds.Response) { r.TTL, r.Beats = true, r.Upserts[:1] }}, "error: heartbeats without TTLs, or for a full-state type in SotW"},
		{"TTL-3 heartbeat of a resource without TTL", faulty{respond: func(r *xds.Response) { r.Beats = r.Upserts[:1] }}, "error: the heartbeat of a is for no resource with a TTL, in the view or departed"},
		{"TYP-7 another type", faulty{respond: func(r *xds.Response) { r.Type = xds.Route }}, "error: the stream does not carry this type"},
		{"type not requested", faulty{respond: func(r *xds.Response) { r.Type = xds.Route }}, "error: no request asked for this type"},
		{"not in the view", faulty{respond: func(r *xds.Response) { r.Upserts = []*xds.Resource{foreign} }}, "error: foreign is neither in the view nor departed"},
		{"sent twice", faulty{double: true}, "error: the nonce is empty or was used before"},
		{"deadline missing", faulty{deadline: func(time.Time) time.Time { return time.Time{} }}, "error: the session had no deadline for this"},
		{"deadline in the past", faulty{deadline: func(time.Time) time.Time { return start }}, "error: the session still has the deadline 0s after it was advanced to it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Replay(story, opens(test.fault), Exact)
			if err != nil || !strings.Contains(got, test.want+"\n") {
				t.Errorf("error %v: the output lacks %q:\n%s", err, test.want, got)
			}
		})
	}
}

// TestReplayPrints checks that all parts of a response are printed.
func TestReplayPrints(t *testing.T) {
	const script = `set EDS ondemand a=1 aliases=x,y ttl=30s
set EDS b=1
undecided EDS u
stream delta features=xds.config.supports-resource-ttl grace=1s spread=7 forcettl bodyless errors
> EDS sub=a
`
	got, err := Replay(script, opens(faulty{respond: func(r *xds.Response) {
		a := r.Upserts[0]
		b := &xds.Resource{Stamp: &xds.Stamp{Name: "~b", Version: "2"}, Aliases: a.Aliases, TTL: a.TTL}
		r.TTL, r.Beats, r.Removed, r.Absent, r.Missing = true, []*xds.Resource{b}, []string{"u", "gone"}, []string{"none"}, []string{"none"}
	}}), Exact)
	want := script + `< EDS nonce=1 a@1/30s(x,y) ~"~b"@2/30s(x,y) -gone -u ?none !none
error: the heartbeat of "~b" is for no resource with a TTL, in the view or departed
error: u is undecided
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, difference(want, got))
	}
}

func TestReplayShowsTheDifference(t *testing.T) {
	got, err := Replay(story, opens(faulty{respond: func(r *xds.Response) {
		if len(r.Upserts) == 2 && r.Upserts[0].Version == "2" {
			r.Upserts = r.Upserts[:1]
		}
	}}), Exact)
	if err != nil {
		t.Fatal(err)
	}
	want := `the story:
    set CDS a=1 b=1
    stream sotw only=CDS
    > CDS
    < CDS nonce=1 v=v1 a@1 b@1
    set CDS a=2
    wait 5s
the difference (- wanted, + got):
  - < CDS nonce=2 v=v2 a@2 b@1
  + < CDS nonce=2 v=v2 a@2
`
	if d := difference(story, got); d != want {
		t.Errorf("got:\n%s", d)
	}
}

func TestReplayEndsAStreamOnError(t *testing.T) {
	const script = `stream sotw maxnamelen=1
expect-limit > EDS names=ok
expect-error > EDS names=ok
> EDS names=a
`
	got, err := Replay(script, opens(faulty{}), Exact)
	if err != nil || strings.Count(got, "error: the stream has ended\n") != 2 {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = Replay("stream sotw\nexpect-error > EDS names=a\n", opens(faulty{}), Exact)
	if err != nil || !strings.Contains(got, "error: accepted\n") {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = Replay("stream sotw maxnamelen=1\nexpect-error > EDS names=ok\n", opens(faulty{}), Exact)
	if err != nil || !strings.Contains(got, "error: of the other kind") {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestReplayRejectsInvalidTranscripts checks that Replay returns an error for lines that it cannot read.
func TestReplayRejectsInvalidTranscripts(t *testing.T) {
	for _, script := range []string{
		"jump",
		"set",
		"set XDS a=1",
		"set CDS a",
		"set CDS a=1 refs=EDS",
		"remove CDS a",
		"wait long",
		"set CDS later a=1",
		"set CDS a=1 ttl=long",
		"stream delta grace=long",
		"> CDS",
		"stream rest",
		"stream sotw colour=red",
		"stream sotw\n> CDS sub=a",
		"stream delta\n> CDS names=a",
		"stream sotw\n> CDS CDS",
		"stream sotw\n> CDS version=v9",
		"stream sotw\n> CDS name=a",
		`stream sotw` + "\n" + `> CDS names="a`,
		"expect-error CDS",
		"begin\nstream sotw\ncommit",
		"begin",
		"hold",
		"hold\nwait 1s\nrelease",
		"close A",
	} {
		if got, err := Replay(script+"\n", opens(faulty{}), Exact); err == nil {
			t.Errorf("%q is accepted:\n%s", script, got)
		}
	}
}

// TestReplayAddsExpectedLines checks that a transcript can be written without its expected lines.
func TestReplayAddsExpectedLines(t *testing.T) {
	bare := ""
	for s := range strings.Lines(story) {
		if s[0] != '<' {
			bare += s
		}
	}
	if got, err := Replay(bare, opens(faulty{}), Exact); err != nil || got != story {
		t.Errorf("%v\n%s", err, got)
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "-a", "a b", `"`, "a,b", "a=b", "a@b", "\x00\xff", "世界", "\u2028"} {
		f.Add(s, "1")
	}
	f.Fuzz(func(t *testing.T, name, version string) {
		l, err := parse("> CDS names=" + quote(name) + "@" + quote(version) + ",x")
		if err != nil {
			t.Fatal(err)
		}
		it := l.items("names")
		if len(it) != 2 || it[0].text != name || it[0].at != version || it[1].text != "x" {
			t.Errorf("%q@%q became %q", name, version, it)
		}
	})
}
