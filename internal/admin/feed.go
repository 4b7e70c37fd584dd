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

	"github.com/chancery-xds/chancery/internal/endpoints"
)

// What is the same for each stream of endpoints.
const (
	maxSteps = 1000            // lines or requests that are done together, and steps of a request
	maxAhead = 1 << 20         // bytes that are read before they are done, and are kept as they came
	maxParts = 100_000         // of a request
	fewParts = 5000            // that are unpacked at any time: of more, few streams do at once, since each is up to 250 bytes
	quiet    = 2 * time.Minute // how long a stream without a lease may say nothing
	// pace is how often what who waits for no answer says is done: each time costs the disk, or each member of an etcd and
	// each server, as much as many steps.
	pace = 10 * time.Millisecond
)

// A said is what one line of a stream of endpoints says, or one request of gRPC. It renews the lease, also without a step.
type said struct {
	n      int    // counted from 1
	size   int    // bytes
	parts  int    // that it has when it is unpacked, or more: objects and values
	packed []byte // until it is done: unpacked it may be a hundred times as large
	steps  []endpoints.Op
	err    error // why none is taken
	wrong  map[int]error
}

// A form is how a stream of endpoints is written.
type form interface {
	// ready reports whether read need not wait.
	ready() bool
	// read returns what comes next, packed and without its number. io.EOF says that nothing does.
	read() (said, error)
	// unpack has it have its steps, or why it has none.
	unpack(*said)
	// answer says that all up to a number is done, but for what was refused. It may not be sent yet.
	answer(n int, lost bool, refused []refused) error
}

// A refused is a step that was not taken.
type refused struct {
	n, step int // step -1: all of it
	*problem
}

// A feed is a stream of endpoints, for as long as somebody says something: that renews the lease of all that
// the stream has put. What comes together is done together, and answered at once. It ends when who sends has ended, when
// nothing has come for the time of the lease, or with what cannot be read.
type feed struct {
	s       *Server
	form    form
	control *http.ResponseController
	session *endpoints.Session
	wait    time.Duration // for the next
	n       int           // that were done
}

// feed returns that of a request, if it may register endpoints and there are not too many that do. leave is to be called
// when it has ended.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) (f *feed, leave func(), err error) {
	if err := s.mayRegister(r); err != nil {
		return nil, nil, err
	}
	out, err := s.streams.of(r).enter("too many register endpoints")
	if err != nil {
		return nil, nil, err
	}
	f = &feed{s: s, control: http.NewResponseController(w), wait: quiet}
	woken := make(chan struct{})
	stop := context.AfterFunc(r.Context(), func() {
		defer close(woken)
		f.wake()
	})
	return f, func() {
		if !stop() {
			<-woken // after the request there is nothing to wake, and to try is a panic
		}
		out()
	}, nil
}

// wake ends what reads.
func (f *feed) wake() { _ = f.control.SetReadDeadline(time.Unix(1, 0)) }

// open begins the session of a stream.
func (f *feed) open(ttl time.Duration) (err error) {
	if ttl > 0 {
		f.wait = ttl + time.Second // what comes later is too late
	}
	f.session, err = f.s.Endpoints.Session(ttl)
	return err
}

// serve runs the stream of a request, and tells the log.
func (f *feed) serve(r *http.Request, name string, ttl time.Duration, first ...said) error {
	defer f.session.End(r.Context())
	f.s.log().Info("a stream of endpoints has begun", "form", name, "ttl", ttl.String(), "peer", peer(r))
	err := f.run(r.Context(), first...)
	f.s.log().Info("a stream of endpoints has ended", "form", name, "count", f.n, "peer", peer(r), "error", err)
	return err
}

// expect gives who sends so long for what comes next, unless it is here or the stream shall end.
func (f *feed) expect(ctx context.Context) error {
	if f.form.ready() {
		return nil
	}
	_ = f.control.SetReadDeadline(time.Now().Add(f.wait))
	if ctx.Err() != nil { // who ends it sets one that is over, perhaps just before this one
		return ctx.Err()
	}
	return nil
}

// run does what is said, after the first, if that was read already. It is read while that before is written to the disk, so
// that much goes there together.
func (f *feed) run(ctx context.Context, first ...said) (err error) {
	_ = f.control.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a stream that has nothing to say
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read, room := make(chan said, maxSteps), make(chan struct{}, maxAhead>>10)
	var end error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(read)
		end = f.read(reading, first, read, room)
	})
	var rest <-chan time.Time // until which more is waited for; nil: it is not
	for one := range read {
		all := gather(one, read, room, rest)
		began := time.Now()
		lost, out := f.do(ctx, all)
		if rest = nil; len(read) > 0 { // who waits for an answer has said nothing yet
			rest = time.After(pace - time.Since(began))
		}
		if err = f.answer(lost, out); err != nil {
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

// gather returns what is done together: one, what has come since, and what comes until rest is over.
func gather(one said, read <-chan said, room <-chan struct{}, rest <-chan time.Time) (all []said) {
	parts, bytes := 0, 0
	take := func(one said) (full bool) {
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

// weight is how many KiB of the room for what is read it takes.
func (s *said) weight(most int) int { return min(1+s.size>>10, most) }

// read reads until there is no more, and returns why.
func (f *feed) read(ctx context.Context, first []said, to chan<- said, room chan<- struct{}) error {
	for n := 1; ; n++ {
		var one said
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

// unpacks waits until so many parts may be unpacked. leave is to be called when they are needed no more: that waits for nobody who asks.
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

// do does what was said, and returns whether the lease was lost, and what was not taken.
func (f *feed) do(ctx context.Context, all []said) (bool, []refused) {
	f.n = all[len(all)-1].n
	var ops []endpoints.Op
	type place struct{ n, step int }
	var at []place
	var out []refused
	refuse := func(n, step int, err error) {
		p, _ := errors.AsType[*problem](f.s.registering(err, ""))
		out = append(out, refused{n, step, p})
	}
	err := f.session.KeepAlive(ctx) // before anything is waited for
	parts := 0
	for _, one := range all {
		parts += one.parts
	}
	leave, ending := f.s.unpacks(ctx, parts)
	defer leave()
	for i, one := range all {
		if one.err == nil {
			if one.err = ending; ending == nil {
				f.form.unpack(&one)
			}
			all[i].packed = nil
		}
		if one.err != nil {
			refuse(one.n, -1, one.err)
			continue
		}
		for i, op := range one.steps {
			if why := one.wrong[i]; why != nil {
				refuse(one.n, i, why)
				continue
			}
			ops, at = append(ops, op), append(at, place{one.n, i})
		}
	}
	var errs map[int]error
	lost := errors.Is(err, endpoints.ErrNoLease)
	if err == nil || lost {
		if errs, err = f.session.Apply(ctx, ops); errors.Is(err, endpoints.ErrNoLease) { // just then
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

// answer says what became of what was done last.
func (f *feed) answer(lost bool, out []refused) error {
	_ = f.control.SetWriteDeadline(time.Now().Add(writeTime))
	err := f.form.answer(f.n, lost, out)
	if err == nil {
		err = f.control.Flush()
	}
	_ = f.control.SetWriteDeadline(time.Time{})
	return err
}
