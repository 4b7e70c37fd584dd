// Package dns resolves names (A and AAAA, or SRV) again and again, and reports their addresses when they
// are found and whenever they change.
//
//	w, err := dns.New([]dns.Name{{Host: "backend.example.com", Port: 8080}}, report, dns.Options{})
//	w.Run(ctx)
//
// Known addresses stay until an answer changes them: a timeout or an error changes nothing. An answer
// with fewer addresses counts at once. An answer without addresses must be confirmed by further answers
// over a while ([Options.EmptyAfter]).
//
// The package knows neither clusters nor servers: the caller registers the addresses. A tracker
// (tracker.go) decides when to ask for which name, and what an answer changes. It has no I/O, clock or
// goroutine.
package dns
