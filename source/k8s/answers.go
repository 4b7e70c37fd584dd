package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// doubtFor is how long lists that contradict the known slices are refused. Later ones are accepted.
const doubtFor = time.Minute

// silentFor is the time without an event or a bookmark after which a watch counts as dead. API servers send a
// bookmark about once a minute.
const silentFor = 3 * time.Minute

// check returns an error if a slice does not match the request (SAFE-17). It ignores the labels of a deleted slice,
// because the slice may be deleted after its labels have changed.
func (a *asker) check(s *discovery.EndpointSlice, deleted bool) error {
	switch {
	case s.Name == "":
		return errors.New("the API server sent an object that is not an endpoint slice: it has no name")
	case a.namespace != "" && s.Namespace != a.namespace:
		return fmt.Errorf("the API server sent endpoint slice %s/%s: only namespace %s was asked for", s.Namespace, s.Name, a.namespace)
	case !deleted && !a.selector.Matches(labels.Set(s.Labels)):
		return fmt.Errorf("the API server sent endpoint slice %s/%s: its labels do not match %s", s.Namespace, s.Name, a.selector)
	}
	return nil
}

// A listing is a complete list of slices while it arrives, in pages or as the first events of a watch.
type listing struct {
	known bool // the list and the store have a slice in common
}

// add adds a slice. A slice that was created anew has the name of the old one, but another UID.
func (l *listing) add(s *discovery.EndpointSlice, store cache.Store) {
	if !l.known {
		x, _, _ := store.GetByKey(s.Namespace + "/" + s.Name) // this store has no errors
		old, is := x.(*discovery.EndpointSlice)
		l.known = is && old.UID == s.UID
	}
}

// accept returns an error if a complete list contradicts the known slices: it is older than they are, or has none
// of them. Then the API server was probably restored from a backup, or another one answers at its address, and the
// known endpoints are kept. After doubtFor the list is accepted, and a log line has the reason for the removals.
func (a *asker) accept(l listing, version string) error {
	known, before := len(a.store.GetStore().ListKeys()), a.store.LastSyncResourceVersion()
	var why string
	switch {
	case known > 0 && older(version, before):
		why = fmt.Sprintf("its resourceVersion went back from %s to %s", before, version)
	case known > 0 && !l.known:
		why = fmt.Sprintf("it has none of the %d known slices", known)
	}
	a.mu.Lock()
	if why == "" || a.doubted.IsZero() {
		a.doubted = time.Now()
	}
	since := time.Since(a.doubted)
	if why == "" || since >= doubtFor {
		a.doubted = time.Time{}
	}
	a.mu.Unlock()
	switch {
	case why == "":
		return nil
	case since < doubtFor:
		return fmt.Errorf("refusing the list of the API server for %v: %s: was it restored from a backup, or does another API server answer?", doubtFor, why)
	}
	a.log.Warn("list of endpoint slices accepted after contradicting the known ones: endpoints that it lacks are removed", "reason", why)
	return nil
}

// older reports whether version a is older than b. It is false for versions that are not numbers.
func older(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// A checkedWatch passes on the events of a watch until one of them is not an answer to the request.
type checkedWatch struct {
	watch.Interface
	out    chan watch.Event
	ctx    context.Context
	cancel context.CancelFunc
}

// ResultChan implements [watch.Interface].
func (c *checkedWatch) ResultChan() <-chan watch.Event { return c.out }

// Stop implements [watch.Interface].
func (c *checkedWatch) Stop() { c.cancel(); c.Interface.Stop() }

// checked returns a watch with checked events, which was asked for with these options.
func (a *asker) checked(ctx context.Context, w watch.Interface, o meta.ListOptions) watch.Interface {
	c := &checkedWatch{Interface: w, out: make(chan watch.Event)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.out)
		defer c.Stop()
		err := a.pass(c, o)
		if err == nil {
			return
		}
		a.failed(c.ctx, err)
		// The informer reads all slices again after this error. It retries the same watch after others.
		status := meta.Status{Status: meta.StatusFailure, Code: http.StatusConflict, Reason: meta.StatusReasonConflict, Message: err.Error()}
		c.send(watch.Event{Type: watch.Error, Object: &status})
	}()
	return c
}

func (c *checkedWatch) send(e watch.Event) bool {
	select {
	case c.out <- e:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// pass passes on events. It returns the error of the first wrong event; nil: the watch has ended.
func (a *asker) pass(c *checkedWatch, o meta.ListOptions) error {
	var list listing
	initial := o.SendInitialEvents != nil // the watch begins with a complete list
	newest := o.ResourceVersion           // unused before the end of that list
	silence := time.NewTimer(silentFor)
	defer silence.Stop()
	for {
		var e watch.Event
		var open bool
		select {
		case e, open = <-c.Interface.ResultChan():
		case <-silence.C:
			return fmt.Errorf("the watch had no event or bookmark for %v", silentFor)
		case <-c.ctx.Done():
		}
		if !open {
			if initial { // the informer would repeat the request without a pause or a report
				return fmt.Errorf("the watch ended before its list of endpoint slices was complete: %w", io.EOF)
			}
			return nil
		}
		silence.Reset(silentFor)
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if initial && expired(err) { // as in asker.watch
				return err
			}
			a.failed(c.ctx, err)
			c.send(e)
			return nil
		}
		s, is := e.Object.(*discovery.EndpointSlice)
		if !is {
			return fmt.Errorf("the API server sent a %T instead of an endpoint slice", e.Object)
		}
		if s.ResourceVersion == "" {
			return fmt.Errorf("the API server sent an event %s without a resourceVersion", e.Type)
		}
		if e.Type != watch.Bookmark {
			if err := a.check(s, e.Type == watch.Deleted); err != nil {
				return err
			}
		}
		switch {
		case initial && e.Type == watch.Added: // these are not in the order of their versions
			list.add(s, a.store.GetStore())
		case initial && s.Annotations[meta.InitialEventsAnnotationKey] == "true":
			if err := a.accept(list, s.ResourceVersion); err != nil {
				return err
			}
			initial = false
			a.works()
		case older(s.ResourceVersion, newest):
			return fmt.Errorf("the resourceVersion of the API server went back from %s to %s", newest, s.ResourceVersion)
		}
		if !initial {
			newest = s.ResourceVersion
		}
		if !c.send(e) {
			return nil
		}
	}
}
