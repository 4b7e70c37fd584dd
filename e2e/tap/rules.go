package tap

import "fmt"

// Violations lists where the server broke a rule that holds in every conversation. Each violation begins with
// the ID of the rule.
func (rs Records) Violations() []string {
	var bad []string
	nonces := map[string]bool{}
	refused := map[string]string{} // stream and type → content of the response last refused
	sent := map[string]Record{}    // stream and nonce → response
	for _, r := range rs {
		report := func(format string, args ...any) {
			bad = append(bad, fmt.Sprintf(format, args...)+"\n"+r.String())
		}
		key := fmt.Sprint(r.Stream, " ", r.Type)
		nonce := fmt.Sprint(r.Stream, " ", r.Nonce)
		switch r.Kind {
		case Request:
			if answered, ok := sent[nonce]; ok && r.IsNACK() {
				refused[key] = answered.Content()
			} else if len(r.Subscribe) > 0 {
				delete(refused, key) // a resource that is subscribed again is sent again
			}
		case Response:
			if r.Nonce == "" {
				report("SOTW-2 response without a nonce")
			} else if nonces[nonce] {
				report("SOTW-2 a nonce used twice on one stream")
			}
			nonces[nonce] = true
			sent[nonce] = r
			seen := map[string]bool{}
			for _, x := range r.Resources {
				if seen[x.Name] {
					report("SOTW-14 DELTA-1 resource %q twice in one response", x.Name)
				}
				seen[x.Name] = true
				if u, ok := urls[r.Type]; ok && x.Sum != "" && x.URL != u {
					report("TYP-7 resource %q is a %s", x.Name, x.URL)
				}
			}
			for _, name := range r.Removed {
				if seen[name] {
					report("DELTA-1 %q twice among resources and removed_resources", name)
				}
				seen[name] = true
			}
			if old, ok := refused[key]; ok && old == r.Content() {
				report("SOTW-5 DELTA-15 the same content again that was just refused")
			}
			delete(refused, key)
		}
	}
	return bad
}
