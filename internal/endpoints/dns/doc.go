// Package dns follows names of the DNS (A and AAAA, or SRV) and tells which addresses they have: once
// they are found, and whenever they are others.
//
//	w, err := dns.New([]dns.Name{{Host: "backend.example.com", Port: 8080}}, tell, dns.Options{})
//	w.Run(ctx)
//
// What was found stays as long as nobody says otherwise: a question that nobody answers, or that is answered with
// an error, changes nothing. An answer with fewer addresses counts at once, but one with none is asked for
// several times over a while ([Options.EmptyAfter]) before it does.
//
// It knows neither clusters nor servers: who is told registers what there is. What to ask when, and what answers
// make of what is known, is a value without I/O, clock or goroutine (book.go).
package dns
