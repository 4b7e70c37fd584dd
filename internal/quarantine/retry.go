package quarantine

import (
	"context"
	"slices"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// This file retries refused versions that the view does not show (HEAL-2): it shows another version, or its table
// lacks the resource. The reason of the refusal may pass by itself, such as a port in use. For a retry, the view
// shows the refused version, one resource of a type at a time.
// The resource stays in quarantine until the client accepts it, so the refusal continues (HEAL-5). For the
// other resources in quarantine, which the view only withholds, the protocol does the same.

// answerWait is how long the other resources of a type wait for the answer to a retry.
const answerWait = 5 * time.Minute

// minRetry is the least time from the ACK that hastens a retry until the retry.
const minRetry = time.Second

// schedule sets the time of the next retry. The reason of the refusal is in the text.
func (w *Watch) schedule(h *held, now time.Time) {
	var stream uint64
	if w.exam.st != nil {
		stream = w.exam.st.ID
	}
	permanent := protocol.CannotPass(h.text, func(word string) bool { return word == h.name })
	delay := protocol.RetryDelay(h.tries, permanent, stream, h.nonce)
	h.retryAt, h.planned = now.Add(protocol.KeepPlanned(delay, h.planned, now)), time.Time{}
}

// isKept reports whether the view keeps the refused version from the client in a way that the protocol cannot
// retry: the table lacks it.
func (h *held) isKept() bool {
	return h.fault() && h.body != nil && (h.old != nil || h.hidden || h.applied)
}

// retry begins the retries that are due, until the budget of the server is used up. With 10,000 streams, a look
// at each of them would cost more than the retries: so the source has the time of the next retry of each stream.
func (s *Source) retry(now time.Time) {
	for _, w := range s.dueRetries(now) {
		st, due := w.due(now)
		for _, h := range due {
			if !st.MayRetry(h.typ, len(h.body.Body)) {
				return
			}
			w.order(order{typ: h.typ, edit: func(o *held) {
				if o.name == h.name && o.refused == h.refused && o.isKept() {
					o.trying, o.retryAt = true, now.Add(answerWait)
				}
			}})
		}
	}
}

// Hasten implements [server.TryingWatch]. A message that has only replacements, and what they refer to, is a
// result of the refusal: its ACK starts no retry.
func (w *Watch) Hasten(helps protocol.Helps) {
	if len(w.holds) == 0 {
		return
	}
	counts := func(name string, is *xds.Stamp) bool {
		return !slices.ContainsFunc(w.keeps, func(r *xds.Resource) bool { return r.Name == name && r.Sum == is.Sum })
	}
	soon := time.Now().Add(minRetry)
	for _, h := range w.holds {
		if h.isKept() && !h.trying && soon.Before(h.retryAt) && helps(h.typ, h.body.Stamp, counts) {
			w.order(order{typ: h.typ, edit: func(o *held) {
				if o.name == h.name && o.refused == h.refused && !o.trying && soon.Before(o.retryAt) {
					if o.planned.IsZero() {
						o.planned = o.retryAt
					}
					o.retryAt = soon
				}
			}})
		}
	}
}

// dueRetries returns the streams with a retry that is due, in random order.
func (s *Source) dueRetries(now time.Time) (all []*Watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, at := range s.retries {
		if !now.Before(at) {
			all = append(all, w)
		}
	}
	return all
}

// due returns for each type the resource whose retry is due for the longest time. It omits types with a
// search, an unanswered retry, or pending orders.
func (w *Watch) due(now time.Time) (st *server.Stream, all []held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.pending) > 0 {
		return nil, nil
	}
	next, busy := map[string]*held{}, map[string]bool{}
	for i := range w.holds {
		h := &w.holds[i]
		first := next[h.typ.URL]
		switch {
		case h.trying && now.Before(h.retryAt):
			busy[h.typ.URL] = true
		case h.isKept() && !h.trying && !now.Before(h.retryAt) && (first == nil || h.retryAt.Before(first.retryAt)):
			next[h.typ.URL] = h
		}
	}
	for url, h := range next {
		if !busy[url] && w.exam.search(h.typ) == nil {
			all = append(all, *h)
		}
	}
	return w.exam.st, all
}

// unansweredRetry returns the resource of a type whose retry has no answer yet; nil: none. The watch is locked.
func (w *Watch) unansweredRetry(t *xds.Type) *held {
	for i := range w.holds {
		if h := &w.holds[i]; h.trying && h.typ.Is(t) {
			return h
		}
	}
	return nil
}

// Tried implements [server.TryingWatch].
func (w *Watch) Tried(t *xds.Type) (name string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.unansweredRetry(t); h != nil {
		return h.name, true
	}
	return "", false
}

// retried returns the resources of a type whose retry has no answer yet, and those that the protocol retries.
func (w *Watch) retried(t *xds.Type) (all map[string]held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.holds {
		if h.typ.Is(t) && (h.trying || h.fault() && h.old == nil) {
			if all == nil {
				all = map[string]held{}
			}
			all[h.name] = h
		}
	}
	return all
}

// endRetry ends the retries of a type that the client has answered. An accepted resource leaves quarantine. A
// refused one is replaced or hidden as before, and its next retry is later. It reports whether there is a
// refused one.
func (s *Source) endRetry(ctx context.Context, w *Watch, a answer) (refused bool) {
	retried := w.retried(a.typ)
	if len(retried) == 0 {
		return false
	}
	accepted, refusedIn := map[string]xds.Sum{}, map[string]uint64{}
	if s.inspect(ctx, a.st, func(session *protocol.Session) {
		for n := range session.NameStates(a.typ) {
			h, ok := retried[n.Name]
			switch nonce := protocol.ParseNonce(n.RefusedIn); {
			case !ok:
			case n.Held != nil && n.Held.Sum == h.refused:
				accepted[h.name] = h.refused
			case h.trying && nonce > h.nonce:
				refusedIn[h.name] = nonce
			}
		}
	}) != nil || len(accepted)+len(refusedIn) == 0 {
		return false
	}
	text, now := a.shortText(), time.Now()
	w.order(order{
		typ:  a.typ,
		drop: func(h *held) bool { return h.fault() && accepted[h.name] == h.refused },
		edit: func(h *held) {
			nonce, again := refusedIn[h.name]
			if !again || !h.trying || nonce <= h.nonce {
				return
			}
			h.trying, h.nonce, h.tries = false, nonce, h.tries+1
			if a.refused {
				h.text = text
			}
			w.schedule(h, now)
		},
	})
	return len(refusedIn) > 0
}
