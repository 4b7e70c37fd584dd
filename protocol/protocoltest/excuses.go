package protocoltest

import "slices"

// An Excuse names a case in which the judge accepts a difference that would be a failure otherwise, because
// two sessions that keep every rule may differ in it. docs/simulation-excuses.md describes each excuse, and in how
// many worlds of a million it may change the verdict at most. That number may only become smaller.
type Excuse string

// Two or more excuses apply, and each alone would be enough: none of them alone changed the verdict.
const several Excuse = "several"

// Excuses for not judging "never breaks".
const (
	tardy         Excuse = "tardy"
	contradiction Excuse = "contradiction"
	blind         Excuse = "blind"
	quiet         Excuse = "quiet"
	dropped       Excuse = "dropped"
	spurned       Excuse = "spurned"
	crossed       Excuse = "crossed"
	dead          Excuse = "dead"
	forgotten     Excuse = "forgotten"
)

// Excuses for a client that drops an expired resource.
const (
	underway   Excuse = "underway"
	unsettled  Excuse = "unsettled"
	replaced   Excuse = "replaced"
	wholeWaits Excuse = "wholeWaits"
	expired    Excuse = "expired"
)

// Excuses where an obligation has two sides.
const (
	vague        Excuse = "vague"
	opaque       Excuse = "opaque"
	unopened     Excuse = "unopened"
	hadBefore    Excuse = "hadBefore"
	loose        Excuse = "loose"
	stray        Excuse = "stray"
	heard        Excuse = "heard"
	lax          Excuse = "lax"
	precedes     Excuse = "precedes"
	may          Excuse = "may"
	back         Excuse = "back"
	bereft       Excuse = "bereft"
	doubted      Excuse = "doubted"
	unheard      Excuse = "unheard"
	unsaid       Excuse = "unsaid"
	merged       Excuse = "merged"
	declined     Excuse = "declined"
	lapsed       Excuse = "lapsed"
	waitsForView Excuse = "waitsForView"
	collected    Excuse = "collected"
	crowded      Excuse = "crowded"
	walks        Excuse = "walks"
	older        Excuse = "older"
)

// Excuses that may keep a removed name, delay a name, or delay a full-state response.
var (
	keeping   = []Excuse{vague, opaque, unopened, hadBefore, loose, stray, back, doubted, unheard, walks, older}
	tying     = []Excuse{unsaid, doubted, loose, waitsForView}
	detaining = append(slices.Clip(keeping), unsaid, lapsed, waitsForView)
	aging     = append(slices.Clip(keeping), bereft) // or let an old state be sent
)

// A trial counts the excuses that changed a verdict of a world.
type trial struct {
	used    map[Excuse]int
	without Excuse // this excuse is not accepted: the world fails where it alone would excuse
	denied  Excuse // not accepted while the verdict without it is computed
	strict  bool   // no excuse is accepted
}

func newTrial(without Excuse) *trial {
	return &trial{used: map[Excuse]int{}, without: without}
}

// accepts reports whether an excuse is accepted now.
func (t *trial) accepts(x Excuse) bool { return !t.strict && t.denied != x }

// allows reports whether a condition holds by the rules or by one of the given excuses. It counts each excuse
// without which the condition would not hold, since that one changed the verdict. So a caller asks it last,
// when everything else is a failure.
func (t *trial) allows(holds func() bool, among ...Excuse) bool {
	if t.strict || t.denied != "" {
		return holds() // a part of a condition that is being computed
	}
	t.strict = true
	ruled := holds()
	t.strict = false
	switch {
	case ruled:
		return true
	case !holds():
		return false
	}
	turned := false
	for _, x := range among {
		t.denied = x
		needed := !holds()
		t.denied = ""
		if !needed {
			continue
		}
		if x == t.without {
			return false
		}
		turned = true
		t.used[x]++
	}
	if !turned {
		t.used[several]++
	}
	return true
}

// excuses reports whether one of these excuses is accepted. It counts like allows.
func (t *trial) excuses(of ...Excuse) bool {
	return t.allows(func() bool { return slices.ContainsFunc(of, t.accepts) }, of...)
}

// A Bound is the number of worlds in a million in which an excuse may change the verdict.
type Bound struct {
	Excuse
	PerMillion int
	Reason     string
}

// Excuses returns all excuses with their bounds.
func Excuses() []Bound {
	return []Bound{
		{tardy, 7640, "the order ends when somebody is silent for 15 s"},
		{contradiction, 20, "the client ACKed a response before it refused an earlier one"},
		{blind, 20, "the client states an unknown version"},
		{quiet, 290, "its clusters of an earlier stream were never warm, or never accepted whole, and it states none"},
		{dropped, 930, "the client dropped an expired resource"},
		{spurned, 7510, "the client was sent the cluster and did not accept it"},
		{crossed, 20, "the client subscribed again while a full-state response without the cluster was in flight"},
		{dead, 330, "SotW cannot remove the route"},
		{forgotten, 20, "the client holds an unknown route of an earlier stream, and nothing can be sent about it"},
		{underway, 20, "a message about it is in flight, or the session sent one in time"},
		{unsettled, 20200, "a response of the type is unanswered, refused or new"},
		{replaced, 2820, "another state was sent, or its removal is due"},
		{wholeWaits, 20, "its heartbeat would be the full-state response, which waits"},
		{expired, 250, "the client dropped it, which the server could not know or prevent"},
		{vague, 20, "the client states an unknown version"},
		{opaque, 26370, "it may hold anything of an earlier stream until it accepts something"},
		{unopened, 29610, "a type that may refer to the name is not open yet"},
		{hadBefore, 80, "the client held the name through the wildcard, and no response can remove it"},
		{loose, 40, "the client states a name and has not subscribed to it"},
		{stray, 360, "the client states a name that no subscription matches"},
		{heard, 430, "the client unsubscribed the name while a response about it was in flight"},
		{lax, 57820, "an answer may be empty"},
		{precedes, 20, "an alias was subscribed after its resource was removed"},
		{may, 7790, "the client may have lost what it was sent"},
		{back, 2120, "the client subscribed again to a name that it unsubscribed in flight"},
		{bereft, 67750, "the resource that refers to the name is removed, too"},
		{doubted, 20, "the refused response may no longer be tracked"},
		{unheard, 20, "the accepted response may no longer be tracked, or a later one was refused"},
		{unsaid, 20, "a NACK does not accept the response before it"},
		{merged, 20, "of more than four unanswered responses two are merged"},
		{declined, 20, "the client has refused exactly this state"},
		{lapsed, 15510, "an expired resource is news for the client"},
		{waitsForView, 170, "the view has not decided a name"},
		{collected, 20, "a collection matched the name and another one that is kept"},
		{crowded, 7120, "all tracked responses are unanswered"},
		{walks, 9370, "gRPC drops the old name itself when it has the new one"},
		{older, 44440, "an answer to a later response need not cover an earlier one"},
		{several, 105720, "two or more of these apply, and each alone would be enough"},
	}
}
