// Package delay has the reasons for which a session delays a resource: a new one waits for others, or a lost one
// stays on the client. One table has the time limit of each reason, its requirement and its text. The session,
// its state reports and the judge (protocoltest) read this table.
package delay

import "time"

// A Reason is why a resource is delayed. The zero value: it is not.
type Reason uint8

const (
	_ Reason = iota

	// The state of other resources at the client: of the clusters for which a route waits, or of the routes that
	// hold a lost cluster.
	Unsent     // their newer state is not sent yet
	Unanswered // their newer state is sent, and the client has not answered
	Refused    // the client refused their newer state: it may use the earlier one for ever
	Earlier    // the client has them from an earlier stream

	Unassigned // a refused cluster has no endpoints whose ACK could show that the client has the cluster
	Warming    // a cluster of a stream of its own is acknowledged, and its endpoints are not
	Undecided  // the view does not know yet whether they exist
	Member     // they are lost and kept, too (ADS-10)

	// Types that the client has not opened.
	Unopened         // a client that resumes may open the type
	UnopenedClusters // the same for clusters on an aggregated stream: Envoy 1.40 opens them when earlier clusters are warm
	Elsewhere        // the client may have the type on another connection

	Dropping // a client that subscribes by name drops an unused cluster by itself, after the ACK of new routes
	Behind   // an earlier response of the same type is unanswered
)

// A Start is the time from which the limit of a reason counts.
type Start uint8

const (
	Event  Start = iota // a single time: the response, the first request of the stream, or its end
	Begin               // the begin of the wait, or of the hold
	Answer              // the begin, or the last answer of the type if it is later. The limit counts only while a response is unanswered
)

// byGrace stands for the option Grace of the session.
const byGrace = -1

// reasons is the table. A zero limit: only an answer, or a change of the view, ends the delay.
var reasons = [...]struct {
	limit time.Duration
	start Start
	id    string // the requirement (docs/requirements.md)
	text  string
}{
	Unsent:           {15 * time.Second, Answer, "ADS-3", "a newer state is not sent yet"},
	Unanswered:       {15 * time.Second, Answer, "ADS-6", "the client has not answered a newer state"},
	Refused:          {0, Begin, "ADS-3", "the client refused a newer state"},
	Earlier:          {15 * time.Second, Answer, "ADS-9", "the client may have it from an earlier stream"},
	Unassigned:       {15 * time.Second, Begin, "ADS-6", "the client refused it, and it has no endpoints"},
	Warming:          {15 * time.Second, Event, "ADS-11", "the client has not acknowledged its endpoints"},
	Undecided:        {0, Begin, "ADS-4", "the server does not know yet whether it exists"},
	Member:           {0, Begin, "ADS-10", "it is removed first"},
	Unopened:         {byGrace, Event, "ADS-9", "the client has not opened its type yet"},
	UnopenedClusters: {15 * time.Second, Event, "ADS-9", "the client has not opened its type yet"},
	Elsewhere:        {byGrace, Begin, "ADS-11", "the client may have other types on another connection"},
	Dropping:         {15 * time.Second, Begin, "ADS-3", "the client may unsubscribe by itself"},
	Behind:           {5 * time.Second, Event, "SOTW-3", "an earlier response is unanswered"},
}

// Count is the number of reasons, with the zero value.
const Count = len(reasons)

// Limit returns how long the reason delays a resource at most, in a session with this grace period. Zero: without
// a limit.
func (r Reason) Limit(grace time.Duration) time.Duration {
	if limit := reasons[r].limit; limit != byGrace {
		return limit
	}
	return grace
}

// Start returns the time from which the limit counts.
func (r Reason) Start() Start { return reasons[r].start }

// ID returns the requirement that has the reason.
func (r Reason) ID() string { return reasons[r].id }

// String returns the reason for explain, after "is kept while RDS r may refer to it:"; empty: none.
func (r Reason) String() string { return reasons[r].text }
