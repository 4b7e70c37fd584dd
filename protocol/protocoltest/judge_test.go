package protocoltest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// TestJudge plays the text cases of testdata: what a client sends and what a session might send, with
// the verdict that the judge must return. No session takes part.
//
// The lines before the first "case" are common to all cases of a file. A resource is written
// name|alias=content:PORT>TYPE/reference,…; a "?" before it makes it on demand, a "!" after the content gives it a
// TTL of 30 s, PORT is the address that it takes, and the reference "?" makes its references unknown.
//
//	stream delta|sotw                   must be the first line
//	option ttl resumes errors bodyless refused=true|false only=SDS grace=1s max=30
//	commit CDS x=1 -y RDS r=1>CDS/x     the view changes; -y removes y
//	undecided CDS x … decided           the view does not know yet whether x exists; then it does
//	earlier RDS r=1                     the client holds this from an earlier stream
//	earlier-response CDS version=V x=1  SotW: an earlier stream sent this
//	assume CDS x=1 [loose]              the client was sent this; loose: the session need not know so
//	interests VHDS r/* r/a              the session states its interests in a type
//	> CDS sub=a,b unsub=c has=d=1,e@old nonce=1 error stale agent=envoy node=plain
//	> CDS names=a,b version={a=1,b=1}   a request. has= are initial resource versions; version={…} is the
//	                                    version of a table with these resources; stale: the nonce is no
//	                                    longer tracked
//	< CDS nonce=1 a=1 -b !c ~d=1!       a response in a new batch: removed b, missing c, heartbeat of d.
//	                                    version=V and counting=NAME replace the right version
//	<+ CDS nonce=2 b=1                  another response of the same batch
//	! TEXT                              the judge refuses the last response with an error that contains TEXT
//	idle                                the session is asked for responses and has none
//	resend EDS [x]                      an operator has the type, or x, sent again
//	wait 5s                             time passes
//	owes TEXT                           what the session must still send; "nothing"
//	? QUESTION: ANSWER                  see questions
func TestJudge(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			common, cases, _ := strings.Cut(string(text), "\ncase ")
			if cases == "" {
				playCase(t, common)
				return
			}
			for one := range strings.SplitSeq(cases, "\ncase ") {
				name, lines, _ := strings.Cut(one, "\n")
				t.Run(name, func(t *testing.T) { playCase(t, common+"\n"+lines) })
			}
		})
	}
}

// A textCase is the state of one text case: a ledger, and the view of the session.
type textCase struct {
	t       *testing.T
	ledger  *ledger
	view    xds.Tables
	past    []*xds.Table // every earlier table of the view
	verdict error        // on the last response, until the next line
	played  []string
}

// playCase plays the lines of a case and returns its state, so that a test can go on.
func playCase(t *testing.T, text string) *textCase {
	t.Helper()
	c := &textCase{t: t, view: xds.Tables{}}
	c.play(text)
	return c
}

func (c *textCase) play(text string) {
	c.t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		c.played = append(c.played, line)
		verb, rest, _ := strings.Cut(line, " ")
		if verdict := c.verdict; verb == "!" {
			if c.verdict = nil; verdict == nil || !strings.Contains(verdict.Error(), rest) {
				c.fail("the verdict is %v", verdict)
			}
			continue
		} else if verdict != nil {
			c.fail("the response before is refused: %v", verdict)
		}
		if err := c.step(verb, rest); err != nil {
			c.fail("%v", err)
		}
	}
	if c.verdict != nil {
		c.fail("the response is refused: %v", c.verdict)
	}
}

func (c *textCase) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\n%s", strings.Join(c.played, "\n"), fmt.Sprintf(format, args...))
}

func (c *textCase) step(verb, rest string) (err error) {
	words := strings.Fields(rest)
	l, typ := c.ledger, (*xds.Type)(nil)
	switch verb {
	case "commit", "undecided", "earlier", "earlier-response", "assume", "interests", "resend", ">", "<", "<+":
		if typ, err = typeOf(words[0]); err != nil {
			return err
		}
	}
	switch verb {
	case "stream":
		variant := map[string]xds.Variant{"delta": xds.Delta, "sotw": xds.SotW}[rest]
		recent := func(*xds.Type) []*xds.Table { return c.past }
		c.ledger = newLedger(variant, nil, c.view, epoch, protocol.Options{Recent: recent}, map[string][]*xds.Resource{}, map[string][]sending{}, past{})
	case "option":
		return c.option(words)
	case "commit":
		c.commit(words)
	case "undecided":
		l.change(undecidedView{c.view, xds.Names{typ.URL: words[1:]}, nil})
	case "decided":
		l.change(c.view)
	case "earlier":
		l.past = past{typ.URL: map[string][]*xds.Resource{}}
		for _, r := range parseResources(words[1:]) {
			l.past[typ.URL][r.Name] = append(l.past[typ.URL][r.Name], r)
		}
	case "earlier-response":
		l.sends[typ.URL] = append(l.sends[typ.URL], sending{c.version(typ, words[1][len("version="):]), parseResources(words[2:])})
	case "assume":
		r := parseResource(words[1])
		l.account(typ).lastSent[r.Name] = fact{res: r, loose: slices.Contains(words, "loose")}
	case "interests":
		l.account(typ).interest = map[string]bool{}
		for _, name := range words[1:] {
			l.account(typ).interest[name] = true
		}
	case "resend":
		l.resend(typ, strings.Join(words[1:], ""))
	case ">":
		return c.request(typ, words[1:])
	case "<", "<+":
		if verb == "<" {
			l.beginBatch()
		}
		c.verdict = l.judgeResponse(c.response(typ, words[1:]))
	case "idle":
		l.beginBatch()
	case "wait":
		d, err := time.ParseDuration(rest)
		l.advance(l.now.Add(d))
		return err
	case "owes":
		if owed := cmp.Or(l.waiting(), "nothing"); owed != rest {
			return fmt.Errorf("it owes %s", owed)
		}
	case "?":
		question, want, _ := strings.Cut(rest, ": ")
		words = strings.Fields(question)
		ask := questions[words[0]]
		if ask == nil {
			return fmt.Errorf("unknown question")
		}
		if got := cmp.Or(ask(c, words[1:]...), "nothing"); got != want {
			return fmt.Errorf("the answer is %s", got)
		}
	default:
		return fmt.Errorf("unknown verb")
	}
	return nil
}
