package admin

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/text"
)

// Limits of each stream of endpoints.
const (
	maxSteps = 1000            // maximum number of inputs that are applied together, and of steps in an input
	maxAhead = 1 << 20         // maximum bytes of the encoded inputs that are read ahead
	maxParts = 100_000         // maximum objects and values of an input
	fewParts = 5000            // number of parts that a stream may always unpack; for more it needs one of few slots, because a part takes up to 250 bytes
	quiet    = 2 * time.Minute // timeout of a silent stream without a lease
	// pace is the interval at which inputs are applied, if the sender does not wait for answers. Each
	// application has a fixed cost, on the disk or on each etcd member and server. The cost is as
	// high as that of many steps.
	pace = 10 * time.Millisecond
)

// An input is one line of a stream of endpoints, or one gRPC request. Each input renews the lease, even
// without a step.
type input struct {
	n      int    // number of the input, from 1
	size   int    // size in bytes
	parts  int    // upper limit of the objects and values in the unpacked input
	packed []byte // encoded form until the input is applied, because the unpacked form may be a hundred times as large
	steps  []endpoints.Op
	fault  *string // why the sender cannot update its endpoints; "": it can; nil: as before
	err    error   // why the whole input is rejected
	wrong  map[int]error
}

// A form is the encoding of a stream of endpoints.
type form interface {
	// ready reports whether read returns without waiting.
	ready() bool
	// read returns the next input, packed and without its number, or io.EOF.
	read() (input, error)
	// unpack sets the steps of an input, or its error.
	unpack(*input)
	// answer tells the sender that all inputs up to number n are processed, except the refused steps and endpoints. It
	// may buffer the answer.
	answer(n int, lost bool, refused []refused) error
}

// A refused is a rejected step.
type refused struct {
	n, step int // the rejected step of input n, or one with a rejected endpoint; -1: the whole input
	*problem
}

// A feed processes a stream of endpoints. Each line or request renews the lease of all endpoints of the
// stream. Lines that arrive together are applied together and get one answer. The feed ends when the
// sender ends the stream, when the lease expires before the next input, or at unreadable input.
type feed struct {
	s       *Server
	form    form
	control *http.ResponseController
	session *endpoints.Session
	wait    time.Duration // timeout for the next input
	n       int           // number of the last processed input
	caller  *caller       // has begun the stream
}

// feed returns a feed for a request. It returns an error if the caller may not register endpoints, or
// if there are too many feeds. The context of the returned request is done when another feed takes its place.
// The caller must call leave at the end.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) (f *feed, _ *http.Request, leave func(), err error) {
	if err := s.mayRegister(r); err != nil {
		return nil, nil, nil, err
	}
	r, out, err := s.streams.enter(r)
	if err != nil {
		return nil, nil, nil, err
	}
	f = &feed{s: s, control: http.NewResponseController(w), wait: quiet, caller: callerOf(r.Context())}
	woken := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(woken)
		f.wake()
	})
	return f, r, func() {
		if !stop() {
			<-woken // leave must wait: wake uses the connection, which is not allowed after the request
		}
		out()
	}, nil
}

// wake interrupts a blocked read.
func (f *feed) wake() { _ = f.control.SetReadDeadline(time.Unix(1, 0)) }

// open begins the session of a stream.
func (f *feed) open(ttl time.Duration) (err error) {
	if ttl > 0 {
		f.wait = ttl + time.Second // the lease has expired by then
	}
	f.session, err = f.s.Endpoints.Session(ttl)
	return err
}

// serve processes the stream of a request and logs the begin and end of the stream.
func (f *feed) serve(r *http.Request, name string, ttl time.Duration, first ...input) error {
	defer f.session.End(r.Context())
	defer f.s.stale.Delete(f)
	f.s.log().Info("endpoint stream began", "form", name, "ttl", ttl.String(), "by", f.caller.name, "peer", sender(r))
	f.s.did(r, "stream of endpoints")
	err := f.run(r.Context(), first...)
	f.s.log().Info("endpoint stream ended", "form", name, "count", f.n, "by", f.caller.name, "peer", sender(r), "error", err)
	return err
}

// expect sets the deadline for the next input, unless one is buffered or the stream ends.
func (f *feed) expect(ctx context.Context) error {
	if f.form.ready() {
		return nil
	}
	_ = f.control.SetReadDeadline(time.Now().Add(f.wait))
	if ctx.Err() != nil { // expect may have overwritten the deadline of wake
		return ctx.Err()
	}
	return nil
}

// run processes the stream. The argument first has the inputs that were already read. During a write
// to the disk, run reads ahead, so that the next write has many inputs.
func (f *feed) run(ctx context.Context, first ...input) (err error) {
	_ = f.control.SetWriteDeadline(time.Time{}) // over HTTP/2, a deadline would end a silent stream
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read, room := make(chan input, maxSteps), make(chan struct{}, maxAhead>>10)
	var end error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(read)
		end = f.read(reading, first, read, room)
	})
	var rest <-chan time.Time // fires when the wait for more inputs ends; nil: do not wait
	for one := range read {
		all := gather(one, read, room, rest)
		began := time.Now()
		lost, out := f.do(ctx, all)
		rest = nil
		if len(read) > 0 { // the sender does not wait for an answer
			rest = time.After(pace - time.Since(began))
		}
		err = f.answer(lost, out)
		if err != nil {
			break
		}
	}
	stop()
	f.wake()
	reader.Wait()
	if err == nil && ctx.Err() == nil && !errors.Is(end, io.EOF) {
		err = end
	}
	return err
}

