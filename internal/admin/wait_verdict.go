package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisionapi"
	"github.com/chancery-xds/chancery/internal/text"
)

// A verdict is the reason why a wait ends, if the result of a round does not have it.
type verdict struct{ class, why, hint string }

// of returns a result with the verdict.
func (v verdict) of(r api.WaitResult) api.WaitResult {
	r.APIVersion, r.Kind, r.Clients = api.Version, api.KindWaitResult, counts(r.Clients)
	r.Done, r.Class, r.Why, r.Hint = v.class == api.WaitOK, v.class, v.why, v.hint
	return r
}

// verdictOf returns the verdict of the last round.
func (w *syncedWait) verdictOf(r *api.WaitResult) verdict {
	switch {
	case r.Done && w.frozenHint() != "":
		return verdict{class: api.WaitOK, hint: w.frozenHint()}
	case r.Done && r.Clients.Connected == 0:
		return verdict{class: api.WaitOK, hint: "no client was there to wait for: --min-clients 1 waits for a client"}
	case r.Done:
		return verdict{class: api.WaitOK}
	case r.Rejected != nil:
		return verdict{api.WaitFailed, "not synced: " + rejectedText(r.Rejected), "chancery status shows details; --revision waits for the served configuration instead"}
	case len(r.Refusals) > 0:
		return verdict{api.WaitFailed, "not synced: " + r.Clients.Text(), "chancery explain NODE shows details"}
	}
	if len(r.Loops) > 0 {
		return verdict{api.WaitFailed, "not synced: " + loopsText(r.Loops), "chancery explain NODE shows details"}
	}
	if of := w.s.Config().Store; of != nil && len(r.Replicas) <= 1 && w.asked.stored > 0 && !r.Served {
		return verdict{api.WaitTimeout, fmt.Sprintf("revision r%d is not served yet: %s is%s", w.asked.stored, cmp.Or(of.Revision, "none"), text.Prefixed(": ", of.Error)), ""}
	}
	return verdict{api.WaitTimeout, fmt.Sprintf("not synced after %v: %s", w.timeout, w.late(r)), ""}
}

// frozenHint names the groups that do not get the served revision, for a caller that named no revision:
// their clients have accepted an earlier one.
func (w *syncedWait) frozenHint() string {
	of := w.s.Config().Store
	if w.named > 0 || of == nil {
		return ""
	}
	stays, goes := heldBefore(of, w.asked.asked.Group, storedNumber(of.Revision))
	var all []string
	for _, h := range stays {
		all = append(all, fmt.Sprintf("group %s is frozen at %s", h.Group, h.Revision))
	}
	all = append(all, goes...)
	if all == nil {
		return ""
	}
	return fmt.Sprintf("%s: these clients do not have %s; wait --revision %[2]s includes them", strings.Join(all, "; "), of.Revision)
}

// loopsText names a client that leaves again and again, and the number of the others.
func loopsText(all []api.Trouble) string {
	x := all[0]
	why := fmt.Sprintf("client %s: %s", x.Node, x.Text)
	if more := len(all) - 1; more > 0 {
		why += fmt.Sprintf(" (and %s more)", text.Number(more))
	}
	return why
}

// late returns the reason why not all clients have accepted the configuration in time.
func (w *syncedWait) late(r *api.WaitResult) string {
	selected := w.r.URL.Query()
	switch behind := behind(r); {
	case len(behind) > 0:
		return strings.Join(behind, "; ")
	case r.Removals != nil:
		return r.Removals.Text()
	case r.Uncommitted:
		return "the loaded files are not committed to the store yet"
	case r.Revision > 0 && r.Revision < w.asked.revision:
		return fmt.Sprintf("revision %d is not served yet: %d is", w.asked.revision, r.Revision)
	case r.Clients.Connected == 0 && selected.Get("node") != "":
		return fmt.Sprintf("no client with node id %s is connected", selected.Get("node"))
	case r.Clients.Connected == 0 && w.asked.asked.Group != "":
		return fmt.Sprintf("no client of group %s is connected", w.asked.asked.Group)
	}
	if r.Clients.Connected < w.least {
		return fmt.Sprintf("%s, fewer than %s", r.Clients.Text(), text.Amount(w.least, "client"))
	}
	names := slices.Clone(r.Pending)
	if more := r.Clients.Connected - r.Clients.By[api.Synced] - r.Clients.By[api.Idle] - len(names); more > 0 && len(names) > 0 {
		names = append(names, text.Number(more)+" more")
	}
	return r.Clients.Text() + text.Prefixed("; not yet: ", strings.Join(names, ", "))
}

// rejectedText returns the text of a rejected load.
func rejectedText(r *api.Rejected) string {
	why := "its errors are unknown"
	if len(r.Errors) > 0 {
		why = r.Errors[0]
		if more := len(r.Errors) - 1; more > 0 {
			why += fmt.Sprintf(" (and %s more)", text.Number(more))
		}
	}
	of := ""
	if r.Group != "" {
		of = "group " + r.Group + " "
	}
	return fmt.Sprintf("the load of %s%s ago was rejected: %s", of, text.Since(r.Since), why)
}

// behind lists the servers that do not serve the awaited revision.
func behind(r *api.WaitResult) (all []string) {
	for _, x := range r.Replicas {
		switch {
		case x.Error != "":
			seen := ""
			if x.Seen != nil {
				seen = ", but did " + text.Since(*x.Seen) + " ago"
			}
			all = append(all, fmt.Sprintf("server %s does not answer%s: %s", x.ID, seen, x.Error))
		case !x.Served:
			all = append(all, fmt.Sprintf("server %s serves %s", x.ID, cmp.Or(x.Revision, "nothing")))
		}
	}
	if r.Unsure != "" {
		all = append(all, "there may be other servers: "+r.Unsure)
	}
	return all
}

// heldBefore lists the groups that are frozen at an earlier revision: those that stay, and texts about those
// that a rollout moves to the revision or a later one. Without a group it looks at all groups.
func heldBefore(of *api.Store, group string, want uint64) (stays []api.Hold, goes []string) {
	for _, h := range of.Holds {
		n := storedNumber(h.Revision)
		if n == 0 || n >= want || group != "" && h.Group != group {
			continue
		}
		if next := storedNumber(h.Next); next >= want {
			goes = append(goes, fmt.Sprintf("rollout %s of group %s to %s is under way", h.Rollout, h.Group, h.Next))
		} else {
			stays = append(stays, h)
		}
	}
	return stays, goes
}

// frozen returns the verdict for groups that stay frozen before the named revision: who froze them, when and
// why, or which rollout took them back. The hint never serves a revision that a rollout took back.
func (w *syncedWait) frozen(stays []api.Hold) *verdict {
	var why, hints []string
	for _, h := range stays {
		text, hint := "", ""
		if w.s.TakenBack != nil {
			text, hint = w.s.TakenBack(w.r.Context(), h.Group)
		}
		if text == "" {
			why = append(why, fmt.Sprintf("group %s is frozen %s", h.Group, revisionapi.Held(h)))
			hint = revisionapi.ServeAdvice(h.Group, fmt.Sprintf("r%d", w.named))
		} else {
			why = append(why, fmt.Sprintf("group %s is frozen at %s, because %s", h.Group, h.Revision, text))
		}
		hints = append(hints, hint)
	}
	return &verdict{api.WaitFailed, fmt.Sprintf("not synced: r%d is not served: %s", w.named, strings.Join(why, "; ")), strings.Join(hints, "; ") + "; -g GROUP waits for another group"}
}
