// Package transcripts replays conversations of sessions that are written as text, and compares what the session sends
// with the text. It performs no I/O except that it reads transcripts and, with -update, rewrites them.
package transcripts

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
)

// An idler is a session that states its interests and can release its view between inputs.
type idler interface {
	Interests() iter.Seq[protocol.Interest]
	Release()
}

// Hints is how much of a commit a session is given.
type Hints int

const (
	Exact Hints = iota // the touched names
	None               // no names: anything may differ
	Idle               // only commits that touch its interests; its view is released after each input
)

func (h Hints) String() string {
	return [...]string{"given the changed names", "given no hints", "woken by its interests"}[h]
}

// Run replays the transcripts that match the pattern, each as a subtest named after its file. It
// replays each in three ways, because a hint may only save work: with exact hints, without hints, and woken by
// interests. If the test binary has a boolean flag -update that is set, the expected lines are rewritten
// first.
//
// A transcript is a conversation, one step in each line:
//
//	# comment: a sentence of the document, a requirement
//	set CDS a=1 b=2 refs=EDS/x,SDS/y     resources name=version; the version is the content. refs=- is no
//	                                     reference; without refs= the references are unknown
//	set CDS ondemand a=1 aliases=n,m ttl=30s
//	                                     with aliases, a TTL, and outside of the wildcard
//	set LDS a=1 binds=80,127.0.0.1:81    with the addresses that a client binds for it: PORT or HOST:PORT
//	remove CDS a b
//	undecided CDS a b                    the view does not know yet whether they exist …
//	decided CDS a                        … now it does; set also decides
//	withhold CDS a b                     the view withholds these names from clients that refused them …
//	unwithhold CDS a                     … and does so no longer
//	substitute CDS                       the view has an older version of a refused resource of the type …
//	unsubstitute CDS                     … and does so no longer
//	version CDS r7                       the source supplies the version of the type; none: the hash again
//	begin … commit                       all changes in between are one commit
//	stream [A] sotw|delta [only=CDS] [client=E] [agent=envoy] [features=a,b] [refused=CDS,LDS] [max=1]
//	           [maxtypes= maxnames= maxnamelen=] [grace=5s] [spread=7] [versions] [retry] [forcettl] [bodyless] [errors]
//	                                     opens a stream with these options; it replaces the stream with the same
//	                                     label (A). It may look up all earlier tables of the view.
//	                                     Streams with the same client= are siblings
//	                                     "versions" also prints the version of delta responses
//	close [A]                            the stream ends
//	[A]> CDS names=a,b version=v1 nonce=1 error="text" node=ID agent=envoy features=a,b
//	[A]> CDS sub=a unsub=b initial=a@1,b@2 nonce=1
//	                                     a request; "-" is a request without type. names= is the empty list,
//	                                     names="" one empty name; error= is a NACK without a message
//	expect-error [A]> …                  a request that must end the stream as malformed
//	expect-limit [A]> …                  a request that must end the stream because of a limit
//	hold … release                       the stream is busy: no response is sent in between
//	resend CDS [a]                       all sessions send the resources of the type, or the one resource, again
//	wait 5s                              time passes; sessions are advanced at their deadlines
//	events nacked stale …                print events of these kinds from here on
//	[A]< CDS nonce=1 v=v1 a@1/30s(n,m) b@2 -gone
//	                                     a response, sorted by name, except for addresses: resources with the TTL that is sent, and aliases
//	[A]< EDS nonce=1 ~a@1/30s -b ?c !d   heartbeats, removed names, names reported absent by a resource without
//	                                     body, names reported missing in resource_errors
//	[A]! nacked CDS nonce=1 v=v1 in-use=v2 refuses error="text"
//	                                     an event; "late" is an answer to an older response, "refuses" is a client
//	                                     that wants a resource which it has refused, "unaccepted" is the end of
//	                                     a refusal without an ACK of the newest response
//
// Names with special characters are quoted as in Go. Types are written by their short name, unknown types by
// their URL. Versions that are hashes are written v1, v2, … for each type, in the order in which they first
// occur, also in requests.
//
// Every response is checked against the rules that need no expectation. A response that breaks one is followed
// by a line "error: …".
func Run(t *testing.T, pattern string, open protocoltest.Open) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcript matches %s (%v)", pattern, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := string(text)
			if updating() {
				got, err := Replay(want, open, Exact)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				want = got
			}
			for _, hints := range []Hints{Exact, None, Idle} {
				got, err := Replay(want, open, hints)
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				if got != want {
					t.Errorf("the session was %s\n%s", hints, difference(want, got))
					return // the other ways fail alike
				}
			}
		})
	}
}

func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// difference prints the transcript up to the first difference, then both continuations.
func difference(want, got string) string {
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	var out strings.Builder
	out.WriteString("the story:\n")
	i := 0
	for ; i < len(w) && i < len(g) && w[i] == g[i]; i++ {
		out.WriteString("    " + w[i])
	}
	out.WriteString("the difference (- wanted, + got):\n")
	merge(w[i:], g[i:], func(mark byte, line string) {
		if line != "" {
			fmt.Fprintf(&out, "  %c %s\n", mark, strings.TrimSuffix(line, "\n"))
		}
	})
	return out.String()
}

// merge yields a shortest edit from a to b.
func merge(a, b []string, yield func(mark byte, line string)) {
	// common[i][j] is the length of what a[i:] and b[j:] have in common.
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			yield(' ', a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			yield('-', a[i])
			i++
		default:
			yield('+', b[j])
			j++
		}
	}
}