// gather returns the inputs to apply together: the input one, the inputs in the queue, and those that
// arrive until rest fires.
func gather(one input, read <-chan input, room <-chan struct{}, rest <-chan time.Time) (all []input) {
	parts, bytes := 0, 0
	take := func(one input) (full bool) {
		for range one.weight(cap(room)) {
			<-room
		}
		all = append(all, one)
		parts, bytes = parts+one.parts, bytes+one.size
		return len(all) >= maxSteps || parts >= fewParts || bytes >= maxAhead
	}
	full := take(one)
	for !full && rest != nil {
		select {
		case one, more := <-read:
			if !more {
				return all
			}
			full = take(one)
		case <-rest:
			rest = nil
		}
	}
	for !full && len(read) > 0 {
		full = take(<-read)
	}
	return all
}

// weight returns the part of the read-ahead budget that s takes, in KiB. The argument most is the
// whole budget.
func (s *input) weight(most int) int { return min(1+s.size>>10, most) }

// read sends the inputs to a channel until the stream ends, and returns the reason for the end.
func (f *feed) read(ctx context.Context, first []input, to chan<- input, room chan<- struct{}) error {
	for n := 1; ; n++ {
		var one input
		if n <= len(first) {
			one = first[n-1]
		} else {
			err := f.expect(ctx)
			if err == nil {
				one, err = f.form.read()
			}
			if err != nil {
				return err
			}
		}
		one.n = n
		for range one.weight(cap(room)) {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case to <- one:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unpacks waits until this number of parts may be unpacked. The caller must call leave as soon as it
// no longer needs the unpacked parts. Before that, it must not wait for the peer.
func (s *Server) unpacks(ctx context.Context, parts int) (leave func(), err error) {
	if parts <= fewParts {
		return func() {}, nil
	}
	select {
	case s.unpacking <- struct{}{}:
		return func() { <-s.unpacking }, nil
	case <-ctx.Done():
		return func() {}, errEnding
	}
}

// do applies inputs. It reports whether the lease was lost, and returns the rejected steps.
func (f *feed) do(ctx context.Context, all []input) (bool, []refused) {
	f.n = all[len(all)-1].n
	var ops []endpoints.Op
	type place struct{ n, step int }
	var at []place
	var out []refused
	refuse := func(n, step int, err error) {
		if bad, ok := errors.AsType[endpoints.BadMembers](err); ok {
			for _, one := range bad {
				p, _ := errors.AsType[*problem](f.s.registering(one, ""))
				out = append(out, refused{n, step, p})
			}
			return
		}
		p, _ := errors.AsType[*problem](f.s.registering(err, ""))
		out = append(out, refused{n, step, p})
	}
	err := f.session.KeepAlive(ctx) // renew the lease first, because the next steps may wait
	parts := 0
	for _, one := range all {
		parts += one.parts
	}
	rights := f.caller.still() // the caller may have lost its role since the stream began
	leave, ending := f.s.unpacks(ctx, parts)
	defer leave()
	for i, one := range all {
		if one.err == nil {
			one.err = ending
			if ending == nil {
				f.form.unpack(&one)
			}
			all[i].packed = nil
		}
		if one.err != nil {
			refuse(one.n, -1, one.err)
			continue
		}
		if one.fault != nil {
			f.setFault(*one.fault)
		}
		for i, op := range one.steps {
			if why := one.wrong[i]; why != nil {
				refuse(one.n, i, why)
				continue
			}
			if why := f.s.mayChangeCluster(f.caller, rights, op.Cluster); why != nil {
				refuse(one.n, i, why)
				continue
			}
			ops, at = append(ops, op), append(at, place{one.n, i})
		}
	}
	var errs map[int]error
	lost := errors.Is(err, endpoints.ErrNoLease)
	if err == nil || lost {
		errs, err = f.session.Apply(ctx, ops)
		if errors.Is(err, endpoints.ErrNoLease) { // the lease was lost during the change
			lost = true
			errs, err = f.session.Apply(ctx, ops)
		}
	}
	for i, p := range at {
		if why := errs[i]; why != nil {
			refuse(p.n, p.step, why)
		} else if err != nil {
			refuse(p.n, p.step, err)
		}
	}
	slices.SortStableFunc(out, func(a, b refused) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.step, b.step)) })
	return lost, out
}

// setFault records why the sender cannot update its endpoints; "": it can.
func (f *feed) setFault(why string) {
	if why == "" {
		f.s.stale.Delete(f)
		return
	}
	is := api.Trouble{Code: api.StaleEndpoints, Since: time.Now(), Text: text.Head(why, maxWords)}
	if was, known := f.s.stale.Load(f); known {
		is.Since = was.(api.Trouble).Since
	}
	f.s.stale.Store(f, is)
}

// staleEndpoints lists the senders of endpoints that cannot update them, and the faults of their storage (SAFE-17).
func (s *Server) staleEndpoints() (all []api.Trouble) {
	for _, is := range s.stale.Range {
		all = append(all, is.(api.Trouble))
	}
	if s.Endpoints != nil {
		all = append(all, Troubles(api.StaleEndpoints, s.Endpoints.Faults())...)
	}
	slices.SortFunc(all, func(a, b api.Trouble) int { return a.Since.Compare(b.Since) })
	return all
}

// answer sends the result of the last application.
func (f *feed) answer(lost bool, out []refused) error {
	_ = f.control.SetWriteDeadline(time.Now().Add(writeTime))
	err := f.form.answer(f.n, lost, out)
	if err == nil {
		err = f.control.Flush()
	}
	_ = f.control.SetWriteDeadline(time.Time{})
	return err
}
