package protocoltest

import "slices"

// An Excuse names a case in which the judge accepts a difference that would be a failure otherwise, because
// two sessions that keep every rule may differ in it. docs/simulation-excuses.md describes each excuse, and in how
// many worlds of a million it may change the verdict at most. That number may only become smaller.
type Excuse string

// Two or more excuses at once, each of which would be enough: none of them alone changed the verdict.
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

// grants reports whether an excuse is accepted now.
func (t *trial) grants(x Excuse) bool { return !t.strict && t.denied != x }

// lets reports whether a condition holds by the rules or by one of the given excuses. It counts each excuse
// without which the condition would not hold, since that one changed the verdict. So a caller asks it last,
// when everything else is a failure.
func (t *trial) lets(holds func() bool, among ...Excuse) bool {
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

// excuses reports whether one of these excuses is accepted. It counts like lets.
func (t *trial) excuses(of ...Excuse) bool {
	return t.lets(func() bool { return slices.ContainsFunc(of, t.grants) }, of...)
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
		{tardy, 7640, "order is given up where somebody is silent for 15 s"},
		{contradiction, 20, "it has acknowledged a response before it refuses an earlier one"},
		{blind, 20, "nobody knows the version that it states"},
		{quiet, 290, "its clusters of before were never warm, or not accepted whole, and it states none"},
		{dropped, 930, "it has dropped what expired"},
		{spurned, 7510, "it was offered the cluster and has not taken it"},
		{crossed, 20, "it has asked for the cluster anew while a world without it was on its way"},
		{dead, 330, "SotW cannot say that the route is gone"},
		{forgotten, 20, "nobody knows what route it has from before, and there is nothing to tell"},
		{underway, 20, "word of it is under way, or the session has spoken of it in time"},
		{unsettled, 20200, "something of the type is unanswered, refused or new"},
		{replaced, 2820, "it was told another, or it is leaving"},
		{wholeWaits, 20, "its heartbeat would be the whole world, which waits"},
		{expired, 250, "it has dropped that, and nobody could tell or keep it alive"},
		{vague, 20, "it states a version that nobody knows"},
		{opaque, 26370, "it may have anything of before until it accepts something"},
		{unopened, 29610, "a type that may refer to the name is not open yet"},
		{hadBefore, 80, "it had the name by way of the wildcard, and nothing tells that it is gone"},
		{loose, 40, "it states a name and has not asked for it"},
		{stray, 360, "it states a name that no name finds"},
		{heard, 430, "it gave up the name while word of it was under way"},
		{lax, 57820, "an answer may say nothing"},
		{precedes, 20, "an alias was asked for after what it names was lost"},
		{may, 7790, "it may have lost what it was told"},
		{back, 2120, "it has asked again for what it gave up on its way"},
		{bereft, 67750, "what refers to the name is lost, too"},
		{doubted, 20, "the response that it has refused need not be listed any more"},
		{unheard, 20, "what it has accepted need not be listed any more, or it has refused a later one"},
		{unsaid, 20, "a NACK says nothing of the response before it"},
		{merged, 20, "of more than four unanswered responses two are one"},
		{declined, 20, "it has refused just that"},
		{lapsed, 15510, "what has expired is news to it"},
		{waitsForView, 170, "the view still looks for a name"},
		{collected, 20, "a collection has found the name with another that lingers"},
		{crowded, 7120, "as many responses are unanswered as are listed"},
		{walks, 9370, "who walks from name to name drops the old by itself when it has the new"},
		{older, 44440, "an answer to a later response need not speak for an earlier one"},
		{several, 105720, "two or more of these at once, each of which would do"},
	}
}
